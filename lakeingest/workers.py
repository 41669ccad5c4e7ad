"""The daemon that Spark forks its Python workers from: it imports what they need once, for all of them.

Spark starts `spark.python.daemon.module` with the first Python task. The imports take seconds; here they do not happen
within the read view of the first chunk, and the workers share their memory.
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

    It ends at once where the driver has other sources: their tasks would not be what the driver thinks.
    """
    if os.environ.get(DIGEST, digest()) != digest():
        sys.exit(f"lakeingest: {PACKAGE} has other sources than the driver's lakeingest")
    import_writers()
    if cache.is_complete():
        kernels.compile_kernels()
    read_archives_once()
    gc.freeze()  # a worker collects garbage after each task, and would look through all of this
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
