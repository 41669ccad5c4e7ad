"""Copies of version 3 of Iceberg's format: vectors in place of position deletes, ids of rows, and the way there."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG, Config
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import UnsupportedTable
from lakeingest.lake.formats import open_rollbacks, open_target
from lakeingest.lake.iceberg.files.held import IcebergHeld
from lakeingest.lake.iceberg.files.row_delta import FileChanges
from lakeingest.lake.iceberg.files.vectors import write_vectors
from lakeingest.lake.iceberg.merges import compaction, folding, vector_compaction
from lakeingest.lake.iceberg.storage.entry_fields import referenced_path
from lakeingest.lake.iceberg.tables import expiry
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, tip
from lakeingest.lake.iceberg.versions import IcebergVersions
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import BOUNDARIES, numbers
from tests.lake.iceberg.third import (
    assert_one_vector_each,
    entries,
    ids_of,
    read_by_duckdb,
    read_by_pyiceberg,
    vectors,
)
from tests.lake.steps import PLAIN, UUID, Lake, Row

pytestmark = pytest.mark.spark

Rows = dict[int, str]
Make = Callable[..., Lake]


@pytest.fixture
def make(lake_config: Config, spark: SparkSession) -> Make:
    """Call it for a new table. `version`: of the format; `partition_by`; `lake`: the same table as that one."""

    def made(
        version: str = "3", *partition_by: str, lake: Lake | None = None, history: dict[str, Any] | None = None
    ) -> Lake:
        changed: dict[str, Any] = {"merge": "row_delta", "properties": {"format-version": version}}
        if history is not None:
            changed["history"] = lake_config.target.history.model_validate(history)
        target = lake_config.target.model_copy(update=changed)
        options = {"contract.*": TableOptions(partition_by=partition_by)}
        config = lake_config.model_copy(update={"target": target, "tables": Tables(include=("*.*",), options=options)})
        schema = TableSchema(TableId("contract", f"third{next(numbers)}"), PLAIN, ("id",))
        return Lake(
            target, lambda: open_target(config, lambda: spark), spark, lake.schema if lake else schema, BOUNDARIES
        )

    return made


@pytest.fixture
def opened(catalog: SqlCatalog) -> Callable[[Lake], Table]:
    """Call it for the table past our code."""
    return lambda lake: catalog.load_table((lake.table.database, lake.table.name))


def changed(lake: Lake, rows: Rows, changes: dict[int, str | None], pos: int) -> Staged:
    """Merge and publish changes; None deletes. `rows` is changed alike."""
    given = [(key, value, value is None) for key, value in changes.items()]
    staged = lake.publish(lake.merge(lake.loaded(), *given, pos=pos))
    for key, value in changes.items():
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return staged


def random_changes(chance: random.Random, most: int, count: int, text: str) -> dict[int, str | None]:
    """So many changes of random keys; a third of them delete."""
    return {key: None if chance.random() < 1 / 3 else text for key in chance.sample(range(most), count)}


def listed(rows: Rows) -> list[Row]:
    """The rows in the order of their keys."""
    return sorted(rows.items())


def assert_read_alike(lake: Lake, table: Table, rows: Rows) -> None:
    """Spark, PyIceberg and DuckDB read these rows, and no data file has two vectors."""
    assert lake.seen() == listed(rows)
    assert read_by_pyiceberg(table) == listed(rows)
    assert read_by_duckdb(table) == listed(rows)
    assert_one_vector_each(table)


def test_a_new_copy_of_version_3_is_read_by_three_engines(make: Make, opened: Callable[[Lake], Table]) -> None:
    """Merges write vectors; a second one of a data file takes the place of the first."""
    lake, rows = make(), dict.fromkeys(range(100), "a")
    lake.published(*rows.items())
    table = opened(lake)
    assert (table.format_version, getattr(table.metadata, "next_row_id", None)) == (3, 100)
    assert "format-version" not in table.properties
    changed(lake, rows, {1: "b", 2: None}, 30)
    [first] = vectors(opened(lake))
    changed(lake, rows, {3: None, 4: "c", 200: "d"}, 40)
    [second] = [vector for vector in vectors(opened(lake)) if referenced_path(vector) == referenced_path(first)]
    assert (first.record_count, second.record_count) == (2, 4)
    assert_read_alike(lake, opened(lake), rows)
    summary = opened(lake).current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["added-dvs"], summary["removed-dvs"], summary["total-position-deletes"]) == ("1", "1", "4")


@pytest.mark.parametrize("publishes", [30, pytest.param(350, marks=pytest.mark.long("hundreds of publishes"))])
@pytest.mark.long("many publishes; the random merges have such files")
def test_updates_everywhere_leave_one_vector_for_each_file(
    make: Make, opened: Callable[[Lake], Table], monkeypatch: pytest.MonkeyPatch, publishes: int
) -> None:
    """Small ones, each of which touches most files: Spark, PyIceberg and DuckDB read what a dictionary says."""
    monkeypatch.setattr(folding, "SMALL_ROWS", 300)
    lake, chance = make(), random.Random(publishes)
    rows = dict.fromkeys(range(4_000), "a")
    staged = lake.created()
    for first in range(0, 4_000, 1_000):
        upper = None if first == 3_000 else (first + 1_000,)
        staged = lake.wave(staged, list(rows.items())[first : first + 1_000], upper=upper)
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    for number in range(publishes):
        changed(lake, rows, random_changes(chance, 4_200, 8, f"v{number}"), 100 + number)
        if number % 25 == 24:
            assert_read_alike(lake, opened(lake), rows)
    table = opened(lake)
    assert_read_alike(lake, table, rows)
    assert len(entries(table)[0]) <= 4 + 2 * compaction.FILES
    assert len({vector.file_path for vector in vectors(table)}) == len(vectors(table))
    assert lake.open().count(lake.table, tip(table, MAIN).snapshot_id, len(rows)) == len(rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.long("random histories")
def test_random_merges_and_compactions_leave_the_rows_of_a_dictionary(
    make: Make, opened: Callable[[Lake], Table], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Small limits, so that files are combined, split and rewritten all the time; also in partitions."""
    chance = random.Random(seed)
    monkeypatch.setattr(compaction, "FILES", 3)
    monkeypatch.setattr(folding, "SMALL_ROWS", 20)
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", 60)
    lake = make("3", *(["bucket(2, id)"] if seed == 2 else []))
    rows = dict.fromkeys(range(0, 120, 2), "a")
    lake.published(*rows.items())
    ids: dict[int, tuple[int, int]] = {}
    for number in range(14):
        changes = random_changes(chance, 130, chance.choice([1, 4, 40]), f"v{number}")
        changed(lake, rows, changes, 100 + number)
        if chance.random() < 0.3:
            lake.publish(lake.open().maintain(lake.loaded()))
        now = ids_of(lake.spark, lake)
        untouched = ids.keys() & now.keys() - changes.keys()
        assert {key: now[key] for key in untouched} == {key: ids[key] for key in untouched}
        ids = now
        assert lake.seen() == listed(rows)
        assert_one_vector_each(opened(lake))
    assert_read_alike(lake, opened(lake), rows)


