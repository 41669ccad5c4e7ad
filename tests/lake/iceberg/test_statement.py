"""Merges by Spark's MERGE INTO: the contract of every target, the rows that our own merges leave, refusals."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import Config, Target
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import StaleWriter, StateUnreadable
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.merges import compaction
from lakeingest.lake.iceberg.merges.statement import merge_on_branch
from lakeingest.lake.iceberg.tables.history import MERGING, STAGING
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.marks import BUILDING, PROGRESS
from lakeingest.lake.target import Effects, Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import BOUNDARIES, numbers
from tests.lake.iceberg.test_target import test_columns_have_any_name
from tests.lake.iceberg.test_zombies import test_a_zombies_commit_during_our_merge_refuses_it
from tests.lake.steps import PLAIN, Crash, Lake, Raw, Row
from tests.lake.test_target import (
    test_a_composite_key_merges_by_all_its_columns,
    test_a_copy_that_starts_over_has_only_its_new_rows,
    test_a_crash_between_discard_and_create_begins_anew,
    test_a_crash_between_merge_and_mark_takes_the_merge_back,
    test_a_merge_that_changes_nothing_is_fine,
    test_a_merge_upserts_and_deletes,
    test_a_stale_merge_is_undone,
    test_publishing_shows_exactly_the_audited_commit,
    test_text_booleans_and_vectors_are_copied_and_merged,
)
from tests.lake.unreliable import FAULTS, behind

__all__ = [  # tests of other files, which run here by statement
    "test_a_composite_key_merges_by_all_its_columns",
    "test_a_copy_that_starts_over_has_only_its_new_rows",
    "test_a_crash_between_discard_and_create_begins_anew",
    "test_a_crash_between_merge_and_mark_takes_the_merge_back",
    "test_a_merge_that_changes_nothing_is_fine",
    "test_a_merge_upserts_and_deletes",
    "test_a_stale_merge_is_undone",
    "test_a_zombies_commit_during_our_merge_refuses_it",
    "test_columns_have_any_name",
    "test_publishing_shows_exactly_the_audited_commit",
    "test_text_booleans_and_vectors_are_copied_and_merged",
]

pytestmark = [pytest.mark.spark, pytest.mark.long("the other way to merge")]


def by(way: str, lake_config: Config, spark: SparkSession, schema: TableSchema) -> Lake:
    """A table whose merges go this way."""
    target = lake_config.target.model_copy(update={"merge": way})
    return Lake(target, lambda: IcebergTarget(target, open_spark=lambda: spark), spark, schema, BOUNDARIES)


@pytest.fixture
def lake_of(lake_config: Config, spark: SparkSession) -> Callable[..., Lake]:
    """A function that makes a table with these columns and this key, whose merges are statements."""

    def make(columns: tuple[Column, ...] = PLAIN, key: tuple[str, ...] = ("id",)) -> Lake:
        table = TableId("contract", f"t{next(numbers)}")
        return by("statement", lake_config, spark, TableSchema(table, columns, key))

    return make


def branches(raw: Raw) -> list[str]:
    """The branches of statements that the table has."""
    return [name for name in raw(BUILDING).metadata.refs if name.startswith(MERGING)]


def changes_of(lake: Lake) -> list[Path]:
    """The files of changes that the table's folder has."""
    found = lake.settings.warehouse.path.rglob("*-changes.parquet")
    return [file for file in found if f"/{lake.table.name}-" in str(file)]


KINDS = (
    Column("id", Kind.UINT64, source_type("bigint unsigned"), nullable=False),
    Column("name", Kind.BINARY, source_type("varbinary(9)"), nullable=False, length=9),
    Column("day", Kind.DATE, source_type("date"), nullable=False),
    Column("at", Kind.DATETIME, source_type("datetime(6)")),
    Column("instant", Kind.TIMESTAMP, source_type("timestamp(6)")),
    Column("micros", Kind.MICROS, source_type("time(6)")),
    Column("price", Kind.DECIMAL, source_type("decimal(38,10)"), precision=38, scale=10),
    Column("uuid", Kind.UUID, source_type("uuid")),
    Column("single", Kind.FLOAT, source_type("float")),
    Column("double", Kind.DOUBLE, source_type("double")),
    Column("long", Kind.INT64, source_type("bigint")),
    Column("flag", Kind.BOOLEAN, source_type("bit(1)")),
    Column("point", Kind.VECTOR, source_type("vector(2)")),
)


def values(number: int) -> Row:
    """A row with values at the ends of their types, for a number from 0."""
    sign = -1 if number % 2 else 1
    return (
        Decimal(2**64 - 1 - number),
        bytes([0, 255, number]),
        date(1, 1, 1 + number) if number % 2 else date(9999, 12, 31 - number),
        datetime(1000, 1, 1, 0, 0, 0, number),
        datetime(1970, 1, 1, 0, 0, 1, number).astimezone(),
        sign * 3_020_399_999_999,
        Decimal("9999999999999999999999999999.9999999999").copy_sign(sign),
        f"123e4567-e89b-12d3-a456-42661417400{number}",
        sign * 1.401298464324817e-45,
        sign * 1.7976931348623157e308,
        sign * (2**63 - 1),
        number % 2 == 0,
        [sign * 3.4028234663852886e38, -0.0],
    )


