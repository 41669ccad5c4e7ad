"""The lock of a Hudi table's publish: its commit cannot be asserted to stand on another one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakeingest.core.schema import TableId
from lakeingest.lake.refusals import stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_SECONDS = 30.0  # that a publish waits for another one of the table


@contextmanager
def publishing(table: TableId, folder: Path, spark: "SparkSession") -> Iterator[None]:
    """Alone; StaleWriter where another JVM is at it for long. That of a run that was killed ends soon.

    `folder` is the table's; the lock is a file beside it.
    """
    path = folder.with_name(folder.name + ".lakeingest.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    assert spark.sparkContext._jvm is not None  # noqa: S101, SLF001 - the session runs
    channel = spark.sparkContext._jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()  # noqa: SLF001
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while channel.tryLock() is None:
            if time.monotonic() > deadline:
                raise stale(table)
            time.sleep(0.2)
        yield
    finally:
        channel.close()
