"""The archive: what merges no longer need stays readable for as long as it is asked for, beside whoever writes."""

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet, Place, Position
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import ChangelogGone
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import TRANSACTIONS, change_schema
from lakeingest.spool import archive
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.spool.followed import Altered
from lakeingest.spool.held import Held
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.readers import GONE_SECONDS, reading
from lakeingest.spool.spool import Spool
from tests.servers.stores import forget_kept, killed_at

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TABLE, OTHER = TableId("shop", "t"), TableId("shop", "other")
SCHEMA = TableSchema(TABLE, (Column("id", Kind.INT32, source_type("int"), nullable=False),), ("id",))
OPENED = Position(UUID, 1, FilePosition("binlog.000007", 0), GtidSet.parse(f"{UUID}:1-10"))
DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


def segment(spool: Spool, number: int, *, rows: int = 2, at: int = 5, **tables: bool) -> Manifest:
    """The segment of this number: 10 bytes of the binlog with one transaction, which inserts some rows.

    `at` is the byte that is the transaction's place: the last one where it ends the segment.
    """
    place = {change.EPOCH: 1, change.FILE: 7, change.POS: number * 10 + at}
    gtid = Gtid(UUID, 11 + number)
    committed_at = START + timedelta(minutes=number)
    transaction = {"uuid": UUID, "tag": "", "number": gtid.number, "epoch": 1, "file": 7, "pos": number * 10 + at}
    name = f"data/{number}-{time.monotonic_ns()}"
    with files.written(spool.folder / f"{name}.parquet") as path:
        pq.write_table(pa.Table.from_pylist([transaction | {"committed_at": committed_at}], TRANSACTIONS), path)
    changes = [
        place
        | {change.KIND: 0, change.ORDINAL: row, change.COMMITTED_AT: committed_at, change.GTID: str(gtid)}
        | {"id": number * 100 + row}
        for row in range(rows)
    ]
    if rows:
        with files.written(spool.folder / f"{name}-t.parquet") as path:
            pq.write_table(pa.Table.from_pylist(changes, change_schema(SCHEMA)), path)
    ours = (f"{name}-t.parquet", rows) if rows else None
    watched = {TABLE: ours} | {TableId("shop", table): None for table, has in tables.items() if has}
    return Manifest(
        FilePosition("binlog.000007", number * 10),
        FilePosition("binlog.000007", number * 10 + 10),
        GtidSet.of_gtids([gtid]),
        f"{name}.parquet",
        watched,
    )


def place(number: int) -> Place:
    """Where the segment of this number begins."""
    return Place(1, 7, number * 10)


@pytest.fixture
def spool(shared_folder: File) -> Spool:
    """An empty one."""
    return Spool.open(shared_folder / "spool", OPENED)


@pytest.fixture
def local_spool(tmp_path: Local) -> Spool:
    """An empty one on this machine, where a test can say how old a file is."""
    return Spool.open(tmp_path / "spool", OPENED)


def grow(spool: Spool, numbers: range, keep: timedelta = DAY) -> None:
    """A run that follows: each segment is appended, and then no merge needs it."""
    for number in numbers:
        spool.append([segment(spool, number)])
        spool.forget(place(number + 1), keep)


def held(spool: Spool) -> Held:
    """All that a reader finds."""
    found = StoredChangelog(spool.folder).held()
    assert found is not None
    return found


def ids(parts: Iterable[Any]) -> list[int]:
    """The keys of all rows; DDL has none."""
    return [row for part in parts if not isinstance(part, Altered) for row in part["id"].to_pylist()]


def read(spool: Spool, since: ReadTo | None = None) -> list[int]:
    """The rows that a reader gets."""
    log = StoredChangelog(spool.folder)
    found = held(spool)
    with log.opened(TABLE, since or ReadTo(found.stretch(TABLE).start), found.name) as changes:
        return ids(changes.rows())


def rows(numbers: range) -> list[int]:
    """The rows of these segments."""
    return [number * 100 + row for number in numbers for row in range(2)]


def test_what_is_archived_is_read_with_the_spool_as_one(spool: Spool) -> None:
    """In order, from any place; a run that loads the spool sees nothing of the archive."""
    spool.append([segment(spool, number) for number in range(5)])
    spool.forget(place(3), DAY)
    assert read(spool) == rows(range(5))
    assert read(spool, ReadTo(place(2))) == rows(range(2, 5))
    assert read(spool, ReadTo(Place(1, 7, 25), 0)) == [201, *rows(range(3, 5))]
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert loaded.start == place(3)
    assert loaded.position == spool.position
    assert held(spool).end.gtids == spool.position.gtids


