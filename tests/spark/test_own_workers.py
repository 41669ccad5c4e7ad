"""The worker processes of a run: their results and errors, and what happens when a process ends."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest

from lakeingest.errors import SchemaChanged, SparkLost
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.own_workers import OwnWorkers
from lakeingest.spark.scatter import prepare, scatter

SECONDS = 20.0
OWNER = """
import sys, threading, time
from lakeingest.files.local import Local
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.own_workers import OwnWorkers
from lakeingest.workers import import_all
nursery = Nursery.forked(import_all) if sys.argv[2] == "fork" else None
workers = OwnWorkers(2, Local(sys.argv[1]), nursery)
assert nursery in (None, workers._nursery)
print(workers.prepare(abs, [1, -2], 2)(), flush=True)
threading.Thread(target=workers.prepare(time.sleep, [600], 1), daemon=True).start()
time.sleep(0.5)  # the task has begun
print(workers._nursery.pid, flush=True)
sys.stdin.read()
workers.close()
"""
STARTING = """
import pathlib, sys
from lakeingest.files.local import Local
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.own_workers import OwnWorkers
from lakeingest.workers import import_all
workers = OwnWorkers(1, Local(sys.argv[1]), Nursery.forked(import_all) if sys.argv[2] == "fork" else None)
work = workers.prepare(pathlib.Path.touch, [pathlib.Path(sys.argv[1], "touched")], 1)
workers._workers[0].send_bytes(work._tasks[0])
print(workers._nursery.pid, flush=True)
"""

WAITING = """
import os, signal, sys
from lakeingest.spark.nursery import Nursery
nursery = Nursery.forked(lambda: None)
os.kill(nursery.pid, signal.SIGTERM)
print(nursery.pid, os.getpgid(nursery.pid) == nursery.pid, flush=True)
sys.stdin.read()
nursery.end()
"""

from_each_nursery = pytest.mark.parametrize("nursery", ["fork", "new process"])


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnWorkers]:
    """Two workers for all tests that do not end them."""
    workers = OwnWorkers(2, tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


@pytest.fixture
def mortal_workers(tmp_path: Path) -> Iterator[OwnWorkers]:
    """Two workers of a test's own."""
    workers = OwnWorkers(2, tmp_path)
    yield workers
    workers.close()


def wait_and_tell(seconds: float) -> tuple[int, float, float]:
    """The process that worked, and when it began and ended."""
    began = time.monotonic()
    time.sleep(seconds)
    return os.getpid(), began, time.monotonic()


def refuse_one(number: int) -> int:
    """An error of ours for 1, another error for 2, one that cannot be pickled for 3."""
    if number == 1:
        raise SchemaChanged("shop.orders: changed")
    if number == 2:
        raise OSError(28, "No space left on device")
    if number == 3:
        raise ValueError(threading.Lock())
    return number


def die(_: int) -> NoReturn:
    """End this process, as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def is_running(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def soon(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, for some seconds."""
    until = time.monotonic() + SECONDS
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)


def soon_ended(pids: list[int]) -> bool:
    """Whether all processes end within some seconds."""
    soon(lambda: not any(map(is_running, pids)))
    return not any(map(is_running, pids))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def test_results_come_in_the_order_of_the_descriptors(workers: OwnWorkers) -> None:
    """Several processes work at the same time, and none of them is the run's own."""
    results = scatter(workers, wait_and_tell, [0.5, 0.1, 0.1, 0.1], 2)
    assert [round(end - begin, 1) for _, begin, end in results] == [0.5, 0.1, 0.1, 0.1]
    assert os.getpid() not in {pid for pid, *_ in results}
    assert len({pid for pid, *_ in results}) == 2


def test_no_more_tasks_run_at_once_than_allowed(workers: OwnWorkers) -> None:
    """One at a time, each begins when the one before has ended."""
    results = scatter(workers, wait_and_tell, [0.1] * 4, 1)
    assert all(first[2] <= second[1] for first, second in pairwise(results))


