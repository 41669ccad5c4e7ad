"""A lifted copy is staging's alone until its publish, whatever others do to the table in between."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.steps import UUID, Lake, Raw

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", Kind.INT32, source_type("int"), nullable=False),
    Column("v", Kind.INT32, source_type("int")),
)
NEW = Column("c", Kind.INT32, source_type("int"), default=Value(7))


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table of two columns."""
    return lake_of(COLUMNS)


def lift_of(lake: Lake) -> Lift:
    """A column in the middle, with a default; another one is renamed and longer."""
    longer = replace(COLUMNS[1], name="w", kind=Kind.INT64, source_type=source_type("bigint"))
    after = replace(lake.schema, columns=(COLUMNS[0], NEW, longer))
    return Lift(lake.schema, after, ("id", None, "v"))


def lifted(lake: Lake, staged: Staged, lift: Lift, pos: int) -> Staged:
    """The lift, with what executors have written."""
    target = lake.open()
    position = Position(UUID, 1, FilePosition("binlog.000001", pos), GtidSet.parse(f"{UUID}:1-{pos}"))
    progress = staged.progress.lifted(position, lift.after.fingerprint)
    return target.lift(staged, lift, progress, [one.rewrite() for one in target.rewriters(staged, lift)])


def shown(lake: Lake) -> tuple[list[str], list[tuple[object, ...]]]:
    """The columns and rows that Spark's readers see."""
    found = lake.spark.table(f"{CATALOG}.{lake.table}")
    return found.columns, sorted(tuple(row) for row in found.collect())


BEFORE = (["id", "v"], [(1, 10), (2, 20)])


@pytest.mark.long("takes seconds")
def test_readers_see_the_lift_with_its_publish(lake: Lake, raw: Raw) -> None:
    """Merges go on before it; then every column has its rows, by the field id of before."""
    staged = lake.published((1, 10), (2, 20))
    ids = {field.name: field.field_id for field in raw(lake).schema().fields}
    lift = lift_of(lake)
    staged = lifted(lake, staged, lift, 30)
    assert shown(lake) == BEFORE
    assert lake.open().recover(lake.table) == staged
    lake.schema = lift.after
    staged = lake.merge(staged, (2, None, 2**40, False), (3, 3, 30, False), pos=40)
    assert shown(lake) == BEFORE
    staged = lake.publish(staged)
    assert shown(lake) == (["id", "c", "w"], [(1, 7, 10), (2, None, 2**40), (3, 3, 30)])
    after = {field.name: field.field_id for field in raw(lake).schema().fields}
    assert (after["id"], after["w"]) == (ids["id"], ids["v"])
    assert lake.loaded().version == staged.version
    lake.publish(lake.merge(staged, (1, 1, 1, True), pos=50))
    assert shown(lake)[1] == [(2, None, 2**40), (3, 3, 30)]


@pytest.mark.long("takes seconds")
def test_a_compaction_of_others_takes_the_lift_back(lake: Lake, spark: SparkSession) -> None:
    """Staging begins again at what readers see, with the definition of before; the lift is made once more."""
    staged = lake.published((1, 10), (2, 20))
    staged = lake.publish(lake.merge(staged, (3, 30, False), pos=25))
    lift = lift_of(lake)
    lifted(lake, staged, lift, 30)
    name = f"{CATALOG}.{lake.table}"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    again = lake.loaded()
    assert again.progress.fingerprint == lake.schema.fingerprint
    assert shown(lake)[1] == [(1, 10), (2, 20), (3, 30)]
    again = lifted(lake, again, lift, 30)
    lake.schema = lift.after
    lake.publish(again)
    assert shown(lake) == (["id", "c", "w"], [(1, 7, 10), (2, 7, 20), (3, 7, 30)])


def test_a_table_that_is_rolled_back_is_lifted_again(lake: Lake, spark: SparkSession) -> None:
    """Its current schema stays that of later, which is ours."""
    before, published = lake.schema, lake.published((1, 10), (2, 20))
    lift = lift_of(lake)
    staged = lifted(lake, published, lift, 30)
    lake.schema = lift.after
    lake.publish(staged)
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{lake.table}', {published.version})")
    spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} DROP BRANCH lakeingest")
    again = lake.loaded()
    assert again.progress.fingerprint == before.fingerprint
    staged = lifted(lake, again, lift, 30)
    lake.publish(lake.merge(staged, (1, None, 11, False), pos=40))
    assert shown(lake) == (["id", "c", "w"], [(1, None, 11), (2, 7, 20)])
