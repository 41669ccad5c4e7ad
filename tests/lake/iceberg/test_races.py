"""Two processes that commit to one table at the same time, on each catalog: one wins, and nothing is lost."""

import itertools
import multiprocessing
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Target
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, is_marked
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake
from tests.servers.catalog_servers import TARGETS

ROUNDS = 10
pytestmark = pytest.mark.long("what runs on SQLite", only=tuple(TARGETS))
_numbers = itertools.count(1)


@contextmanager
def sqlite(folder: Path) -> Iterator[dict[str, Any]]:
    """The embedded catalog."""
    yield {"warehouse": str(folder / "warehouse")}


@pytest.fixture(params=["sqlite", *TARGETS])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    """A table on this catalog."""
    opened: AbstractContextManager[dict[str, Any]] = {"sqlite": sqlite, **TARGETS}[request.param](tmp_path)
    with opened as doc:
        settings = Target.model_validate(doc)
        schema = TableSchema(TableId("race", f"t{next(_numbers)}"), PLAIN, ("id",))
        yield Lake(settings, lambda: IcebergTarget(settings, open_spark=lambda: spark), spark, schema, BOUNDARIES)


def _race(settings: Target, schema: TableSchema, barrier: Barrier, won: Any) -> None:
    """Commit whenever the other does; on a refusal look again."""
    target, wins, table = IcebergTarget(settings), 0, schema.table
    for _ in range(ROUNDS):
        staged = target.recover(table)
        assert staged is not None
        barrier.wait(60)
        try:
            target.mark(staged, staged.progress)
            wins += 1
        except StaleWriter:
            pass
        barrier.wait(120)
    staged = target.recover(table)
    assert staged is not None
    barrier.wait(60)
    try:
        target.publish(staged, schema, {})
    except StaleWriter:
        wins += 1000
    won.put(wins)


@pytest.mark.long("takes seconds")
def test_of_two_commits_at_the_same_time_one_takes_effect(lake: Lake) -> None:
    """Each round has one winner; the first publish has one, or both, for it is of the same commit."""
    staged = lake.copied((1, "a"))
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    context = multiprocessing.get_context("spawn")
    barrier, won = context.Barrier(2), context.Queue()
    runs = [context.Process(target=_race, args=(lake.settings, lake.schema, barrier, won)) for _ in range(2)]
    for run in runs:
        run.start()
    wins = [won.get(timeout=400) for _ in runs]
    for run in runs:
        run.join(60)
    assert sum(one % 1000 for one in wins) == ROUNDS
    assert max(one // 1000 for one in wins) <= 1
    assert sum(one // 1000 for one in wins) <= 1
    found = lake.loaded()
    assert found.visible
    table = open_catalog(lake.settings).load_table(lake.settings.identifier(lake.table))
    assert table.metadata.refs[MAIN].snapshot_id == table.metadata.refs[STAGING].snapshot_id
    marked = [one for one in table.metadata.snapshots if is_marked(one)]
    assert len(marked) == 3 + ROUNDS  # the creation, the wave, the mark
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": "a"}]
