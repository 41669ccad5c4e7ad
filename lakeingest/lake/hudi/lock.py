"""A lock that only one publish of a Hudi table holds at a time: Hudi itself would not refuse the later of two commits.

The lock is a file lock. Object stores have no file locks: there, only the lease keeps two runs of the pipeline apart.
If a run loses the lease within a publish, Hudi's protocol protects the table: the next writer rolls back an incomplete
commit, and a commit that was rolled back cannot be completed. (Hudi's own lock in a store, StorageBasedLockProvider,
needs a client that the bundle does not have.)
"""

import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.refusals import stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_SECONDS = 30.0  # how long a publish waits for another publish of the table


@contextmanager
def publish_lock(table: TableId, folder: File, spark: "SparkSession | None" = None) -> Iterator[None]:
    """Hold the lock of the table in the block. Raises StaleWriter if another process holds it for LOCK_SECONDS.

    `folder` is the table's folder, and the lock file is beside it. In an object store there is no lock. The process
    that commits holds the lock: the JVM of the session `spark` or, if `spark` is None, this process. The kernel
    releases the lock of a killed process.
    """
    if not isinstance(folder, Local):  # a store has no locks
        yield
        return
    path = folder.with_name(folder.name + ".lakeingest.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    # closing the file releases the lock
    file, try_lock = _lock_of_this_process(path) if spark is None else _lock_of_jvm(path, spark)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not try_lock():
            if time.monotonic() > deadline:
                raise stale(table)
            time.sleep(0.2)
        yield
    finally:
        file.close()


def _lock_of_jvm(path: Path, spark: "SparkSession") -> tuple[Any, Callable[[], bool]]:
    """The lock file, opened by the JVM, and a function that tries to take the lock and returns whether it did."""
    assert spark.sparkContext._jvm is not None  # noqa: S101, SLF001 - the session runs
    channel = spark.sparkContext._jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()  # noqa: SLF001
    return channel, lambda: channel.tryLock() is not None


def _lock_of_this_process(path: Path) -> tuple[Any, Callable[[], bool]]:
    """The lock file, opened by this process, and a function that tries to take the lock and returns whether it did.

    The function takes a lock of the kind that Java takes (`lockf`), so that this process and a JVM exclude each other.
    """
    file = path.open("ab")

    def try_lock() -> bool:
        """Take the lock if no other process holds it. Returns whether this process has it now."""
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN}:  # another process holds the lock
                return False
            raise
        return True

    return file, try_lock
