"""Two machines race for one pipeline whose state is in S3: one works, the other is refused, whoever is paused.

LAKEINGEST_RACES sets the number of rounds. Where the tests have the right to, each machine is an OS user of its own.
The processes take a lease for void after 6 s without renewal instead of 30, so that a round takes seconds.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeingest.demo.server import LocalServer
from lakeingest.files.file import state_of
from tests.e2e.job import Job
from tests.lake.shown import catalog_of
from tests.servers.accounts import PASSWORD
from tests.servers.catalog_servers import rest_on_s3
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.mysql]

RACES = int(os.environ.get("LAKEINGEST_RACES", "2"))
USERS = (65_001, 65_002)  # numbers that no user has
VOID_SECONDS, SECONDS_MAX = 6.0, 200.0
RUN = f"""
import sys
from lakeingest.cli import main
from lakeingest.state import lease
lease.RENEW_SECONDS, lease.VOID_SECONDS = {VOID_SECONDS / 6}, {VOID_SECONDS}
sys.exit(main())
"""


@dataclass(frozen=True)
class Machine:
    """A folder with the pipeline's file, a home, and who works there."""

    job: Job
    user: int | None

    @property
    def said(self) -> str:
        """What the last command has said so far."""
        return self.log.read_text()

    @property
    def log(self) -> Path:
        """The file of what it says, which the command cannot replace."""
        return self.job.folder.with_suffix(".log")

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command."""
        folder = self.job.folder
        own = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        root = str(Path(__file__).parents[2])
        as_user = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"] if self.user else []
        with self.log.open("w") as log:
            return subprocess.Popen(
                [*as_user, sys.executable, "-c", RUN, *arguments],
                cwd=folder,
                env=os.environ | own | {"JOB_PASSWORD": PASSWORD, "PYTHONPATH": root},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@pytest.fixture
def machines(tmp_path: Path, mysql_server: LocalServer) -> Iterator[list[Machine]]:
    """Two machines, and a table that is copied."""
    with rest_on_s3(tmp_path) as target:
        target["catalog"]["name"] = "raced"
        stored = target["warehouse"].replace("warehouse", "state")
        job = Job(tmp_path / "job", mysql_server, "raced", target=target, stored=stored).write()
        job.sql(
            f"USE {job.database}",
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        )
        assert job.run()[0] == 0
        place = Path(tempfile.mkdtemp(prefix="machines-"))  # not below pytest's folder, which only we may enter
        try:
            place.chmod(0o755)
            users = USERS if os.geteuid() == 0 else (None, None)
            found = []
            for number, user in enumerate(users):
                machine = job.on_another_machine(place / f"machine{number}")
                for path in (machine.folder, machine.folder / "pipeline.yml"):
                    os.chown(path, -1 if user is None else user, -1 if user is None else user)
                found.append(Machine(machine, user))
            yield found
        finally:
            shutil.rmtree(place)
        job.sql(f"DROP DATABASE {job.database}")


def written(job: Job) -> dict[str, object]:
    """What the catalog and the documents of the state have now.

    The outcome of the last run is every run's own to write. Data files that no document names are nobody's.
    """
    found: dict[str, object] = {
        str(file): file.version()
        for file in everything(state_of(job.config))
        if not file.name.startswith("last_run.") and file.suffix != ".parquet"
    }
    with catalog_of(job.config.target) as catalog:
        return found | {"table": catalog.load_table((job.database, "t")).metadata_location}


def race(machines: list[Machine], number: int) -> tuple[float, float]:
    """One round; the seconds until one was refused, and until the other one took over."""
    job, began = machines[0].job, time.monotonic()
    processes = [machine.start("run", "--follow") for machine in machines]
    try:
        wait(machines, lambda: any(process.poll() is not None for process in processes))
        [refused] = [one for one, process in enumerate(processes) if process.poll() is not None]
        first, second = machines[1 - refused], machines[refused]
        assert processes[refused].returncode == 75, second.said
        assert f"another run of this pipeline is at work: pid {processes[1 - refused].pid} on " in second.said
        seconds = time.monotonic() - began
        wait(machines, lambda: "caught up" in first.said)
        processes[1 - refused].send_signal(signal.SIGSTOP)
        job.sql(f"UPDATE {job.database}.t SET v = 'round {number}' WHERE id = 1")
        stopped = time.monotonic()
        while (code := second.start("run").wait()) != 0:
            assert (code, time.monotonic() < stopped + SECONDS_MAX) == (75, True), second.said
        taken = time.monotonic() - stopped
        assert job.published("t") == job.source("t")
        job.sql(f"UPDATE {job.database}.t SET v = 'later' WHERE id = 2")
        before = written(job)
        processes[1 - refused].send_signal(signal.SIGCONT)
        assert processes[1 - refused].wait(timeout=SECONDS_MAX) == 75, first.said
        assert "LeaseLost" in first.said
        assert written(job) == before
        return seconds, taken
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait(machines: list[Machine], sign: Callable[[], bool]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + SECONDS_MAX
    while not sign():
        assert time.monotonic() < end, [machine.said for machine in machines]
        time.sleep(0.05)


@pytest.mark.long("starts many processes")
def test_of_two_machines_one_works(machines: list[Machine], record_property: Callable[[str, object], None]) -> None:
    """Of two at once one ends with 75. The other is paused until that one takes over, and writes nothing more then."""
    found = []
    for number in range(RACES):
        found.append(race(machines, number))
        print(f"round {number + 1}: {found[-1]}", flush=True)  # noqa: T201 - a long test
    mean = [sum(column) / RACES for column in zip(*found, strict=True)]
    users = "two users" if machines[0].user else "one user"
    record_property(
        "races of two machines",
        f"{RACES} rounds, {users}: one refused after {mean[0]:.1f} s, the other took over after {mean[1]:.1f} s",
    )