@pytest.mark.parametrize("key", [("id",), ("name", "day")], ids=["a number", "bytes and a day"])
def test_both_ways_leave_the_same_rows_and_count_the_same(
    lake_config: Config, spark: SparkSession, key: tuple[str, ...]
) -> None:
    """Of every type that Spark and Arrow have in their own forms; inserts, updates, deletes, and a null for a value."""
    found = []
    for way in ("row_delta", "statement"):
        lake = by(way, lake_config, spark, TableSchema(TableId("contract", f"t{next(numbers)}"), KINDS, key))
        staged = lake.copied(*map(values, range(6)))
        nulls = (None,) * (len(KINDS) - 3)
        changes = [(*values(0)[:3], *values(7)[3:], False), (*values(1)[:3], *nulls, False), (*values(8), False)]
        changes += [(*values(2)[:3], *nulls, True), (*values(9)[:3], *nulls, True)]
        merged = lake.merge(staged, *changes)
        rows = lake.open().read(lake.table, merged.version).orderBy("id")
        found.append(([repr(row) for row in rows.collect()], lake.open().count(lake.table, merged.version)))
    assert found[0] == found[1]
    assert found[0][1] == 6


def test_a_merge_is_one_commit_of_spark_with_all_marks(lake: Lake, raw: Raw) -> None:
    """Staging goes from the known commit to Spark's, whose branch and files of changes are gone."""
    staged = lake.copied((1, "a"), (2, "b"))
    merged = lake.merge(staged, (1, "A", False), (2, None, True), (3, "c", False))
    table = raw(BUILDING)
    made = table.metadata.snapshot_by_id(merged.version)
    assert made is not None
    assert made.summary is not None
    assert (made.parent_snapshot_id, made.summary["engine-name"]) == (staged.version, "spark")
    assert {PROGRESS, "lakeingest.base", "lakeingest.commit"} <= made.summary.additional_properties.keys()
    assert table.metadata.refs[STAGING].snapshot_id == merged.version
    assert table.metadata.refs[STAGING].max_ref_age_ms is not None
    assert branches(raw) == []
    assert changes_of(lake) == []


def test_deleted_rows_stay_where_the_table_keeps_them(lake_of: Callable[..., Lake]) -> None:
    """Whether a row is deleted is a column like the others then."""
    lake = lake_of((*PLAIN, Column(DELETED, Kind.BOOLEAN, source_type("bit(1)"), nullable=False)))
    staged = lake.copied((1, "a", False), (2, "b", False))
    target, counted = lake.open(), list[Effects]()
    merger = target.merger(staged, ("id",), (1, 3))
    rows = lake.arrow([(1, "a", True), (3, "c", False)])
    changes = rows.select(["id"]).append_column(DELETED, [[False, False]])
    merged, effects = target.commit_merge(
        staged, [merger.replace(changes), merger.write(rows)], lambda one: noted(lake, counted, one)
    )
    assert counted == [effects] == [Effects(1, 1, 0)]
    assert lake.rows(merged) == [(1, "a", True), (2, "b", False), (3, "c", False)]


def noted(lake: Lake, counted: list[Effects], effects: Effects) -> Any:
    """The progress of a merge; its effects are noted."""
    counted.append(effects)
    return lake.leveled(lake.loaded(), 20)


