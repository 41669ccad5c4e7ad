"""`kill -9` at random moments of a bootstrap and of a catch-up: the next run makes it equal, and repeats nothing.

LAKEINGEST_KILLS sets the number of kills of each kind. What is killed is a process with a Spark of its own, as a
scheduler starts it; the next run works in the session of the tests, which saves half of the time.
"""

import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from tests.e2e.job import Job
from tests.faults.beside import beside
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

KILLS = int(os.environ.get("LAKEINGEST_KILLS", "1"))
ROWS, CHUNK_ROWS = 16_000, 200
TABLE = "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(40), n DECIMAL(12,2), KEY (n))"


@pytest.fixture
def flavor(request: pytest.FixtureRequest) -> Flavor:
    """MySQL, unless a test asks for another one."""
    return getattr(request, "param", MYSQL)


@pytest.fixture
def job_in(
    tmp_path: Path,
    server_of: Callable[..., LocalServer],
    flavor: Flavor,
    lake_config: Config,
    request: pytest.FixtureRequest,
) -> Callable[[str], Job]:
    """Call it with a name: a job with a filled table, on a server that logs every query."""
    server = server_of(flavor, general_log="ON", log_output="TABLE", server_id="91")

    def make(name: str) -> Job:
        database = f"kills_{abs(hash(request.node.nodeid)) % 10**6}_{name}"
        target = lake_config.target
        job = Job(tmp_path / name, server, database, CHUNK_ROWS, str(target.warehouse), target.format).write()
        rows = ", ".join(f"({i}, 'v{i}', {i} / 3)" for i in range(1, ROWS + 1))
        job.sql(f"USE {job.database}", TABLE, f"INSERT INTO items VALUES {rows}")
        return job

    return make


def written_to(job: Job, chance: random.Random) -> AbstractContextManager[None]:
    """A writer inserts, updates, deletes and moves keys, everywhere, while the block runs."""

    def write(_: int, is_over: Callable[[], bool]) -> None:
        connection = job.connection()
        with connection, connection.cursor() as cursor:
            cursor.execute(f"USE {job.database}")
            while not is_over():
                change(cursor.execute, chance)
                time.sleep(0.005)

    return beside(write, 1)


def change(execute: Callable[[str], object], chance: random.Random) -> None:
    """One transaction of a few changes, now and then rolled back."""
    a, b, new = (chance.randint(1, ROWS * 2) for _ in range(3))
    execute("BEGIN")
    execute(f"UPDATE items SET n = n + 1, v = CONCAT('u', {new}) WHERE id BETWEEN {a} AND {a + 5}")
    execute(f"DELETE FROM items WHERE id = {b}")
    execute(f"INSERT IGNORE INTO items VALUES ({new}, 'new', 1)")
    execute(f"UPDATE IGNORE items SET id = {b} WHERE id = {a + 2}")
    execute("ROLLBACK" if chance.random() < 0.1 else "COMMIT")


def begun(job: Job, sign: Callable[[], bool]) -> "subprocess.Popen[str]":
    """Start a run; it has begun its work, as the sign says, when this returns."""
    process = job.start("run")
    deadline = time.monotonic() + 120
    while process.poll() is None and not sign():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def worked(job: Job, sign: Callable[[], bool]) -> float:
    """How long the work of a run takes that nobody kills."""
    process = begun(job, sign)
    began = time.monotonic()
    process.communicate(timeout=300)
    assert process.returncode == 0
    return time.monotonic() - began


def killed(job: Job, sign: Callable[[], bool], after: float) -> bool:
    """Kill a run -9, this long after it began its work; whether it was at work still."""
    process = begun(job, sign)
    time.sleep(after)
    process.kill()
    process.communicate(timeout=60)
    return process.returncode < 0


def moments(seconds: float, chance: random.Random) -> Iterator[float]:
    """As many random moments as there are kills, one in each equal part of the work."""
    for number in range(KILLS):
        yield (number + chance.random()) * seconds / KILLS


def answer(job: Job, number: int, after: float, seconds: float) -> str:
    """Which run was killed, and when."""
    return f"{job.server.flavor.name} to {job.lake_format}, kill {number} after {after:.1f} of {seconds:.1f} s"


def opened(job: Job) -> Callable[[], bool]:
    """Whether the run has opened its spool, right before it makes the table."""
    return (job.state / "spool" / "opened.json").exists


