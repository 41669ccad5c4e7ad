"""Commits of others on an Iceberg table: compactions are built on, anything else stops us."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.core.copies.progress import Progress
from lakeingest.errors import ForeignWrite, MainMoved, StaleWriter, StateUnreadable, UnsupportedTable
from lakeingest.lake.iceberg.tables.history import STAGING
from lakeingest.lake.marks import BUILDING
from lakeingest.lake.target import Staged
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

Compact = Callable[[Lake], int]


@pytest.fixture
def compact(spark: SparkSession, raw: Raw) -> Compact:
    """Call it for someone's compaction of what readers see: a new snapshot of main."""

    def rewrite(lake: Lake) -> int:
        spark.sql(
            f"CALL {CATALOG}.system.rewrite_data_files(table => '{lake.table}', options => map('rewrite-all', 'true'))"
        )
        return raw().metadata.refs["main"].snapshot_id

    return rewrite


def progress_of(lake: Lake, published: Staged) -> Progress:
    """What the published commit itself carries."""
    found = lake.loaded()
    assert found.version == published.version
    return found.progress


def insert(lake: Lake) -> None:
    """Someone else's row."""
    lake.spark.sql(f"INSERT INTO {CATALOG}.{lake.table} VALUES (99, 'foreign')")


def expire(lake: Lake, table: Table | None = None) -> None:
    """Someone keeps the last snapshot of each branch, and no other."""
    name = str(lake.table) if table is None else ".".join(table.name())
    lake.spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{name}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )


@pytest.mark.long("waits for a catalog")
def test_a_copy_of_a_newer_format_is_refused_by_name(lake: Lake) -> None:
    """Someone altered it to what cannot be written, nor be taken back."""
    lake.published((1, "a"))
    lake.spark.sql(f"ALTER TABLE {CATALOG}.{lake.table} SET TBLPROPERTIES ('format-version' = '3')")
    with pytest.raises(
        UnsupportedTable, match=f"{lake.table}: its copy has version 3 of Iceberg's format, and pipeline.yml asks for"
    ):
        lake.open().recover(lake.table)


def roll_back(lake: Lake, version: int) -> None:
    """Someone lets readers see an older commit."""
    lake.spark.sql(f"CALL {CATALOG}.system.set_current_snapshot('{lake.table}', {version})")


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("ahead", [False, True], ids=["staging = main", "staging is ahead"])
def test_the_next_commit_builds_on_a_compaction(
    lake: Lake, raw: Raw, compact: Compact, times: int, *, ahead: bool
) -> None:
    """Staging goes on from what readers see, with the progress that it had; what was staged beside it is dropped."""
    published = lake.published((1, "a"), (2, "b"))
    published = lake.publish(lake.merge(lake.loaded(), (2, "B", False), (3, "c", False), pos=30))
    before = progress_of(lake, published)
    if ahead:
        lake.merge(lake.loaded(), (4, "dropped", False), pos=40)
    for _ in range(times):
        compacted = compact(lake)
    location = raw().metadata_location

    looked = lake.open().inspect(lake.table)
    assert looked == Staged(before, compacted, compacted)
    assert looked.visible
    assert lake.rows(looked) == lake.seen() == [(1, "a"), (2, "B"), (3, "c")]
    assert raw().metadata_location == location

    loaded = lake.loaded()
    assert loaded == Staged(before, loaded.version, compacted)
    snapshot = raw().snapshot_by_id(loaded.version)
    assert snapshot is not None
    assert snapshot.parent_snapshot_id == compacted
    assert raw().metadata.refs[STAGING].snapshot_id == loaded.version
    assert lake.loaded() == loaded

    lake.publish(lake.merge(loaded, (1, None, True), (5, "e", False), pos=50))
    assert lake.seen() == [(2, "B"), (3, "c"), (5, "e")]