def test_a_commit_while_the_statement_runs_refuses_it(lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is merged into the other's commit, which gives the statement up."""
    staged, others = lake.copied((1, "a")), list[Staged]()

    def overtaken(*given: Any) -> None:
        merge_on_branch(*given)
        others.append(lake.open().mark(staged, lake.leveled(staged, 20)))

    monkeypatch.setattr("lakeingest.lake.iceberg.merges.merging.merge_on_branch", overtaken)
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.merge(staged, (1, "zombie", False), (2, "zombie", False), pos=30)
    assert lake.loaded() == others[0]
    assert lake.rows(lake.loaded()) == [(1, "a")]
    assert branches(raw) == []
    monkeypatch.undo()
    assert lake.rows(lake.merge(lake.loaded(), (2, "b", False), pos=40)) == [(1, "a"), (2, "b")]


def before_the_statement(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen when Spark is about to merge."""
    run = SparkSession.sql

    def sql(spark: SparkSession, text: str, *more: Any) -> Any:
        if text.startswith("MERGE"):
            act()
        return run(spark, text, *more)

    monkeypatch.setattr(SparkSession, "sql", sql)


def test_a_branch_that_another_run_removes_refuses_the_statement(
    lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that goes on gives up every statement of before; Spark then finds no branch, or makes one of main."""
    staged = lake.copied((1, "a"))

    def go_on() -> None:
        lake.open().mark(staged, lake.leveled(staged, 20))
        assert branches(raw) == []

    before_the_statement(monkeypatch, go_on)
    with pytest.raises(StaleWriter):
        lake.merge(staged, (1, "zombie", False), pos=30)
    monkeypatch.undo()
    assert lake.rows(lake.merge(lake.loaded(), (2, "b", False), pos=40)) == [(1, "a"), (2, "b")]
    assert branches(raw) == []


def test_another_commit_on_the_branch_refuses_the_statement(
    lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark merges into whatever it finds there, so its snapshot counts only if it follows the known commit."""
    staged = lake.copied((1, "a"))

    def commit() -> None:
        [branch] = branches(raw)
        with raw(BUILDING).transaction() as transaction, transaction.update_snapshot(branch=branch).fast_append():
            pass

    before_the_statement(monkeypatch, commit)
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.merge(staged, (1, "A", False))
    assert lake.loaded() == staged
    assert lake.rows(staged) == [(1, "a")]


def test_a_failure_of_a_worker_has_our_name(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has only the text of an error of Python; nothing is merged."""
    staged = lake.copied((1, "a"))

    def lose() -> None:
        [file] = changes_of(lake)
        file.unlink()

    before_the_statement(monkeypatch, lose)
    with pytest.raises(StateUnreadable, match=r"a file is gone or damaged: .*-changes\.parquet"):
        lake.merge(staged, (1, "A", False))
    assert lake.loaded() == staged


def test_the_files_of_spark_are_durable_before_staging_names_them(
    lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, deletes, manifests and their list, in a folder of this machine: Spark does not sync them."""
    synced = set[Path]()
    monkeypatch.setattr("lakeingest.lake.iceberg.storage.durable.sync", synced.add)
    staged = lake.copied((1, "a"), (2, "b"))
    synced.clear()
    merged = lake.merge(staged, (1, "A", False))
    table = raw(BUILDING)
    made = table.metadata.snapshot_by_id(merged.version)
    assert made is not None
    manifests = [one for one in made.manifests(table.io) if one.added_snapshot_id == merged.version]
    files = [entry.data_file.file_path for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    assert len(files) == len(manifests) == 2
    for name in (made.manifest_list, *files, *(one.manifest_path for one in manifests)):
        path = Path(name.removeprefix("file:"))
        assert {path, path.parent} <= synced


def test_what_a_crash_leaves_is_removed_by_the_next_commit(lake: Lake, raw: Raw, tmp_path: Local) -> None:
    """Its branch; its snapshot expires like every commit of ours that nobody needs."""
    staged = lake.copied((1, "a"))
    with pytest.raises(Crash):
        lake.merge(staged, (1, "A", False), target=lake.dying_before("commit"))
    [branch] = branches(raw)
    lost = raw(BUILDING).metadata.refs[branch].snapshot_id
    merged = lake.merge(lake.loaded(), (1, "A", False))
    assert branches(raw) == []
    published = lake.publish(merged)
    # the files of snapshots that go are deleted later, by a list in the state folder
    IcebergTarget(lake.settings, waiting=tmp_path, open_spark=lambda: lake.spark).maintain(published)
    assert lost not in {one.snapshot_id for one in raw().metadata.snapshots}
    assert lake.seen() == [(1, "A")]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_commit_is_made_once_whatever_is_answered(lake: Lake, fault: str) -> None:
    """A lost, late, doubled or false answer: staging has Spark's snapshot, and we say so."""
    staged = lake.copied((1, "a"))
    target, catalog = behind(lake.settings, FAULTS[fault], open_spark=lambda: lake.spark)
    merged = lake.merge(staged, (1, "A", False), (2, "b", False), target=target)
    assert not catalog.plan
    catalog.deliver()
    assert catalog.taken <= 1
    assert lake.loaded() == merged
    assert lake.rows(merged) == [(1, "A"), (2, "b")]


def test_small_files_are_put_together_by_the_same_commit(lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by our own merges, once there are many."""
    monkeypatch.setattr(compaction, "FILES", 3)
    staged = lake.copied((1, "a"))
    for number in range(2, 6):
        staged = lake.merge(staged, (number, "new", False), (1, f"a{number}", False), pos=20 + number)
    assert lake.loaded() == staged
    assert len(raw(BUILDING).inspect.data_files(staged.version)) < 4
    assert lake.rows(staged) == [(1, "a5"), *((number, "new") for number in range(2, 6))]


def test_a_pipeline_can_go_from_one_way_to_the_other(lake: Lake) -> None:
    """Each goes on from what the other has left."""
    target = Target.model_validate({"merge": "row_delta"}).model_copy(update={"warehouse": lake.settings.warehouse})
    other = replace(lake, settings=target, open=lambda: IcebergTarget(target, open_spark=lambda: lake.spark))
    staged = lake.merge(lake.copied((1, "a"), (2, "b")), (1, "A", False), (3, "c", False))
    staged = other.merge(staged, (2, None, True), (3, "C", False), pos=30)
    staged = lake.merge(staged, (1, "last", False), (3, None, True), pos=40)
    lake.publish(staged)
    assert lake.seen() == [(1, "last")]