def test_a_row_keeps_its_id_until_it_is_updated(
    make: Make, opened: Callable[[Lake], Table], spark: SparkSession
) -> None:
    """Compactions keep the id and the time of the last change; an update is a new row, as the format allows it."""
    lake, rows = make(), dict.fromkeys(range(50), "a")
    lake.published(*rows.items())
    first = ids_of(spark, lake)
    changed(lake, rows, {7: "b", 8: None, 60: "c"}, 30)
    before = ids_of(spark, lake)
    assert {key: before[key] for key in rows if key < 50 and key != 7} == {
        key: first[key] for key in rows if key < 50 and key != 7
    }
    assert {before[7][0], before[60][0]}.isdisjoint(row_id for row_id, _ in first.values())
    lake.publish(lake.open().maintain(lake.loaded()))
    assert len(entries(opened(lake))[0]) == 1
    assert vectors(opened(lake)) == []
    assert ids_of(spark, lake) == before
    spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', options => map('rewrite-all', 'true'))"
    )
    changed(lake, rows, {9: "d"}, 50)
    after = ids_of(spark, lake)
    assert {key: after[key] for key in rows if key != 9} == {key: before[key] for key in rows if key != 9}
    metadata: Any = opened(lake).metadata
    assert metadata.next_row_id > max(row_id for row_id, _ in after.values())


