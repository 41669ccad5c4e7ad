"""The processes from which Python workers are forked: Spark's daemon, and the nursery of a run's own workers.

Each of the two processes imports the modules once, before it forks the first worker, because the imports take seconds.
So no worker imports modules while the read view of its chunk is open, and the workers share the memory of the modules.
Spark starts the daemon (the setting `spark.python.daemon.module`) with the first Python task.
"""

import gc
import os
import sys

from lakeingest.lake.formats import import_writers
from lakeingest.late_imports import import_now
from lakeingest.mysql.wire import cache, kernels
from lakeingest.pipeline.copying import waves
from lakeingest.pipeline.merging import merge
from lakeingest.spark.package import DIGEST, digest
from lakeingest.spark.scatter import read_archives_once

__all__ = ["merge", "waves"]  # modules that are imported only because tasks need them

PACKAGE = os.path.dirname(__file__)  # noqa: PTH120 - only for a message


def main() -> None:
    """Serve Spark's workers.

    If the daemon does not have the same source code of lakeingest as the driver, the daemon ends at once. Otherwise
    its tasks would run other code than the driver expects.
    """
    from pyspark.daemon import manager

    if os.environ.get(DIGEST, digest()) != digest():
        sys.exit(f"lakeingest: {PACKAGE} has other sources than the driver's lakeingest")
    import_all()
    read_archives_once()
    gc.freeze()  # workers collect garbage after each task: so they skip the objects of all these modules
    manager()  # type: ignore[no-untyped-call]


def import_all() -> None:
    """Import what tasks need.

    The kernels are loaded only if the cache has all of them. Otherwise each task compiles the kernels that it needs.
    """
    import_writers()
    import_now()
    if cache.is_complete():
        kernels.compile_kernels()


if __name__ == "__main__":
    main()
