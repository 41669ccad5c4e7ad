"""The contract of shards (`test_shards`) on catalogs that are servers, and on S3."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError

from lakeingest.config import Target
from tests.lake.iceberg.test_shards import *  # noqa: F403 - the same contract
from tests.lake.iceberg.test_shards import Shard, shards_on
from tests.lake.shown import catalog_of
from tests.servers.catalog_servers import TARGETS

pytestmark = [pytest.mark.long("the contract that the embedded catalog keeps in every run, on other catalogs")]


@pytest.fixture(scope="module", params=TARGETS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A target whose catalog is on a server."""
    name = request.param.replace(" ", "_")
    with TARGETS[request.param](tmp_path_factory.mktemp(name)) as doc:
        doc["catalog"]["name"] = name
        yield Target.model_validate({**doc, "table": "lake.all"})


@pytest.fixture  # type: ignore[no-redef] # in place of the imported one
def shard_of(served: Target, tmp_path: Path) -> Iterator[Callable[..., Shard]]:
    """A function that gives a shard of one table in the lake."""
    yield shards_on(served, tmp_path)
    with catalog_of(served) as catalog:
        for (namespace,) in catalog.list_namespaces():
            if namespace.startswith("lake"):
                with suppress(NoSuchNamespaceError):
                    for name in catalog.list_tables(namespace):
                        catalog.drop_table(name)
                    catalog.drop_namespace(namespace)
