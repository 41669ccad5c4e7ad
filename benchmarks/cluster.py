"""The same work on a local Spark and on a Spark cluster; `python -m benchmarks.cluster` prints the ratios.

Both are on this machine, use two of its cores, and have tables and state in S3 with a REST catalog. The cluster has two
workers, each of another user, who shares nothing with the driver. CPU seconds are those of the driver and what it has
started, so the executors of the cluster are not in them.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.source import serve_orders
from benchmarks.stores import Work, compare, in_store
from lakeingest.demo.rest_catalog import local_rest_catalog
from lakeingest.demo.s3 import local_s3
from tests.standalone import standalone_cluster


def main() -> None:
    """Compare them."""
    work = Work.asked("benchmarks.cluster", __doc__)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        server = stack.enter_context(serve_orders(folder, work.rows, {"innodb_buffer_pool_size": "1G"}))
        store = stack.enter_context(local_s3(folder / "s3"))
        uri = stack.enter_context(local_rest_catalog(folder / "rest", store=store))
        cluster = stack.enter_context(standalone_cluster())

        def local(name: str) -> dict[str, Any]:
            return in_store(store, uri, name)

        def distributed(name: str) -> dict[str, Any]:
            return {**in_store(store, uri, name), "spark": {"conf": cluster.conf}}

        compare(work, server, folder, {"local": local, "cluster": distributed})


if __name__ == "__main__":
    main()
