"""The rows of a snapshot that others have compacted, counted without a read of them.

Spark's `rewrite_data_files` leaves positions of files that it rewrote: they delete no row, and the totals count them.
"""

import numpy as np
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.lake.iceberg.files.data_files import write_deletes
from lakeingest.lake.iceberg.files.live_rows import count_live_rows, total_rows, without_dangling_deletes
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges, RowDelta
from lakeingest.lake.iceberg.merges import compaction
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, tip
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

PROCEDURES = {
    "all": ("rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",),
    "some": (
        "rewrite_data_files(table => '{t}', options => map('min-input-files', '2', 'delete-file-threshold', '1'))",
    ),
    "none left dangling": (
        "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))",
    ),
    "deletes, too": (
        "rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
        "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
        "rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    ),
}


def compact(lake: Lake, spark: SparkSession, way: str) -> None:
    """Someone's maintenance of what readers see."""
    for procedure in PROCEDURES[way]:
        spark.sql(f"CALL {CATALOG}.system.{procedure.format(t=lake.table)}").collect()


def grown(lake: Lake) -> None:
    """A published table of 37 rows, with dead rows in two of its files of rows."""
    lake.published(*((key, "a") for key in range(40)))
    lake.publish(lake.merge(lake.loaded(), (1, "b", False), (2, None, True), (3, None, True), pos=30))
    lake.publish(lake.merge(lake.loaded(), (1, "c", False), (4, None, True), pos=40))


def totals(table: Table, branch: str = STAGING) -> int | None:
    """The rows of the last commit of a branch by its summary."""
    return total_rows(table, tip(table, branch).snapshot_id)


def counted(table: Table) -> int | None:
    """The rows of the last commit by its files."""
    return count_live_rows(table, tip(table, STAGING).snapshot_id)


@pytest.mark.parametrize("known", [{}, {"total-records": "0"}, {"total-position-deletes": "0"}])
def test_a_summary_without_its_totals_says_no_number_of_rows(known: dict[str, str]) -> None:
    """The specification lets writers leave totals out. A missing one is not 0: rows would be taken for none."""
    summary = Summary(Operation.APPEND, **known)
    snapshot = Snapshot.model_validate({"snapshot-id": 7, "manifest-list": "file:///list", "summary": summary})
    made = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///table")
    metadata = made.model_copy(update={"snapshots": [snapshot]})
    table = Table(("shop", "orders"), metadata, "file:///metadata", TableFiles(metadata).io, NoopCatalog("lake"))
    assert total_rows(table, 7) is None


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("way", PROCEDURES)
def test_rows_are_counted_after_a_compaction_of_someone(lake: Lake, raw: Raw, spark: SparkSession, way: str) -> None:
    """By the files at once, and by the totals of our next commit and of all that follow."""
    grown(lake)
    compact(lake, spark, way)
    assert count_live_rows(raw(), tip(raw(), MAIN).snapshot_id) == 37
    staged = lake.loaded()
    assert staged.same_rows
    assert lake.rows(staged) == lake.seen()
    assert (totals(raw()), counted(raw())) == (37, 37)
    for number in range(3):
        staged = lake.publish(
            lake.merge(lake.loaded(), (number, "d", False), (20 + number, None, True), pos=50 + number)
        )
        assert not staged.same_rows
        expected = len(lake.seen())
        assert (totals(raw()), counted(raw())) == (expected, expected)
        assert lake.open().count(lake.table, staged.version) == expected


@pytest.mark.long("takes seconds")
def test_positions_that_still_delete_rows_stay(lake: Lake, raw: Raw, spark: SparkSession) -> None:
    """Of a file of deletes for several files of rows, of which one was rewritten, the others' rows stay deleted."""
    staged = lake.wave(lake.created(), [(key, "a") for key in range(20)], upper=(20,))
    staged = lake.wave(staged, [(key, "a") for key in range(20, 3000)])
    staged = lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    lake.publish(lake.merge(staged, (5, None, True), *((key, None, True) for key in range(40, 50)), pos=30))
    chosen = "where => 'id < 20', options => map('rewrite-all', 'true')"
    spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', {chosen})").collect()
    table = raw()
    assert totals(table, MAIN) != count_live_rows(table, tip(table, MAIN).snapshot_id) == 2989
    lake.loaded()
    assert (totals(raw()), counted(raw()), raw().scan().to_arrow().num_rows) == (2989, 2989, 2989)
    lake.publish(lake.merge(lake.loaded(), (5, "again", False), pos=40))
    assert (totals(raw()), len(lake.seen())) == (2990, 2990)


def test_a_table_that_was_built_on_before_is_counted_by_its_files(lake: Lake, raw: Raw) -> None:
    """Its totals are wrong until our own compaction takes the deletes of no row away."""
    grown(lake)
    dangle(raw())
    assert (totals(raw()), counted(raw())) == (35, 37)
    target, version = lake.open(), tip(raw(), STAGING).snapshot_id
    assert [target.count(lake.table, version, expected) for expected in (None, 37, 36)] == [37, 37, 37]
    staged = lake.publish(lake.open().maintain(lake.loaded()))
    assert target.count(lake.table, staged.version) == totals(raw()) == 37


def dangle(table: Table) -> None:
    """A commit of ours on staging with deletes of a file that is not there."""
    version, files = tip(table, STAGING).snapshot_id, TableFiles.of(table)
    said = tip(table, STAGING).summary.additional_properties  # type: ignore[union-attr]
    marks = {name: text for name, text in said.items() if name.startswith("lakeingest.")}
    added = write_deletes(files, {f"{table.location()}/data/gone.parquet": np.array([0, 7])})
    assert without_dangling_deletes(table, version) == NO_FILES
    transaction = table.transaction()
    RowDelta(transaction, table.io, STAGING, marks, FileChanges(tuple(added))).commit()
    transaction.commit_transaction()


def test_merges_take_deletes_of_no_row_away(lake: Lake, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compaction that they make now and then."""
    monkeypatch.setattr(compaction, "FILES", 3)
    grown(lake)
    dangle(raw())
    lake.merge(lake.loaded(), (9, "z", False), pos=50)
    assert totals(raw()) == counted(raw()) == 37
