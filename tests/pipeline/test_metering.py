"""What a run takes is counted: processors of all its processes, and traffic with stores."""

import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakeingest.core.figures.bill import Bill
from lakeingest.files import traffic
from lakeingest.files.bucket import Bucket
from lakeingest.files.file import written
from lakeingest.files.local import Local
from lakeingest.files.stored import Stored
from lakeingest.files.traffic import Traffic
from lakeingest.pipeline.run import metering
from lakeingest.pipeline.run.metering import Meter
from lakeingest.pipeline.run.profile import Profile

# A tenth more than the tests ask for: Linux counts in ticks of 10 ms and drops what is not a whole one.
BURN = "import time\nwhile time.process_time() < 0.6: pass\nprint('done', flush=True)\n"
SLEEP = "time.sleep(60)"
PARENT = f"import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', {BURN + SLEEP!r}]); {SLEEP}"


def bill(meter: Meter, profile: Profile | None = None, *, here: bool = True, in_store: bool = False) -> Bill:
    """The bill up to now."""
    return meter.bill(profile or Profile(), here=here, in_store=in_store)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
def test_cpu_is_that_of_all_processes() -> None:
    """Of one that has ended, and of one that a living child has started; those of others do not count."""
    meter = Meter.begin()
    subprocess.run([sys.executable, "-c", BURN], check=True, stdout=subprocess.PIPE)
    ended = bill(meter).cpu_seconds
    assert ended is not None
    assert 0.5 <= ended < 3
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()  # of the grandchild
            both = bill(meter).cpu_seconds
            assert both is not None
            assert both >= ended + 0.5
        finally:
            for pid, (its_parent, _) in metering.processes().items():
                if its_parent == parent.pid:
                    subprocess.run(["kill", "-9", str(pid)], check=True)
            parent.kill()


def test_cpu_is_left_out_by_name_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without the list of processes has no number, and no dollars."""
    monkeypatch.setattr(metering, "processes", dict)
    billed = bill(Meter.begin())
    assert billed.cpu_seconds is None
    assert billed.dollars == {}
    assert billed.not_counted == (metering.NO_PROCESSES, metering.OTHER_FILES)


@pytest.mark.parametrize("here", [True, False])
def test_what_tasks_took_elsewhere_is_added(*, here: bool) -> None:
    """The traffic of every other process, and the CPU seconds of other machines; a task in this process is counted."""
    meter, driver = Meter.begin(), Profile()
    task = Profile()
    with task.stage("write"):
        traffic.count(requests=2, read=3, written=5)
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    driver.add(task)
    other = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own
    other.process = "another machine", 1
    driver.add(other)
    billed = bill(meter, driver, here=here)
    assert (billed.requests, billed.bytes_read, billed.bytes_written) == (4, 6, 10)
    seconds, moved = driver.elsewhere
    assert seconds == pytest.approx(0.2, abs=0.1)
    assert moved == Traffic(2, 3, 5)
    assert (metering.OTHER_MACHINES in billed.not_counted) == (not here)
    assert set(metering.OTHER_CLIENTS) <= set(bill(meter, in_store=True).not_counted)


def test_requests_of_files_are_counted_with_their_bytes() -> None:
    """Each call of the client once, and the contents that went there and back."""
    file = Stored(Bucket("memory://metering"), "folder/a.bin")
    before = traffic.so_far()
    file.write(b"12345")
    assert traffic.so_far() - before == Traffic(1, 0, 5, 1, 5)
    assert file.read() == b"12345"
    assert file.part(1, 3) == b"23"
    assert file.exists()
    assert [found.name for found in file.parent.listed("*")] == ["a.bin"]
    file.delete()
    assert traffic.so_far() - before == Traffic(6, 7, 5, 1, 5)


def test_a_part_of_a_run_has_a_bill_of_its_own() -> None:
    """What tasks in other processes took before the part began is not on it."""
    profile, task = Profile(), Profile()
    with task.stage("write"):
        traffic.count(requests=1, read=2, written=3)
    task.process = "another machine", 1
    profile.add(task)
    meter = Meter.begin(profile)
    profile.add(task)
    billed = bill(meter, profile, here=False)
    assert (billed.requests, billed.bytes_read, billed.bytes_written) == (1, 2, 3)


def test_files_of_a_disk_are_counted(tmp_path: Path) -> None:
    """Documents, and data files of the state and of the tables, with their bytes."""
    before = traffic.so_far()
    Local(tmp_path / "a").put(b"12345")
    Local(tmp_path / "b").write(b"123")
    with written(Local(tmp_path / "c")) as path:
        path.write_bytes(b"1234567")
    durable = pytest.importorskip(
        "lakeingest.lake.iceberg.storage.durable", exc_type=ImportError
    )  # the core has no PyIceberg
    with durable.DurableFileIO({}).new_output((tmp_path / "d").as_uri()).create() as out:
        out.write(b"1")
    assert traffic.so_far() - before == Traffic(files=4, of_files=16)