def test_the_rest_of_a_transaction_that_ends_its_segment_is_read(spool: Spool) -> None:
    """The transaction's place is the end of the segment then; in the spool and in the archive."""
    spool.append([segment(spool, number, at=10) for number in range(3)])
    for _ in range(2):
        assert read(spool, ReadTo(place(2), 0)) == [101, *rows(range(2, 3))]
        assert read(spool, ReadTo(place(2))) == rows(range(2, 3))
        spool.forget(place(2), DAY)


def test_a_rest_of_a_transaction_that_is_no_longer_held_is_an_error(spool: Spool) -> None:
    """What comes after the transaction is held, and can be read."""
    spool.append([segment(spool, number, at=10) for number in range(3)])
    spool.forget(place(2))
    with pytest.raises(ChangelogGone, match=r"the changes after 000001\.0000000007\.0+20\.0{10} are no longer held"):
        read(spool, ReadTo(place(2), 0))
    assert read(spool, ReadTo(place(2))) == rows(range(2, 3))


def test_without_time_nothing_is_archived(spool: Spool) -> None:
    """As it was without an archive: manifests and files are gone."""
    spool.append([segment(spool, number) for number in range(3)])
    spool.forget(place(2))
    assert read(spool) == rows(range(2, 3))
    assert len((spool.folder / "data").listed("*")) == 2
    assert held(spool).start == place(2)


def test_old_segments_are_removed(local_spool: Spool) -> None:
    """By the time at which they were spooled; one that is younger keeps all that come after it."""
    local_spool.append([segment(local_spool, number) for number in range(4)])
    local_spool.forget(place(3), DAY)
    long_ago = time.time() - 2 * DAY.total_seconds()
    for one in archive.all_archived(local_spool.folder)[:2]:
        one.file.set_changed(long_ago)
    grow(local_spool, range(4, 5))
    assert read(local_spool) == rows(range(2, 5))
    with pytest.raises(ChangelogGone, match=r"shop\.t: the changes after 000001\.0000000007\.0+10\.rows\.end are no"):
        read(local_spool, ReadTo(place(1)))


def test_a_fast_clock_of_this_machine_removes_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store, times of files are of the store's clock."""
    fast = SimpleNamespace(time=lambda: time.time() + 2 * DAY.total_seconds())
    monkeypatch.setattr(archive, "time", fast)
    grow(spool, range(3))
    assert read(spool) == rows(range(3))