def test_a_lift_keeps_the_ids_of_rows(make: Make, spark: SparkSession) -> None:
    """Rows that get a value in a new column are changed by that commit."""
    lake, rows = make(), dict.fromkeys(range(20), "a")
    text = replace(PLAIN[1], charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
    lake.schema = replace(lake.schema, columns=(PLAIN[0], text))
    lake.published(*rows.items())
    changed(lake, rows, {3: None, 4: "b"}, 30)
    before = ids_of(spark, lake)
    added = Column("n", Kind.INT32, source_type("int"), default=Value(7))
    after, staged, target = replace(lake.schema, columns=(PLAIN[0], text, added)), lake.loaded(), lake.open()
    lift = Lift(lake.schema, after, ("id", "v", None))
    position = Position(UUID, 1, FilePosition("binlog.000001", 40), GtidSet.parse(f"{UUID}:1-40"))
    written = [rewriter.rewrite() for rewriter in target.rewriters(staged, lift)]
    lifted = target.lift(staged, lift, staged.progress.lifted(position, after.fingerprint), written)
    lake.schema = after
    lake.publish(lifted)
    assert lake.seen() == [(key, value, 7) for key, value in listed(rows)]
    now = ids_of(spark, lake)
    assert {key: row_id for key, (row_id, _) in now.items()} == {key: row_id for key, (row_id, _) in before.items()}
    assert min(number for _, number in now.values()) > max(number for _, number in before.values())


def test_a_copy_of_version_2_becomes_one_of_version_3(
    make: Make, opened: Callable[[Lake], Table], spark: SparkSession
) -> None:
    """In place: position deletes stay until the next merge writes their rows into vectors."""
    old, rows = make("2"), dict.fromkeys(range(60), "a")
    old.published(*rows.items())
    changed(old, rows, {1: "b", 2: None}, 30)
    changed(old, rows, {3: "c", 50: None}, 40)
    assert opened(old).format_version == 2
    shown, count = tip(opened(old), MAIN).snapshot_id, len(rows)
    lake = make("3", lake=old)
    staged = lake.loaded()
    assert opened(lake).format_version == 3
    assert (lake.seen(), lake.rows(staged)) == (listed(rows), listed(rows))
    assert lake.loaded().version == staged.version
    assert len(entries(opened(lake), STAGING)[1]) == 2
    changed(lake, rows, {4: "d", 5: None}, 50)
    assert_read_alike(lake, opened(lake), rows)
    assert len(ids_of(spark, lake)) == len(rows)
    assert lake.open().count(lake.table, shown) == count
    with pytest.raises(
        UnsupportedTable, match=r"has version 3 of Iceberg's format, and pipeline.yml asks for version 2"
    ):
        make("2", lake=old).open().recover(old.table)


def test_a_maintenance_after_the_upgrade_leaves_no_position_deletes(
    make: Make, opened: Callable[[Lake], Table]
) -> None:
    """It writes the files anew; no merge has to come first."""
    old, rows = make("2"), dict.fromkeys(range(60), "a")
    old.published(*rows.items())
    changed(old, rows, {2: None}, 30)
    lake = make("3", lake=old)
    lake.publish(lake.open().maintain(lake.loaded()))
    assert entries(opened(lake))[1] == []
    assert_read_alike(lake, opened(lake), rows)


PROCEDURES = (
    "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "rewrite_manifests(table => '{t}')",
)


@pytest.mark.parametrize("procedure", PROCEDURES)
@pytest.mark.long("procedures of Spark; test_foreign builds on them in every run")
def test_publishes_go_on_beside_procedures_of_spark(
    make: Make, opened: Callable[[Lake], Table], spark: SparkSession, procedure: str
) -> None:
    """What Spark has combined is the base of the next merge; a merge that was prepared before is refused or exact."""
    lake, rows = make(), dict.fromkeys(range(200), "a")
    lake.published(*rows.items())
    for number in range(4):
        changed(lake, rows, {number: f"v{number}", 100 + number: None}, 30 + 10 * number)
        spark.sql(f"CALL {CATALOG}.system.{procedure.format(t=lake.table)}").collect()
        assert lake.seen() == listed(rows)
        ids = ids_of(spark, lake)
        changed(lake, rows, {50 + number: f"w{number}"}, 35 + 10 * number)
        assert_one_vector_each(opened(lake))
        now = ids_of(spark, lake)
        assert {key: now[key] for key in rows if key != 50 + number} == {
            key: ids[key] for key in rows if key != 50 + number
        }
    assert_read_alike(lake, opened(lake), rows)


def test_a_commit_that_others_overtake_is_prepared_again(
    make: Make, opened: Callable[[Lake], Table], spark: SparkSession
) -> None:
    """Someone has added a snapshot on a branch of their own since it was prepared: no row has the id of another."""
    lake, rows = make(), dict.fromkeys(range(20), "a")
    staged = lake.published(*rows.items())
    target = lake.open()
    send = target._catalog.commit_table  # type: ignore[attr-defined] # noqa: SLF001
    overtaken: list[int] = []

    def later(*request: Any) -> Any:
        if not overtaken:
            overtaken.append(1)
            name = f"{CATALOG}.{lake.table}"
            spark.sql(f"ALTER TABLE {name} CREATE BRANCH others")
            spark.sql(f"INSERT INTO {name}.branch_others VALUES (900, 'x'), (901, 'y')")
        return send(*request)

    target._catalog.commit_table = later  # type: ignore[attr-defined] # noqa: SLF001
    merged = lake.merge(staged, (1, "b", False), (30, "c", False), pos=30, target=target)
    lake.publish(merged, target)
    rows |= {1: "b", 30: "c"}
    assert lake.seen() == listed(rows)
    metadata: Any = opened(lake).metadata
    sequence_numbers = [snapshot.sequence_number for snapshot in metadata.snapshots]
    assert len(set(sequence_numbers)) == len(sequence_numbers)
    new = spark.sql(f"SELECT _row_id FROM {CATALOG}.{lake.table}.branch_others WHERE id >= 900").collect()
    of_others, ids = {row_id for (row_id,) in new}, {row_id for row_id, _ in ids_of(spark, lake).values()}
    assert len(of_others - ids) == 2
    assert metadata.next_row_id > max(ids | of_others)


def test_what_others_add_is_rolled_back(make: Make, lake_config: Config, spark: SparkSession) -> None:
    """And merges go on with the vectors of our last commit."""
    lake, rows = make(), dict.fromkeys(range(40), "a")
    lake.published(*rows.items())
    changed(lake, rows, {1: None, 2: "b"}, 30)
    spark.sql(f"DELETE FROM {CATALOG}.{lake.table} WHERE id IN (3, 4)")
    spark.sql(f"INSERT INTO {CATALOG}.{lake.table} VALUES (99, 'foreign')")
    rollbacks = open_rollbacks(lake_config.model_copy(update={"target": lake.settings}))
    found = rollbacks.found(lake.table)
    assert found is not None
    rollbacks.roll_back(lake.table, found)
    assert lake.seen() == listed(rows)
    changed(lake, rows, {5: None, 2: "c"}, 40)
    assert lake.seen() == listed(rows)


def test_older_commits_stay_readable_and_files_go_with_the_last_that_needs_them(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of vectors stays as long as one of its vectors is of a commit that is kept."""
    monkeypatch.setattr(expiry, "WORTH", 2)
    lake = make(history={"keep": "0s", "least": 2, "readers": "0s"})
    rows = dict.fromkeys(range(40), "a")
    lake.published(*rows.items())
    for number in range(6):
        changed(lake, rows, {number: None, 20 + number: f"v{number}"}, 30 + number)
    versions = IcebergVersions(lake.open())  # type: ignore[arg-type]
    published = versions.published(lake.table)
    assert published
    for version in published:
        read = sum(batch.num_rows for batch in versions.rows(lake.schema, version.version))
        assert read == lake.open().count(lake.table, version.version)
    assert lake.seen() == listed(rows)


@pytest.mark.parametrize("spoil", ["two vectors", "lost rows"])
def test_an_audit_finds_vectors_that_cannot_be(
    make: Make, opened: Callable[[Lake], Table], monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    """A data file with two vectors, and a vector without a row that was deleted before."""
    lake, rows = make(), dict.fromkeys(range(40), "a")
    lake.published(*rows.items())
    shown = changed(lake, rows, {1: None, 2: None}, 30)
    write = write_vectors
    if spoil == "lost rows":
        monkeypatch.setattr(
            vector_compaction,
            "write_vectors",
            lambda table, dead, files: write(table, {path: found[1:] for path, found in dead.items()}, files),
        )
    else:
        changes = vector_compaction._Present.changes  # noqa: SLF001
        monkeypatch.setattr(
            vector_compaction._Present,  # noqa: SLF001
            "changes",
            lambda *arguments: FileChanges(changes(*arguments).added),
        )
    staged = lake.merge(lake.loaded(), (5, None, True), pos=40)
    held = IcebergHeld(opened(lake), staged.version, shown.version)
    found = {"two vectors": "has 2 deletion vectors", "lost rows": "lacks 1 rows of .* that were deleted before"}
    assert any(re.search(found[spoil], fault) for fault in held.faulty_deletes())
