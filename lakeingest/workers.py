"""The daemon from which Spark forks its Python workers. The daemon imports the workers' modules once for all workers.

Spark starts this module (`spark.python.daemon.module`) before the first Python task. The imports take seconds. Because
the daemon makes them before a task begins, no read view of a chunk is open during this time. And the workers share the
memory of the modules.
"""

import gc
import os
import sys

from pyspark.daemon import manager

from lakeingest.lake.formats import import_writers
from lakeingest.mysql.wire import cache, kernels
from lakeingest.pipeline.copying import waves
from lakeingest.pipeline.merging import merge
from lakeingest.spark.package import DIGEST, digest
from lakeingest.spark.scatter import read_archives_once

__all__ = ["merge", "waves"]

PACKAGE = os.path.dirname(__file__)  # noqa: PTH120 - as Python names it


def main() -> None:
    """Load the compiled kernels if all are in the cache, then serve workers. A task compiles a kernel that is missing.

    If the driver has other sources of lakeingest, the daemon ends at once: its tasks would run other code than the
    driver expects.
    """
    if os.environ.get(DIGEST, digest()) != digest():
        sys.exit(f"lakeingest: {PACKAGE} has other sources than the driver's lakeingest")
    import_writers()
    if cache.is_complete():
        kernels.compile_kernels()
    read_archives_once()
    gc.freeze()  # workers collect garbage after each task: so they skip the objects of all these modules
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
