"""The lock of a Hudi table's publish, because a commit of Hudi cannot assert the commit that it builds on.

It is a lock of a file, which a disk has and an object store has not. In a store only the lease of the pipeline keeps
runs apart. If a run loses the lease within a publish, Hudi decides: the next writer rolls back an incomplete commit,
and a commit that was rolled back cannot be completed. (Hudi's own lock in a store, StorageBasedLockProvider, lacks its
client in the bundle.)
"""

import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeingest.core.schema import TableId
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.refusals import stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_SECONDS = 30.0  # how long a publish waits for another one of the table


@contextmanager
def publishing(table: TableId, folder: File, spark: "SparkSession | None" = None) -> Iterator[None]:
    """Hold the lock in the block. Raises StaleWriter where another process has it for long.

    `folder` is the table's; the lock is a file beside it, if that is a disk. The process that commits holds it: the JVM
    of the session, or this process. The lock of a killed process is released.
    """
    if not isinstance(folder, Local):
        yield
        return
    path = folder.with_name(folder.name + ".lakeingest.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    file, is_taken = _of_this_process(path) if spark is None else _of_the_jvm(path, spark)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not is_taken():
            if time.monotonic() > deadline:
                raise stale(table)
            time.sleep(0.2)
        yield
    finally:
        file.close()


def _of_the_jvm(path: Path, spark: "SparkSession") -> tuple[Any, Callable[[], bool]]:
    """The open file, and a function that takes the lock for the JVM; it returns whether that succeeded."""
    assert spark.sparkContext._jvm is not None  # noqa: S101, SLF001 - the session runs
    channel = spark.sparkContext._jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()  # noqa: SLF001
    return channel, lambda: channel.tryLock() is not None


def _of_this_process(path: Path) -> tuple[Any, Callable[[], bool]]:
    """The open file, and a function that takes the lock for this process, of the same kind as Java's."""
    file = path.open("ab")

    def is_taken() -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            return False
        return True

    return file, is_taken
