"""Others change an Iceberg table's columns or partitions: named with the way out; all that is harmless passes."""

from collections.abc import Callable, Sequence

import pytest
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.errors import ForeignWrite
from lakeingest.lake.preflight import copies
from lakeingest.mysql.source_types import source_type
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

COLUMNS = (
    Column("id", Kind.INT32, source_type("int"), nullable=False),
    Column("v", Kind.STRING, source_type("text")),
    Column("w", Kind.INT32, source_type("int")),
)
UNDO = "`lakeingest rollback contract."


@pytest.fixture
def lake(lake_of: Callable[..., Lake]) -> Lake:
    """A table of three columns."""
    return lake_of(COLUMNS)


@pytest.fixture
def alter(lake: Lake, spark: SparkSession) -> Callable[..., None]:
    """Call it with what someone does to the table, in Spark's words."""

    def run(*changes: str) -> None:
        for change in changes:
            name = f"{CATALOG}.{lake.table}"
            spark.sql(change.format(t=name) if "{t}" in change else f"ALTER TABLE {name} {change}")

    return run


REWRITE = "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
Alter = Callable[..., None]


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        (["ADD COLUMN note string"], f"columns: note was added; {UNDO}"),
        (["DROP COLUMN w"], f"columns: w was dropped; {UNDO}"),
        (["RENAME COLUMN w TO w2"], f"columns: w was renamed w2; {UNDO}"),
        (["DROP COLUMN w", "ADD COLUMN w int"], f"columns: w was added, w was dropped; {UNDO}"),
        (["RENAME COLUMN v TO x", "RENAME COLUMN w TO v", "RENAME COLUMN x TO w"], "v was renamed w, w was renamed v"),
        (["ALTER COLUMN w TYPE bigint"], f"columns: w was int and is long; {UNDO}"),
        (["ADD PARTITION FIELD v"], f"partitions: v; {UNDO}"),
        (["ADD PARTITION FIELD bucket(4, id)"], "partitions: id_bucket_4"),
    ],
)
def test_another_shape_of_the_columns_is_named(lake: Lake, alter: Alter, changes: Sequence[str], finding: str) -> None:
    """By load, by look and so by `check`, and by each step of a run that is at work; readers see what they saw."""
    staged = lake.merge(lake.published((1, "a", 1)), (2, "b", 2, False), pos=30)
    alter(*changes)
    steps: list[Callable[[], object]] = [
        lambda: lake.open().recover(lake.table),
        lambda: lake.open().inspect(lake.table),
        lambda: lake.open().writer(lake.table),
        lambda: lake.open().mark(staged, staged.progress),
        lambda: lake.publish(staged),
    ]
    for step in steps:
        with pytest.raises(ForeignWrite) as raised:
            step()
        assert str(raised.value).startswith(f"{lake.table}: someone else ")
        assert finding in str(raised.value)
    assert "someone else" in str(copies(lake.open(), [lake.table]).refused[lake.table])


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("ADD COLUMN note string", "DROP COLUMN note"),
        ("RENAME COLUMN w TO w2", "RENAME COLUMN w2 TO w"),
        ("ADD PARTITION FIELD v", "DROP PARTITION FIELD v"),
    ],
)
def test_after_the_change_is_undone_the_table_is_updated(lake: Lake, alter: Alter, change: str, undo: str) -> None:
    """Also after a compaction while it was there: no value was lost."""
    lake.published((1, "a", 1), (2, "b", 2))
    alter(change)
    if "PARTITION" not in change:
        alter(REWRITE)
    alter(undo)
    lake.publish(lake.merge(lake.loaded(), (1, None, None, True), (2, "B", 2, False), pos=30))
    assert lake.seen() == [(2, "B", 2)]


def test_files_in_partitions_are_named_until_they_are_rewritten(lake: Lake, alter: Alter) -> None:
    """A file of our deletes belongs to no partition: readers would not apply it to theirs."""
    lake.published((1, "a", 1), (2, "b", 2))
    alter("ADD PARTITION FIELD v", REWRITE, "DROP PARTITION FIELD v")
    for step in (lake.open().recover, lake.open().inspect):
        with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else rewrote its files into partitions; call"):
            step(lake.table)
    alter(REWRITE)
    lake.publish(lake.merge(lake.loaded(), (1, None, None, True), (2, "B", 2, False), pos=30))
    assert lake.seen() == [(2, "B", 2)]


def test_a_compaction_without_a_column_is_named(lake: Lake, alter: Alter, raw: Raw) -> None:
    """Who brings back the old schema does not bring back the values."""
    lake.published((1, "a", 1), (2, "b", 2))
    made = raw().metadata.current_schema_id
    alter("DROP COLUMN w", REWRITE)
    with raw().transaction() as transaction:
        old = SetCurrentSchemaUpdate(schema_id=made)  # type: ignore[call-arg]
        transaction._apply((old,), ())  # noqa: SLF001 - there is no other way
    with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else compacted it .* while its columns were others"):
        lake.open().recover(lake.table)


def test_a_change_at_the_very_moment_of_a_commit_refuses_it(
    lake: Lake, alter: Alter, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written for other columns, or for no partitions, is not committed beside them."""
    staged = lake.published((1, "a", 1))
    changes: list[Callable[[], object]] = [
        lambda: alter("ADD COLUMN note string"),
        lambda: raw().update_spec().add_field("v", IdentityTransform(), "v_part").commit(),
    ]
    for change in changes:
        target, early = lake.open(), raw()
        change()
        found = iter([early])
        monkeypatch.setattr(target, "_table", lambda _, found=found: next(found, None) or raw())
        with pytest.raises(ForeignWrite, match=str(lake.table)):
            target.mark(staged, staged.progress)


def test_what_changes_no_row_is_allowed(lake: Lake, alter: Alter, raw: Raw, spark: SparkSession) -> None:
    """Comments, the order of columns, a sort order, properties, tags, branches and statistics."""
    lake.published((1, "a", 1), (2, "b", 2))
    alter(
        "ALTER COLUMN w COMMENT 'theirs'",
        "ALTER COLUMN w AFTER id",
        "WRITE ORDERED BY v",
        "SET TBLPROPERTIES ('write.format.default' = 'orc', 'write.parquet.compression-codec' = 'gzip', 'x' = 'y')",
        "CREATE TAG theirs",
        "CREATE BRANCH theirs_too",
        "CALL lake.system.compute_table_stats('{t}')",
    )
    loaded = lake.loaded()
    lake.publish(lake.merge(loaded, (1, None, None, True), (2, "B", 3, False), pos=30))
    found = spark.table(f"{CATALOG}.{lake.table}").select("id", "v", "w").collect()
    assert [tuple(row) for row in found] == [(2, "B", 3)]
    assert len(lake.rows(lake.loaded())) == 1
