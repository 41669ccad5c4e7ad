import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakeingest.demo.s3 import LocalS3
from lakeingest.errors import LeaseHeld, LeaseLost, StorageFailed
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from lakeingest.state import lease
from lakeingest.state.lease import Owner, held, is_held
from tests.faults.clocks import clock_ahead
from tests.faults.losing import losing
from tests.servers.stores import in_memory, stored_in

ROOT = Path(__file__).parents[2]
AGED = 31.0
ROUNDS, STORED_ROUNDS = 150, 51

# Told a folder and a moment, it takes the lease there; with each further line it says whether it has it still.
_RUN = """
import pickle, sys, time
from lakeingest.files import file as files
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.stored import Stored
from lakeingest.state import lease
from lakeingest.errors import LakeIngestError
lease.RENEW_SECONDS, lease.VOID_SECONDS = map(float, sys.argv[1:])
for line in sys.stdin:
    folder, moment = line.split()
    while time.time() < float(moment):
        pass
    try:
        with lease.held(pickle.loads(bytes.fromhex(folder))) as mine:
            print("held", flush=True)
            while sys.stdin.readline().strip() == "still?":
                mine.assert_held()
                print("still", flush=True)
        print("released", flush=True)
    except LakeIngestError as error:
        print(type(error).__name__, error, flush=True)
"""


