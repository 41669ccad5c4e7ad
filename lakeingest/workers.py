"""Where Spark's Python workers come from: what they need is imported once, and each begins at once.

Spark starts `spark.python.daemon.module` with the first Python task, and workers are its forks: imports of seconds
happen once for all of them, not within the first chunk's read view, and their memory is shared.
"""

import gc

from pyspark.daemon import manager

from lakeingest.lake.iceberg import target as iceberg
from lakeingest.mysql.wire import cache, kernels
from lakeingest.pipeline import bootstrap, merge
from lakeingest.spark.scatter import read_archives_once

__all__ = ["bootstrap", "iceberg", "merge"]


def main() -> None:
    """Load what is kept of the kernels, then serve workers; one that is not kept is compiled where it is needed."""
    if cache.is_complete():
        kernels.compile_kernels()
    read_archives_once()
    gc.freeze()  # a worker collects garbage after each task, and would walk all of this
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
