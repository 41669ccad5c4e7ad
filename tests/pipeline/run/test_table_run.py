"""The state of a table within a run: which commits are sound, and from where the table needs the spool."""

from dataclasses import replace

import pytest

from lakeingest.config.tables import TableOptions
from lakeingest.core.binlog.position import FilePosition, Place, Position
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import SpoolGap
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from lakeingest.pipeline.run.table_run import Failure, TableRun, Trust
from lakeingest.pipeline.run.watch import Watch
from lakeingest.state.stopped import Stopped

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", Kind.INT64, source_type("bigint")),), ("id",))
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def staged(version: int, published: int | None = None, since: int = 4, restarts: int = 0) -> Staged:
    """A commit of the table; its next merge needs the changes after byte `since` of the first binlog file."""
    progress = Progress(TABLE, SCHEMA.fingerprint, UUID, 1, Place(1, 1, since), restarts=restarts).created()
    return Staged(progress, version, published)


@pytest.fixture
def table() -> TableRun:
    """A table that has no copy yet."""
    return TableRun(TABLE, TableOptions(), SCHEMA, requested=True, watch=Watch.JOINING)


def test_a_table_is_sound_while_each_commit_adds_sound_rows(table: TableRun) -> None:
    """From the empty copy on; a commit whose rows were not checked ends that, and later commits do not repair it."""
    found = []
    for version, sound in enumerate((True, True, False, True), 1):
        table.advance(staged(version), sound=sound)
        found.append(table.sound)
    assert found == [True, True, False, False]


def test_what_readers_see_is_sound(table: TableRun) -> None:
    """It has passed a gate; an unpublished commit that a run loads has not, as far as this run knows."""
    found = []
    for published in (2, 3):
        table.advance(staged(3, published))
        found.append(table.sound)
    assert found == [False, True]


def test_the_rows_of_someones_compaction_are_as_sound_as_those_that_readers_see(table: TableRun) -> None:
    """Our commit on it has the same rows; what is merged on that has them as well as its own."""
    found = []
    for commit, sound in ((replace(staged(3, 2), same_rows=True), False), (staged(4, 2), True), (staged(5, 2), False)):
        table.advance(commit, sound=sound)
        found.append(table.sound)
    assert found == [True, True, False]


def test_a_commit_that_is_loaded_again_is_as_sound_as_before(table: TableRun) -> None:
    """A new session of Spark changes no rows; another commit may have other rows."""
    table.advance(staged(1), sound=True)
    found = []
    for version in (1, 2):
        table.advance(staged(version))
        found.append(table.sound)
    assert found == [True, False]


def test_an_unpublished_table_needs_the_spool_from_its_staged_commit_on(table: TableRun) -> None:
    """Without a copy it is not known from where."""
    assert table.needed_from is None
    table.advance(staged(1, since=100))
    assert table.needed_from == Place(1, 1, 100)


def test_a_published_table_needs_the_spool_from_what_readers_see_on(table: TableRun) -> None:
    """Staging is built on that again after a compaction; it is not known before the run has seen such a commit."""
    table.advance(staged(2, published=1, since=200))
    assert table.needed_from is None
    table.advance(staged(2, published=2, since=200))
    table.advance(staged(3, published=2, since=300))
    assert table.needed_from == Place(1, 1, 200)


def test_what_readers_see_needs_nothing_where_the_copy_was_started_over(table: TableRun) -> None:
    """It cannot be continued; a run that loads such a copy knows that as long as chunks are missing."""
    table.advance(staged(2, published=1, since=200, restarts=1))
    assert table.needed_from == Place(1, 1, 200)
    table.advance(staged(2, published=2, since=100))
    table.advance(staged(3, published=2, since=300, restarts=1))
    assert table.needed_from == Place(1, 1, 300)


def test_a_copy_from_before_it_was_started_over_is_not_continued(table: TableRun) -> None:
    """Somebody compacted what readers see, and the lake answers with that."""
    table.advance(staged(2, published=2))
    table.reload(staged(3, published=3))
    table.advance(staged(4, published=3, restarts=1))
    with pytest.raises(SpoolGap, match=r"lakeingest resnapshot shop\.orders"):
        table.reload(staged(5, published=5))
    assert table.staged.version == 4


def test_a_stage_cannot_use_a_table_without_a_copy_or_a_definition(table: TableRun) -> None:
    """It is a mistake in the program, and fails at once."""
    with pytest.raises(RuntimeError, match=r"shop\.orders has no copy"):
        _ = table.staged
    table.definition = None
    with pytest.raises(RuntimeError, match=r"shop\.orders has no definition"):
        _ = table.schema


def test_a_table_that_is_copied_again_begins_anew(table: TableRun) -> None:
    """It is trusted again and has not stopped; whether its rows stay is the caller's word."""
    table.advance(staged(1), sound=True)
    table.joined()
    table.reached_ddl()
    table.doubt_rows()
    table.fail(Failure(SpoolGap("x"), Stopped.of(TABLE, SpoolGap("x")), 0.0))
    other = replace(SCHEMA, columns=(*SCHEMA.columns, Column("v", Kind.INT64, source_type("bigint"))))
    table.recopy(other, compares=True)
    assert (table.watch, table.trust, table.failure, table.definition) == (Watch.REJOINING, Trust.IN_FORCE, None, other)
    assert table.staged.version == 1
    table.drop_copy(other)
    assert (table.watch, table.copy) == (Watch.JOINING, None)


def test_a_table_whose_rows_are_in_doubt_stays_so(table: TableRun) -> None:
    """That the source has another definition is the smaller thing."""
    found = []
    for happens in (table.found_altered, table.doubt_rows, table.found_altered):
        happens()
        found.append(table.trust)
    assert found == [Trust.ALTERED_UNSEEN, Trust.SUSPECT, Trust.SUSPECT]


def copied_to(number: int, read: CascadesRead | None) -> Staged:
    """A commit of the table that is merged to this byte of the first binlog file."""
    at = FilePosition("binlog.000001", number)
    progress = Progress(TABLE, SCHEMA.fingerprint, UUID, 1, Place(1, 1, 4), position=Position(UUID, 1, at, None))
    return Staged(replace(progress, cascades=read), number, None)


def test_rows_are_settled_where_all_changes_by_foreign_keys_are_in_them(table: TableRun) -> None:
    """Up to their position, by the foreign keys of now; without such keys, and where they may be missing, always."""
    table.advance(copied_to(9, None))
    assert table.has_cascades
    table.know_cascade_keys("f00d")
    found = []
    for settled in (
        None,
        CascadesRead("f00d", Place(1, 1, 8)),
        CascadesRead("0ld", Place(1, 1, 9)),
        CascadesRead("f00d", Place(1, 1, 9)),
    ):
        table.advance(copied_to(9, settled))
        found.append(table.has_cascades)
    assert found == [False, False, False, True]
    table.options = TableOptions(cascades="missing")
    table.advance(copied_to(9, None))
    assert table.has_cascades


def test_older_rows_that_are_read_again_unsettle_a_table(table: TableRun) -> None:
    """What was found for the next merge does not hold for them."""
    table.advance(copied_to(9, CascadesRead("f00d", Place(1, 1, 9))))
    table.record_cascades(Place(1, 1, 12))
    table.advance(copied_to(9, CascadesRead("f00d", Place(1, 1, 12))))
    assert table.cascades_read_to == Place(1, 1, 12)
    table.advance(copied_to(9, CascadesRead("f00d", Place(1, 1, 9))))
    assert table.cascades_read_to is None
