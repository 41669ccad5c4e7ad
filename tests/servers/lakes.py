"""Where the end-to-end tests have their tables and states: folders and SQLite, or what LAKEINGEST_LAKE names.

Its values are the names in `catalog_servers.TARGETS`. Where the tables are in S3 the states are there, too. With
LAKEINGEST_SPARK=standalone Spark's tasks run on a cluster, as other users; that needs tables in S3. LAKEINGEST_MERGE is
`target.merge` of all tests on Iceberg that do not set it themselves, LAKEINGEST_VERSION the version of the format.
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakeingest.config.place import Place
from tests.plugins.quick import QUICK
from tests.servers.catalog_servers import TARGETS
from tests.servers.standalone import Cluster, standalone_cluster

NAME = os.environ.get("LAKEINGEST_LAKE")
MERGE, VERSION = os.environ.get("LAKEINGEST_MERGE"), os.environ.get("LAKEINGEST_VERSION")
ON_CLUSTER = os.environ.get("LAKEINGEST_SPARK") == "standalone"
_clusters: list[Cluster] = []  # the one that runs
_opened: dict[str, Mapping[str, Any]] = {}  # `target` of a pipeline.yml, while its servers run


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Start the servers that LAKEINGEST_LAKE names; jobs and pipelines of the block are on them."""
    if NAME is None:
        yield
        return
    if NAME not in TARGETS:
        raise pytest.UsageError(f"LAKEINGEST_LAKE: {NAME!r} is not known; known are {', '.join(map(repr, TARGETS))}")
    with TARGETS[NAME](folder) as target, ExitStack() as stack:
        _opened["iceberg"] = target
        if ON_CLUSTER:
            _clusters.append(stack.enter_context(standalone_cluster()))
        yield
    _clusters.clear()
    _opened.clear()


def spark_conf() -> dict[str, str]:
    """`spark.conf` of a pipeline.yml: tasks of this machine, or of the cluster that runs."""
    return {**QUICK, **(_clusters[-1].conf if _clusters else {})}


def target_of(lake_format: str) -> Mapping[str, Any]:
    """`target` of a pipeline.yml without the format; no catalog and no warehouse for folders and SQLite."""
    chosen = {"merge": MERGE, "properties": VERSION and {"format-version": VERSION}}
    given = {key: value for key, value in chosen.items() if value is not None and lake_format == "iceberg"}
    return {**_opened.get(lake_format, {}), **given}


def new_state(lake_format: str) -> str | None:
    """The URI of a new folder for a state; None where it is to be a folder of this machine."""
    warehouse = Place.of(target_of(lake_format).get("warehouse", "warehouse"))
    return None if warehouse.scheme is None else f"{warehouse.uri.rpartition('/')[0]}/states/{uuid.uuid4().hex}"


def leave_out(items: list[pytest.Item]) -> None:
    """Skip with a reason what cannot run where LAKEINGEST_LAKE says."""
    for item in items if NAME is not None else ():
        local, parameters = item.get_closest_marker("local"), getattr(item, "callspec", None)
        if local is not None:
            item.add_marker(pytest.mark.skip(f"LAKEINGEST_LAKE: {local.args[0]}"))
        elif parameters is not None and parameters.params.get("lake_format") == "hudi":
            item.add_marker(pytest.mark.skip("LAKEINGEST_LAKE is for Iceberg"))
        elif item.get_closest_marker("e2e") is None and "lake_config" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip("LAKEINGEST_LAKE is for the end-to-end tests"))