def test_many_small_segments_are_put_together(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of files stays small; rows, GTIDs and times are what they were, in order."""
    monkeypatch.setattr(archive, "JOIN", 4)
    grow(spool, range(50))
    assert read(spool) == rows(range(50))
    levels = [one.level for one in archive.all_archived(spool.folder)]
    assert levels == sorted(levels, reverse=True)
    assert len(levels) < 3 + 3 + 50 // 16 + 1
    assert len((spool.folder / "data").listed("*")) == 2 * len(levels)
    log, found = StoredChangelog(spool.folder), held(spool)
    assert found.gtids == OPENED.gtids
    assert log.place_of_gtids(found, GtidSet.parse(f"{UUID}:1-30")) == Place(1, 7, 195)
    assert log.place_of_gtids(found, GtidSet.parse(f"{UUID}:2-30")) is None
    assert log.place_of_time(found, START + timedelta(minutes=19)) == Place(1, 7, 195)
    assert log.place_of_time(found, START - timedelta(minutes=1)) is None
    assert log.place_of_time(found, START + DAY) == found.end.place


def test_a_large_segment_stays_as_it_is(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody rewrites it; its small neighbours are put together around it."""
    monkeypatch.setattr(archive, "JOIN", 4)
    monkeypatch.setattr(archive, "LARGE_BYTES", 50_000)
    spool.append([segment(spool, number, rows=20_000 if number == 3 else 2) for number in range(8)])
    spool.forget(place(8), DAY)
    names = [(one.start, one.stop, one.level) for one in archive.all_archived(spool.folder)]
    assert names == [(place(0), place(3), 1), (place(3), place(4), 2), (place(4), place(8), 1)]
    assert len(read(spool)) == 7 * 2 + 20_000


def test_segments_that_watch_other_tables_are_kept_apart(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is covered from where it was watched on, not earlier."""
    monkeypatch.setattr(archive, "JOIN", 4)
    spool.append([segment(spool, 0), segment(spool, 1), segment(spool, 2, other=True), segment(spool, 3, other=True)])
    spool.forget(place(4), DAY)
    assert [(one.start, one.stop) for one in archive.all_archived(spool.folder)] == [
        (place(0), place(2)),
        (place(2), place(4)),
    ]
    assert (held(spool).stretch(TABLE).start, held(spool).stretch(OTHER).start) == (place(0), place(2))


@pytest.mark.parametrize("steps", range(22))
@pytest.mark.long("each step in one place in turn", turn="shared_folder")
def test_a_crash_at_any_step_loses_nothing(spool: Spool, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Killed at each change of a name, on disk or in the store: a reader gets every row once; the next run ends it."""
    monkeypatch.setattr(archive, "JOIN", 4)
    grow(spool, range(3))
    spool.append([segment(spool, number) for number in range(3, 6)])
    with killed_at(steps) as left:
        spool.forget(place(5), DAY)
        assert left[0] == 0
    assert read(spool) == rows(range(6))
    again = Spool.load(spool.folder)
    assert again is not None
    again.append([segment(again, 6)])
    again.forget(place(7), DAY)
    assert read(again) == rows(range(7))
    places = [(one.start, one.stop) for one in archive.all_archived(spool.folder)]
    assert all(one[1] == other[0] for one, other in pairwise(places))
    assert not (spool.folder / "segments").listed("*.json")


def test_a_table_that_stopped_can_be_read_to_where_it_was_watched_last(spool: Spool) -> None:
    """Not further: where it is watched again after a gap, a reader from before has missed something."""
    spool.append([segment(spool, number, other=number < 3) for number in range(5)])
    spool.forget(place(5), DAY)
    log, found = StoredChangelog(spool.folder), held(spool)
    assert (found.stretch(OTHER).start, found.stretch(OTHER).end) == (place(0), place(3))
    with log.opened(OTHER, ReadTo(place(1)), found.name) as changes:
        assert changes.end == place(3)
    spool.append([segment(spool, 5, other=True)])
    with pytest.raises(ChangelogGone), log.opened(OTHER, ReadTo(place(3)), found.name):
        pass


def test_a_spool_that_is_opened_anew_begins_another_changelog(spool: Spool) -> None:
    """A reader of the one before cannot go on, wherever it is: its positions may mean something else now."""
    grow(spool, range(3))
    log, name = StoredChangelog(spool.folder), held(spool).name
    again = Spool.open(spool.folder, OPENED)
    assert held(again).name != name
    assert not archive.all_archived(spool.folder)
    with (
        pytest.raises(ChangelogGone, match="the spool was begun anew since position"),
        log.opened(TABLE, ReadTo(place(3)), name),
    ):
        pass


def test_what_a_reader_at_work_needs_stays(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without any time to keep changes; when it has read them, or ended, they go."""
    spool.append([segment(spool, 0)])
    with reading(spool.folder) as reader:
        grow(spool, range(1, 5), timedelta(0))
        assert read(spool) == rows(range(5))
        monkeypatch.setattr("lakeingest.spool.readers.TOUCH_SECONDS", -1)
        reader.has_read(place(3))
        grow(spool, range(5, 6), timedelta(0))
        assert read(spool) == rows(range(3, 6))
    grow(spool, range(6, 7), timedelta(0))
    assert read(spool) == []
    assert len((spool.folder / "data").listed("*")) == 0


def test_a_reader_is_seen_at_once_on_a_machine_that_has_just_started(
    local_spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a machine may count from its start."""
    monkeypatch.setattr("lakeingest.spool.readers.time.monotonic", lambda: 5.0)
    with reading(local_spool.folder):
        assert len((local_spool.folder / "archive" / "readers").listed("*.txt")) == 1


@pytest.mark.parametrize("seconds", [GONE_SECONDS + 1, -86_400])
def test_a_reader_that_is_gone_holds_nothing(local_spool: Spool, seconds: float) -> None:
    """One that was killed does not end its file; it is not touched any more, though a clock may be set back since."""
    with reading(local_spool.folder):
        [file] = (local_spool.folder / "archive" / "readers").listed("*.txt")
        file.set_changed(time.time() - seconds)
        grow(local_spool, range(3), timedelta(0))
        assert read(local_spool) == []
        assert not file.exists()


def test_a_reader_reads_on_while_segments_are_moved(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has opened stays readable; what it opens later is found where it is by then."""
    monkeypatch.setattr(archive, "JOIN", 4)
    grow(spool, range(3))
    log, found = StoredChangelog(spool.folder), held(spool)
    with log.opened(TABLE, ReadTo(place(0)), found.name) as changes:
        grow(spool, range(3, 20))
        assert ids(changes.rows()) == rows(range(3))
    with log.opened(TABLE, ReadTo(changes.end), found.name) as changes:
        assert ids(changes.rows()) == rows(range(3, 20))


def test_files_that_vanish_under_a_reader_are_looked_for_again(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list was of before they were put together."""
    monkeypatch.setattr(archive, "JOIN", 4)
    grow(spool, range(3))
    log, found = StoredChangelog(spool.folder), held(spool)
    lists = [found]
    real = StoredChangelog.held

    def late(log: StoredChangelog) -> Held | None:
        return lists.pop() if lists else real(log)

    grow(spool, range(3, 6))
    forget_kept()
    monkeypatch.setattr(StoredChangelog, "held", late)
    with log.opened(TABLE, ReadTo(place(1)), found.name) as changes:
        assert ids(changes.rows()) == rows(range(1, 6))


def test_a_spool_whose_run_died_before_it_gave_a_name_gets_its_archive(spool: Spool) -> None:
    """It has no name until the first segment is archived."""
    spool.append([segment(spool, number) for number in range(2)])
    (spool.folder / "archive" / "id.json").delete()
    if isinstance(spool.folder, Path):
        (spool.folder / "archive").rmdir()
    assert held(spool).name == ""
    assert read(spool) == rows(range(2))
    spool.forget(place(2), DAY)
    assert held(spool).name
    assert read(spool) == rows(range(2))


def test_a_sweep_leaves_what_is_archived(spool: Spool) -> None:
    """Only files that neither the spool nor the archive names are of killed tasks."""
    grow(spool, range(3))
    stray = spool.folder / "data" / "stray.parquet"
    stray.write(b"x")
    assert sweep(spool, timedelta(seconds=-1)) == (1, 1)
    assert read(spool) == rows(range(3))


def test_a_spool_that_reaches_back_begins_the_changelog_of_other_tables_after_that_part(spool: Spool) -> None:
    """Also when a run was killed while it archived; readers that were past that part go on, others get an error."""
    grow(spool, range(2))
    spool.append([segment(spool, number) for number in range(2, 5)])
    manifest = spool.folder / "segments" / "000003.json"
    killed = manifest.read()
    spool.forget(place(3), DAY)
    manifest.write(killed)
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    name, new = held(loaded).name, TableId("shop", "new")
    whole = replace(segment(loaded, 0, rows=0, new=True), stop=FilePosition("binlog.000007", 30))
    loaded.reach_back(
        Position(UUID, 1, FilePosition("binlog.000007", 0), GtidSet()),
        replace(whole, tables={new: None}),
    )
    assert not archive.all_archived(spool.folder)
    again = Spool.load(spool.folder)
    assert again is not None
    assert (again.start, again.watched_from(TABLE), again.watched_from(new)) == (place(0), place(3), place(5))
    assert (held(again).name, held(again).stretch(TABLE).start) == (name, place(3))
    assert read(again, ReadTo(place(3))) == rows(range(3, 5))
    with pytest.raises(ChangelogGone):
        read(again, ReadTo(place(2)))
    again.append([segment(again, 5)])
    again.forget(place(4), DAY)
    assert read(again, ReadTo(place(3))) == rows(range(3, 6))


def test_the_names_in_the_archive_are_on_the_disk(tmp_path: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spool's folder is synced with the next segment: the archive must not know less than it has forgotten."""
    synced: dict[int, int] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_mtime_ns

    spool = Spool.open(tmp_path / "spool", OPENED)
    monkeypatch.setattr(os, "fsync", fsync)
    grow(spool, range(3))
    folder = (tmp_path / "spool" / "archive").stat()
    assert synced.get(folder.st_ino) == folder.st_mtime_ns
