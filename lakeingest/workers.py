"""The daemon from which Spark forks its Python workers: it imports their modules once, for all of them.

Spark starts `spark.python.daemon.module` with the first Python task. The imports take seconds. Because the daemon does
them, no read view of a chunk is open meanwhile, and the workers share the memory of the modules.
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
    """Load the kernels if all of them are in the cache, then serve workers; a missing kernel is compiled on demand.

    If the driver has other sources of lakeingest, the daemon ends at once, because its tasks would do other work.
    """
    if os.environ.get(DIGEST, digest()) != digest():
        sys.exit(f"lakeingest: {PACKAGE} has other sources than the driver's lakeingest")
    import_writers()
    if cache.is_complete():
        kernels.compile_kernels()
    read_archives_once()
    gc.freeze()  # so that workers, which collect garbage after each task, do not look through all these modules
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