def chunk_reads(job: Job) -> list[int]:
    """The lower bounds of the chunks that were read since the log was emptied."""
    reads = job.sql(
        "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type = 'Execute'"
        f" AND argument LIKE '%SELECT %`id`, `v`, `n` FROM `{job.database}`%'"
    )
    return [int(found[1]) if (found := re.search(r"`id` >= (-?\d+)", text)) else -(10**9) for (text,) in reads]


def finish(job: Job, spark: SparkSession) -> None:
    """Run to the end; source and lake are equal then, and no key is there twice."""
    assert run(job.config, spark=spark).caught_up
    published = job.published("items")
    assert published == job.source("items")
    assert len({row[0] for row in published}) == len(published)


@pytest.mark.long("starts three processes with a Spark each, and writes beside them")
@pytest.mark.parametrize("flavor", [MYSQL, MARIADB_11_4], ids=["MySQL", "MariaDB"], indirect=True)
def test_kills_in_a_bootstrap(
    job_in: Callable[[str], Job], spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """Whenever it is killed, the next run is equal, and reads no chunk that was committed."""
    chance = random.Random(1)
    whole = job_in("whole")
    seconds = worked(whole, opened(whole))
    starts = [max(1, start) for start in sorted(chunk_reads(whole))]
    # the log has every chunk; their rows are an estimate, so their number is not known
    assert all(end - start < 2 * CHUNK_ROWS for start, end in pairwise([1, *starts, ROWS + 1]))
    for number, after in enumerate(moments(seconds, chance), start=1):
        job = job_in(f"b{number}")
        with written_to(job, chance):
            killed(job, opened(job), after)
        before = job.progress("items")
        job.sql("TRUNCATE mysql.general_log")
        finish(job, spark)
        reads = chunk_reads(job)
        copied_up_to = before.splits.copied_up_to if before else None
        if before is not None and before.splits.complete:
            assert reads == []
        elif copied_up_to is not None:
            assert min(reads) == copied_up_to[0]
        assert len(reads) == len(set(reads))
        state = "not created" if before is None else f"{before.wave} waves, {before.phase}"
        moment = answer(job, number, after, seconds)
        record_property("kills in a bootstrap, equal after each", f"{moment}: {state}; then {len(reads)} chunks")
        job.sql(f"DROP DATABASE {job.database}")


@pytest.mark.long("starts three processes with a Spark each, and writes beside them")
@pytest.mark.formats
def test_kills_in_a_catch_up(
    job_in: Callable[[str], Job], spark: SparkSession, record_property: Callable[[str, object], None]
) -> None:
    """A batch of changes, a run that is killed, and the next run is equal; no chunk is read again, no row doubled."""
    chance = random.Random(2)
    job = job_in("c")
    finish(job, spark)
    job.sql("TRUNCATE mysql.general_log")
    batch(job, chance)
    seconds = worked(job, spooling(job))
    for number, after in enumerate(moments(seconds, chance), start=1):
        batch(job, chance)
        before, sign = job.progress("items"), spooling(job)
        with written_to(job, chance):
            killed(job, sign, after)
        stopped = "merged" if job.progress("items") != before else "not merged"
        spooled = len(everything(job.state / "spool" / "segments"))
        finish(job, spark)
        moment = answer(job, number, after, seconds)
        record_property("kills in a catch-up, equal after each", f"{moment}: {spooled} segments spooled, {stopped}")
    assert chunk_reads(job) == []


def batch(job: Job, chance: random.Random) -> None:
    """Some hundred transactions."""
    connection = job.connection()
    with connection, connection.cursor() as cursor:
        cursor.execute(f"USE {job.database}")
        for _ in range(300):
            change(cursor.execute, chance)


def spooling(job: Job) -> Callable[[], bool]:
    """Whether the spool has files that it has not now."""
    folder = job.state / "spool" / "data"
    before = set(everything(folder))
    return lambda: bool(set(everything(folder)) - before)


@pytest.mark.long("waits for processes to end")
def test_a_killed_run_leaves_no_process(job_in: Callable[[str], Job]) -> None:
    """Spark's JVM and its workers end with the run that started them."""
    job = job_in("p")
    process = job.start("run")
    deadline = time.monotonic() + 120
    while not (job.state / "spool" / "opened.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(5)
    process.kill()
    process.communicate(timeout=60)

    def left() -> str:
        return subprocess.run(["pgrep", "-f", str(job.folder)], capture_output=True, text=True, check=False).stdout

    while left():
        assert time.monotonic() < deadline, left()
        time.sleep(0.2)