class Run:
    """A process that takes leases."""

    def __init__(self, renew: float, void: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(renew), str(void)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def tell(self, text: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")

    def says(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def take(self, folder: File, moment: float = 0) -> None:
        """Let it take the lease of a folder."""
        self.tell(f"{pickle.dumps(folder).hex()} {moment}")

    def still(self) -> str:
        """Ask it whether it has its lease still."""
        self.tell("still?")
        return self.says()


@pytest.fixture
def start() -> Iterator[Callable[..., Run]]:
    """Call it with the two times, or without: a process that takes leases."""
    started: list[Run] = []

    def run(renew: float = lease.RENEW_SECONDS, void: float = lease.VOID_SECONDS) -> Run:
        started.append(Run(renew, void))
        return started[-1]

    yield run
    for one in started:
        one.process.kill()
        one.process.communicate()


def write(folder: Path, owner: Owner, age: float = 0) -> None:
    """Leave the lease of some owner, last renewed so many seconds ago."""
    path = folder / "lease.json"
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(asdict(owner)))
    os.utime(path, (time.time() - age,) * 2)


def ended() -> Owner:
    """An owner on this machine whose process is gone."""
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return replace(Owner.of_this_process(), pid=int(process.stdout))


def can_be_taken(folder: File) -> bool:
    """Whether a run could begin now."""
    try:
        with held(folder):
            return True
    except LeaseHeld:
        return False


def test_a_lease_has_one_holder_at_a_time(shared_folder: File, start: Callable[..., Run]) -> None:
    """The error of the second names the first; once the first has released it, nothing of it is left in the way."""
    first, second = start(), start()
    first.take(shared_folder / "state")
    assert first.says() == "held"
    second.take(shared_folder / "state")
    refused = second.says()
    assert refused.startswith(
        f"LeaseHeld another run of this pipeline is at work: pid {first.pid} on {os.uname()[1]}, "
    )
    assert f"since {time.strftime('%Y-%m-%d', time.gmtime())}" in refused
    assert "run the same command again" in refused
    assert first.still() == "still"
    first.tell("release")
    assert first.says() == "released"
    assert not is_held(shared_folder / "state")
    second.take(shared_folder / "state")
    assert second.says() == "held"


def test_one_process_cannot_hold_the_lease_twice(shared_folder: File) -> None:
    """Two runs in one notebook are two runs."""
    with held(shared_folder) as mine:
        with pytest.raises(LeaseHeld, match=f"pid {os.getpid()} "), held(shared_folder):
            pass
        mine.assert_held()
    with held(shared_folder) as again:
        again.assert_held()


@pytest.mark.parametrize("reaped", [True, False])
def test_the_next_run_takes_the_lease_of_a_killed_run_at_once(
    shared_folder: File, start: Callable[..., Run], *, reaped: bool
) -> None:
    """`kill -9` leaves a fresh lease: it is void, also while the dead process waits for its parent."""
    first = start()
    first.take(shared_folder)
    assert first.says() == "held"
    first.process.kill()
    if reaped:
        first.process.wait()
    else:
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    with held(shared_folder) as mine:
        mine.assert_held()


@pytest.mark.long("waits, in one of the places in turn", turn="shared_folder")
def test_a_lease_that_is_renewed_stays(
    shared_folder: File, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three void times later it has its holder still."""
    monkeypatch.setattr(lease, "VOID_SECONDS", 0.5)
    first = start(0.05, 0.5)
    first.take(shared_folder)
    assert first.says() == "held"
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert not can_be_taken(shared_folder)
        assert first.still() == "still"


@pytest.mark.long("waits, in one of the places in turn", turn="shared_folder")
def test_a_paused_run_loses_its_lease(
    shared_folder: File, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped for longer than the void time, it is followed; awake again, it may not commit nor free the new lease."""
    monkeypatch.setattr(lease, "VOID_SECONDS", 0.5)
    first = start(0.05, 0.5)
    first.take(shared_folder)
    assert first.says() == "held"
    os.kill(first.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    assert not can_be_taken(shared_folder)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    while time.monotonic() < stopped + 30:
        try:
            with held(shared_folder) as mine:
                assert time.monotonic() - stopped > 0.4
                os.kill(first.pid, signal.SIGCONT)
                assert first.still().startswith("LeaseLost")
                first.take(shared_folder)  # it has left the lease: what it finds is ours
                assert f"pid {os.getpid()} " in first.says()
                mine.assert_held()
                return
        except LeaseHeld:
            time.sleep(0.01)
    pytest.fail("nobody could follow")


@pytest.mark.long("waits, in one of the places in turn", turn="shared_folder")
def test_a_paused_run_stops_even_if_no_other_run_took_over(shared_folder: File, start: Callable[..., Run]) -> None:
    """It cannot know what happened meanwhile; the next one begins at once."""
    first = start(0.05, 0.3)
    first.take(shared_folder)
    assert first.says() == "held"
    os.kill(first.pid, signal.SIGSTOP)
    time.sleep(0.6)
    os.kill(first.pid, signal.SIGCONT)
    time.sleep(0.2)  # the renewal would come first
    lost = first.still()
    assert lost.startswith("LeaseLost this run was paused")
    assert "run the same command again" in lost
    assert can_be_taken(shared_folder)


@pytest.mark.parametrize("takers", [2, 4])
@pytest.mark.long("more takers", only=("4",))
def test_exactly_one_run_takes_an_expired_lease(tmp_path: Local, start: Callable[..., Run], takers: int) -> None:
    """Of all that reach for it at one moment one holds it, and holds it still when the others have given up."""
    runs, dead = [start() for _ in range(takers)], ended()
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        write(folder, dead, age=AGED * (number % 2))
        moment = time.time() + 0.005
        for run in runs:
            run.take(folder, moment)
        said = [run.says() for run in runs]
        assert sorted(line.partition(" ")[0] for line in said) == ["LeaseHeld"] * (takers - 1) + ["held"]
        winner = runs[said.index("held")]
        assert all(f"pid {winner.pid} " in line for line in said if line != "held")
        assert winner.still() == "still"
        winner.tell("release")
        assert winner.says() == "released"
        assert [path.name for path in folder.iterdir()] == ["lease.lock"]


def test_a_lease_of_a_time_that_is_yet_to_come_is_not_held(tmp_path: Local) -> None:
    """A clock that was ahead renewed it, and was set right since: whoever is at work has renewed it again."""
    elsewhere = replace(Owner.of_this_process(), host="elsewhere")
    write(tmp_path, elsewhere, age=-3600)
    assert not is_held(tmp_path)
    with held(tmp_path):
        assert is_held(tmp_path)


def test_a_clock_that_differs_from_that_of_the_disk_takes_no_lease(tmp_path: Local) -> None:
    """The disk says when a lease was renewed, so it also says what time it is."""
    with held(tmp_path):
        for by in (timedelta(minutes=5), timedelta(days=3), timedelta(minutes=-5)):
            with clock_ahead(by):
                assert is_held(tmp_path)
                with pytest.raises(LeaseHeld), held(tmp_path):
                    pass


@pytest.mark.parametrize("place", ["host", "boot"])
def test_the_lease_of_a_process_that_cannot_be_seen_expires_by_time_alone(tmp_path: Local, place: str) -> None:
    """On another machine, before a restart or in another container its number says nothing: only age does."""
    here = ended()
    elsewhere = replace(here, host="another") if place == "host" else replace(here, boot="another")
    write(tmp_path, elsewhere)
    assert not can_be_taken(tmp_path)
    write(tmp_path, elsewhere, age=AGED)
    assert can_be_taken(tmp_path)


def test_a_reused_process_number_is_no_holder(tmp_path: Local, start: Callable[..., Run]) -> None:
    """The number is of a process that started at another time; with its own time it is the holder."""
    first = start()
    first.take(tmp_path / "own")
    assert first.says() == "held"
    owner = Owner.from_json(json.loads((tmp_path / "own" / "lease.json").read_bytes()))
    assert owner.started is not None
    write(tmp_path / "same", owner)
    write(tmp_path / "other", replace(owner, started=owner.started - 1))
    assert not can_be_taken(tmp_path / "same")
    assert can_be_taken(tmp_path / "other")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b'{"token": "a", "pid": "x"}', b"\xff\xfe"])
def test_an_unreadable_lease_is_judged_by_its_age(tmp_path: Local, content: bytes) -> None:
    """A crash of the machine may leave such a file: it is neither trusted nor in the way for ever."""
    path = tmp_path / "lease.json"
    path.write_bytes(content)
    with pytest.raises(LeaseHeld, match="does not say which"), held(tmp_path):
        pass
    os.utime(path, (time.time() - AGED,) * 2)
    with held(tmp_path) as mine:
        mine.assert_held()


@pytest.mark.parametrize("loss", ["replaced", "emptied", "removed"])
def test_a_lease_that_was_taken_away_is_lost(tmp_path: Local, loss: str) -> None:
    """Whatever stands there instead: the holder stops, and leaves it alone."""
    path, other = tmp_path / "lease.json", replace(Owner.of_this_process(), token="another")
    with held(tmp_path) as mine:
        mine.assert_held()
        if loss == "replaced":
            write(tmp_path, other)
        elif loss == "emptied":
            path.write_text("")
        else:
            path.unlink()
        with pytest.raises(LeaseLost, match="no longer this run's"):
            mine.assert_held()
    assert path.exists() == (loss != "removed")


def test_a_folder_that_cannot_be_used_needs_a_person(tmp_path: Local) -> None:
    """It is named, with what is wrong."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match=r"state folder cannot be used: .*file.*: Not a directory"):
        held(tmp_path / "file" / "state").__enter__()
    (tmp_path / "lease.json").mkdir()
    with pytest.raises(StorageFailed, match=r"lease\.json: Is a directory"):
        held(tmp_path).__enter__()


def left_by(folder: Stored, owner: Owner, **more: object) -> None:
    """Leave the lease of some owner in a store, renewed now."""
    assert (folder / "lease.json").create({**asdict(owner), "epoch": 4, "free": False, **more})


@pytest.mark.long("many rounds of two processes")
def test_exactly_one_run_takes_a_lease_in_a_store(s3: LocalS3, start: Callable[..., Run]) -> None:
    """It is new, free, or of a process that has ended; the epoch is that of one holder."""
    runs, dead, folder = [start() for _ in range(2)], ended(), stored_in(s3)
    for number in range(STORED_ROUNDS):
        one = folder / str(number)
        if number % 3:
            left_by(one, dead, free=number % 3 == 1)
        moment = time.time() + 0.005
        for run in runs:
            run.take(one, moment)
        said = [run.says() for run in runs]
        assert sorted(line.partition(" ")[0] for line in said) == ["LeaseHeld", "held"]
        winner = runs[said.index("held")]
        assert files.document(one / "lease.json")["epoch"] == (5 if number % 3 else 1)
        assert winner.still() == "still"
        winner.tell("release")
        assert winner.says() == "released"
        assert not is_held(one)


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_a_lease_in_a_store_expires_by_the_clock_of_the_store(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a process on another machine. This machine's clock says nothing, and an unreadable one expires, too."""
    folder = in_memory() if kind == "memory" else stored_in(request.getfixturevalue("s3"))
    left_by(folder, replace(ended(), host="another"))
    (folder / "unreadable" / "lease.json").put(b"\xff{")
    monkeypatch.setattr(lease, "VOID_SECONDS", 1.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    for one in (folder, folder / "unreadable"):
        assert is_held(one)
        with pytest.raises(LeaseHeld, match="does not say which" if one != folder else "on another"), held(one):
            pass
    time.sleep(lease.VOID_SECONDS + lease.MARGIN_SECONDS + 1)
    for one in (folder, folder / "unreadable"):
        assert not is_held(one)
        with held(one) as mine:
            mine.assert_held()
        with held(one):
            pass
    assert files.document(folder / "lease.json")["epoch"] == 6
    assert [file.name for file in folder.listed("*")] == ["lease.json"]  # no probe of the clock is left


@pytest.mark.parametrize("epoch", [None, "x", [7]])
def test_a_damaged_epoch_is_in_the_way_of_no_run(epoch: object) -> None:
    """The lease was given back, so the next run takes it, and counts anew."""
    folder = in_memory()
    doc = {**asdict(Owner.of_this_process()), "epoch": epoch, "free": True}
    (folder / "lease.json").put_document(doc)
    with held(folder) as mine:
        mine.assert_held()
    assert files.document(folder / "lease.json")["epoch"] == 1


def test_a_lease_in_a_store_that_another_run_has_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder neither renews nor frees what is not its own any more."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    folder = in_memory()
    other = {**asdict(replace(Owner.of_this_process(), host="another")), "epoch": 9, "free": False}
    with held(folder) as mine:
        mine.assert_held()
        (folder / "lease.json").put_document(other)
        with pytest.raises(LeaseLost, match="another run took over"):
            mine.assert_held()
        time.sleep(0.2)
    assert files.document(folder / "lease.json") == other


@pytest.mark.long("takes seconds")
def test_a_lease_stays_when_answers_of_the_store_are_lost(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that was done and never answered is known as ours, and so is the taking of the lease."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    with losing(s3.endpoint, 0.3) as endpoint:
        folder = stored_in(s3, endpoint)
        for _ in range(5):
            with held(folder) as mine:
                time.sleep(0.5)
                mine.assert_held()
        assert files.document(folder / "lease.json")["epoch"] == 5