def test_descriptors_are_pickled_at_once(workers: OwnWorkers) -> None:
    """The caller may change what the descriptors refer to, while another thread runs the work."""
    shared = {"known": 1}
    work = prepare(workers, dict.copy, [shared], 2)
    shared["later"] = 2
    assert BackgroundJob(workers, work).result() == [{"known": 1}]


def test_errors_come_back_as_they_were(workers: OwnWorkers) -> None:
    """Their classes decide what the run does. The trace of the worker is added to an unexpected one."""
    with pytest.raises(SchemaChanged, match="orders: changed"):
        scatter(workers, refuse_one, [0, 1, 4], 2)
    with pytest.raises(OSError, match="No space left") as caught:
        scatter(workers, refuse_one, [2], 2)
    assert "refuse_one" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="ValueError: <unlocked"):
        scatter(workers, refuse_one, [3], 2)
    assert scatter(workers, refuse_one, [0, 4], 2) == [0, 4]


def test_the_error_of_a_task_is_raised_although_it_cancels_an_earlier_one(
    workers: OwnWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may have taken the earlier task, and begin it only after the later one has failed."""
    work = workers.prepare(refuse_one, [0, 1], 2)
    first, _ = work._tasks  # noqa: SLF001 - no other way to hold up one of its threads
    answer = work._answer  # noqa: SLF001

    def late(task: bytes) -> int:
        if task == first:
            soon(work._is_cancelled.is_set)  # noqa: SLF001
        return answer(task)

    monkeypatch.setattr(work, "_answer", late)
    with pytest.raises(SchemaChanged):
        work()


def test_cancelled_work_begins_no_more_tasks(workers: OwnWorkers) -> None:
    """The tasks that run are waited for; the workers then do other work."""
    scatter(workers, abs, [1], 2)  # the workers have started
    job = BackgroundJob(workers, prepare(workers, wait_and_tell, [0.5] * 100, 2))
    job.cancel()
    assert job.is_done
    with pytest.raises(RuntimeError, match="cancelled"):
        job.result()
    assert scatter(workers, abs, [-1], 2) == [1]


def test_a_killed_worker_is_a_loss_that_has_a_name(mortal_workers: OwnWorkers) -> None:
    """Whoever waits for a worker hears of it. Nobody waits forever."""
    for task in (die, abs):
        with pytest.raises(SparkLost, match="run the same command again"):
            scatter(mortal_workers, task, [1, 2, 3, 4], 2)


@from_each_nursery
@pytest.mark.long("another way to start the same workers", turn="nursery")
def test_all_processes_end_with_the_run(tmp_path: Path, nursery: str) -> None:
    """A run closes them, or is killed. They end in the middle of a task, too, which may have a view of the source."""
    for how in ("closed", "killed"):
        owner = [sys.executable, "-c", OWNER, str(tmp_path), nursery]
        with subprocess.Popen(owner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "[1, 2]\n"
            parent = int(process.stdout.readline())
            started = [parent, *children(parent)]
            assert len(started) == 3
            process.kill() if how == "killed" else process.stdin.close()
            assert soon_ended(started), how


def test_a_fork_that_waits_ends_only_with_the_run() -> None:
    """SIGTERM does not end it, and Ctrl-C does not reach it: it has its own group of processes."""
    for how in ("closed", "killed"):
        command = [sys.executable, "-c", WAITING]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            pid, is_in_own_group = process.stdout.readline().split()
            assert is_in_own_group == "True"
            time.sleep(0.2)
            assert is_running(int(pid))
            process.kill() if how == "killed" else process.stdin.close()
            assert soon_ended([int(pid)]), how


def test_a_process_with_threads_is_not_forked() -> None:
    """The fork would have only one of the threads, and the locks that the others hold."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert Nursery.forked(lambda: None) is None
    finally:
        done.set()
        thread.join()


STORE_FIRST = """
import obstore, sys
from lakeingest.files.local import Local
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.own_workers import OwnWorkers
from lakeingest.workers import import_all
from obstore.store import LocalStore
obstore.put(LocalStore(sys.argv[1]), "a", b"1")
nursery = Nursery.forked(import_all)
workers = OwnWorkers(1, Local(sys.argv[1]), nursery)
print(nursery, workers.prepare(abs, [-1], 1)())
workers.close()
"""


def test_a_process_in_which_a_store_was_opened_is_not_forked(tmp_path: Path) -> None:
    """Python knows nothing of the threads of the store's client. The workers are forked by a new process."""
    done = subprocess.run(
        [sys.executable, "-c", STORE_FIRST, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "None [1]\n"), done.stderr


READ_FIRST = """
import sys, time
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lakeingest.spark import nursery
np.ones((500, 500)) @ np.ones((500, 500))
pq.write_table(pa.table({"a": range(100_000), "b": range(100_000)}), sys.argv[1])
pq.read_table(sys.argv[1])
took = []
for _ in range(20):
    began = time.perf_counter()
    nursery._has_foreign_threads()
    took.append(time.perf_counter() - began)
forked = nursery.Nursery.forked(lambda: None)
print(forked is not None, min(took) < 0.001)
forked.end()
"""


def test_threads_of_pyarrow_and_numpy_do_not_prevent_a_fork(tmp_path: Path) -> None:
    """A fork has pools of its own. To look at the threads takes less than a millisecond."""
    done = subprocess.run(
        [sys.executable, "-c", READ_FIRST, str(tmp_path / "rows.parquet")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


def test_a_machine_that_has_no_memory_for_a_fork_does_without_it() -> None:
    """The run starts a new process if it needs workers at all, and still obeys SIGTERM."""
    code = """
import os, signal
from lakeingest.spark.nursery import Nursery
def fork():
    raise OSError(12, "Cannot allocate memory")
os.fork = fork
print(Nursery.forked(lambda: None), signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "None set()\n", done.stderr


@from_each_nursery
@pytest.mark.long("another way to start the same workers", turn="nursery")
def test_no_task_begins_after_the_run_has_ended(tmp_path: Path, nursery: str) -> None:
    """Also one that the run has sent to a worker that was about to start."""
    owner = [sys.executable, "-c", STARTING, str(tmp_path), nursery]
    parent = int(subprocess.run(owner, capture_output=True, text=True, check=True).stdout)
    assert soon_ended([parent])
    assert not (tmp_path / "touched").exists()


def test_a_worker_survives_the_signal_that_asks_a_run_to_end(mortal_workers: OwnWorkers) -> None:
    """A scheduler sends it to all processes. The run ends at its next commit, which needs the workers."""
    [(worker, *_)] = scatter(mortal_workers, wait_and_tell, [0.0], 1)
    os.kill(worker, signal.SIGTERM)
    assert scatter(mortal_workers, abs, [-1, -2, -3], 2) == [1, 2, 3]
    mortal_workers.close()
    assert soon_ended([worker])


def test_nothing_of_the_current_folder_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file there with the name of a module is not run."""
    (tmp_path / "pyarrow.py").write_text("raise SystemExit('taken from the current folder')")
    (tmp_path / "log").mkdir()
    monkeypatch.chdir(tmp_path)
    workers = OwnWorkers(1, tmp_path / "log")
    assert scatter(workers, len, [pickle.dumps(1)], 1)
    workers.close()


def hold_and_free(megabytes: int) -> int:
    """Use so much memory in small pieces, and free it. Returns the megabytes that the process held before."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    arrays = [pa.array(np.full(1 << 14, number, np.int64)) for number in range(8 * megabytes)]
    copies = [pa.concat_arrays([array, array.slice(1)]) for array in arrays[: 4 * megabytes]]
    del arrays, copies
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.long("takes hundreds of megabytes of memory")
def test_a_worker_gives_memory_back_that_its_tasks_have_freed(tmp_path: Path) -> None:
    """Otherwise it holds what its largest tasks have needed, each at another place, until the run ends."""
    workers = OwnWorkers(1, tmp_path)
    try:
        held = scatter(workers, hold_and_free, [600, 600, 600, 1], 1)
    finally:
        workers.close()
    assert max(held[1:]) < 384, held