@pytest.mark.long("takes seconds")
def test_a_compaction_while_we_work_refuses_the_publish(lake: Lake, compact: Compact) -> None:
    """Main keeps the compaction; the table loaded again, merged and published once more is right."""
    staged = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    compacted = compact(lake)
    with pytest.raises(MainMoved, match=str(lake.table)):
        lake.publish(staged)
    assert lake.seen() == [(1, "a")]
    again = lake.loaded()
    assert again.published == compacted
    lake.publish(lake.merge(again, (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_a_compaction_during_a_publish_is_reported_as_a_compaction(
    lake: Lake, raw: Raw, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it lands after we looked, it is no other writer of ours."""
    staged = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    target, early = lake.open(), raw()
    compact(lake)
    found = iter([early])
    monkeypatch.setattr(target, "_table", lambda _: next(found, None) or raw())
    with pytest.raises(MainMoved, match=str(lake.table)):
        lake.publish(staged, target=target)
    assert lake.seen() == [(1, "a")]


def test_a_staging_commit_is_unaffected_by_a_compaction(lake: Lake, compact: Compact) -> None:
    """Only the publish needs main to be where it was: a table that is loaded stays so."""
    published = lake.published((1, "a"))
    compact(lake)
    staged = lake.merge(published, (2, "b", False), pos=30)
    assert lake.rows(staged) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("compactions", [0, 1, 2])
@pytest.mark.long("one compaction is a case of two", only=("1",))
def test_a_foreign_write_is_named_also_below_compactions(lake: Lake, compact: Compact, compactions: int) -> None:
    """Load, look and publish all stop at it, until main is rolled back to ours; nothing of it is taken over."""
    published = lake.published((1, "a"))
    staged = lake.merge(published, (3, "c", False), pos=30)
    if compactions:
        compact(lake)
    insert(lake)
    for _ in range(compactions):
        compact(lake)
    stops: list[Callable[[], object]] = [
        lambda: lake.open().recover(lake.table),
        lambda: lake.open().inspect(lake.table),
        lambda: lake.publish(staged),
    ]
    for stop in stops:
        with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote"):
            stop()
    assert lake.seen() == [(1, "a"), (99, "foreign")]
    roll_back(lake, published.version)
    assert lake.loaded() == replace(staged, published=published.version)
    lake.publish(staged)
    assert lake.seen() == [(1, "a"), (3, "c")]


def test_a_foreign_write_that_staging_was_moved_to_is_named(lake: Lake) -> None:
    """Who moves our branch to it does not make it ours."""
    lake.published((1, "a"))
    insert(lake)
    lake.spark.sql(f"CALL {CATALOG}.system.fast_forward('{lake.table}', '{STAGING}', 'main')")
    with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote"):
        lake.open().recover(lake.table)


def drop_branch(raw: Raw, suffix: str = "") -> None:
    """Someone removes staging, as a retention by age does."""
    raw(suffix).manage_snapshots().remove_branch(STAGING).commit()


@pytest.mark.long("takes seconds")
def test_a_retention_by_age_does_not_remove_staging(lake: Lake, raw: Raw) -> None:
    """Whatever the table's own age of branches is: ours has one of its own."""
    staged = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    with raw().transaction() as transaction:
        transaction.set_properties({"history.expire.max-ref-age-ms": "1"})
    raw().manage_snapshots().create_branch(staged.version, "theirs").commit()
    expire(lake)
    assert set(raw().metadata.refs) == {"main", STAGING}
    assert lake.loaded().version == staged.version


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize(
    ("compactions", "ahead", "expired"), [(0, False, False), (0, True, True), (1, False, True), (2, True, True)]
)
def test_without_staging_a_table_continues_from_what_readers_see(
    lake: Lake, raw: Raw, compact: Compact, compactions: int, *, ahead: bool, expired: bool
) -> None:
    """Main has all that was published, and the progress to merge again what was not."""
    published = lake.publish(lake.merge(lake.published((1, "a")), (2, "b", False), pos=30))
    before = progress_of(lake, published)
    if ahead:
        lake.merge(lake.loaded(), (3, "unpublished", False), pos=40)
    for _ in range(compactions):
        compact(lake)
    drop_branch(raw)
    if expired:
        expire(lake)
    main = raw().metadata.refs["main"].snapshot_id
    assert lake.open().inspect(lake.table) == Staged(before, main, main)
    assert STAGING not in raw().metadata.refs

    loaded = lake.loaded()
    assert (loaded.progress, loaded.published) == (before, main)
    assert raw().metadata.refs[STAGING].snapshot_id == loaded.version
    assert lake.loaded() == loaded
    lake.publish(lake.merge(loaded, (3, "c", False), pos=40))
    assert lake.seen() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_foreign_write_is_named_also_where_staging_is_gone(lake: Lake, raw: Raw) -> None:
    """The branch is not made anew on rows of someone else's."""
    lake.published((1, "a"))
    insert(lake)
    drop_branch(raw)
    with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote"):
        lake.open().recover(lake.table)


def test_staging_that_is_gone_in_mid_run_ends_the_run(lake: Lake, raw: Raw) -> None:
    """The next one makes it anew; nothing lands anywhere else."""
    staged = lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    drop_branch(raw)
    with pytest.raises(StaleWriter, match=f"{lake.table}: someone removed its branch {STAGING}; run the same"):
        lake.merge(staged, (3, "c", False), pos=40)
    assert lake.loaded().progress.position != staged.progress.position
    assert lake.seen() == [(1, "a")]


def test_an_unpublished_table_without_staging_begins_again(lake: Lake, raw: Raw) -> None:
    """Its rows and its progress were nowhere else; looking at it changes nothing."""
    lake.wave(lake.created(), [(1, "a")], upper=(5,))
    drop_branch(raw, BUILDING)
    assert lake.open().inspect(lake.table) is None
    assert raw(BUILDING)
    assert lake.open().recover(lake.table) is None
    lake.published((1, "a"), (2, "b"))
    assert lake.seen() == [(1, "a"), (2, "b")]


def test_main_rolled_back_to_an_older_publish_goes_forward_again(lake: Lake, raw: Raw) -> None:
    """The position is that of the commit, whatever the table's property says; staging is as far as it was."""
    first = lake.published((1, "a"), pos=20)
    second = lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    newest = progress_of(lake, second)
    roll_back(lake, first.version)
    assert "binlog.000001:30" in raw().properties["lakeingest.position"]
    assert lake.loaded() == Staged(newest, second.version, first.version)
    assert not lake.loaded().visible
    assert lake.seen() == [(1, "a")]
    lake.publish(lake.loaded())
    assert lake.seen() == [(1, "a"), (2, "b")]


@pytest.mark.long("takes seconds")
def test_the_next_commit_builds_on_a_compaction_of_an_older_publish(lake: Lake, compact: Compact) -> None:
    """What counts is what readers see: rolled back and compacted, the table goes on from the older position."""
    first = lake.published((1, "a"), pos=20)
    older = progress_of(lake, first)
    lake.publish(lake.merge(lake.loaded(), (2, "dropped", False), pos=30))
    roll_back(lake, first.version)
    compacted = compact(lake)
    loaded = lake.loaded()
    assert (loaded.progress, loaded.published) == (older, compacted)
    lake.publish(lake.merge(loaded, (2, "again", False), pos=40))
    assert lake.seen() == [(1, "a"), (2, "again")]


@pytest.mark.long("takes seconds")
def test_main_rolled_back_while_we_work_refuses_the_publish(lake: Lake) -> None:
    """Whoever moved it meant something by it: the next run finds out what readers see now."""
    first = lake.published((1, "a"), pos=20)
    second = lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    staged = lake.merge(lake.loaded(), (3, "c", False), pos=40)
    assert staged.published == second.version
    roll_back(lake, first.version)
    with pytest.raises(StaleWriter, match=str(lake.table)):
        lake.publish(staged)
    lake.publish(lake.loaded())
    assert lake.seen() == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.long("several compactions by Spark")
def test_expired_history_harms_nothing_that_is_needed(lake: Lake, raw: Raw, compact: Compact) -> None:
    """Someone keeps only the tips: of a table in mid-copy, of a published one, of a compacted one."""
    staged = lake.wave(lake.wave(lake.created(), [(1, "a")], upper=(5,)), [(5, "e")])
    expire(lake, raw(BUILDING))
    assert lake.loaded() == staged
    published = lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    expire(lake)
    assert lake.loaded().published == published.version
    compacted = compact(lake)
    expire(lake)
    assert lake.loaded().published == compacted
    lake.publish(lake.merge(lake.loaded(), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b"), (5, "e")]


@pytest.mark.parametrize("compactions", [1, 3])
@pytest.mark.long("compactions by Spark; test_partitions builds on one in every run")
def test_the_next_commit_builds_on_a_compaction_whose_origin_is_expired(
    lake: Lake, raw: Raw, compact: Compact, compactions: int
) -> None:
    """Not even staging holds on to the commit below it; the table's older metadata files still have it."""
    published = lake.published((1, "a"))
    before = progress_of(lake, published)
    lake.merge(published, (2, "unpublished", False), pos=30)
    for _ in range(compactions):
        compacted = compact(lake)
    expire(lake)
    assert raw().snapshot_by_id(published.version) is None
    loaded = lake.loaded()
    assert (loaded.progress, loaded.published) == (before, compacted)
    lake.publish(lake.merge(loaded, (2, "b", False), pos=30))
    assert lake.seen() == [(1, "a"), (2, "b")]


@pytest.mark.long("takes seconds")
def test_a_foreign_write_below_what_is_expired_is_named(lake: Lake, compact: Compact) -> None:
    """Between our commit and the compaction that is left it is found, though it is expired."""
    lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    insert(lake)
    compact(lake)
    expire(lake)
    with pytest.raises(ForeignWrite, match=f"{lake.table}: someone else wrote"):
        lake.open().recover(lake.table)


@pytest.mark.long("takes seconds")
def test_a_compaction_whose_origin_cannot_be_found_is_refused(lake: Lake, raw: Raw, compact: Compact) -> None:
    """When the older metadata files are gone too, nobody knows that it was ours."""
    lake.merge(lake.published((1, "a")), (2, "b", False), pos=30)
    compact(lake)
    expire(lake)
    for entry in raw().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file:")).unlink()
    with pytest.raises(StateUnreadable, match=f"{lake.table}: .* has been expired"):
        lake.open().recover(lake.table)
