"""The same work on a local Spark and on a Spark cluster; `python -m benchmarks.cluster` prints the ratios.

Both are on this machine, use two of its cores, and have tables and state in S3 with a REST catalog. The cluster has two
workers, each of another user, who shares nothing with the driver. CPU seconds are those of the driver and what it has
started, so the executors of the cluster are not in them.
"""

from typing import Any

from benchmarks.stores import Work, compare, served
from tests.servers.standalone import standalone_cluster


def main() -> None:
    """Compare them."""
    work = Work.asked("benchmarks.cluster", __doc__)
    with served(work.rows) as (folder, server, in_s3), standalone_cluster() as cluster:

        def distributed(name: str) -> dict[str, Any]:
            return {**in_s3(name), "spark": {"conf": cluster.conf}}

        compare(work, server, folder, {"local": in_s3, "cluster": distributed})


if __name__ == "__main__":
    main()
