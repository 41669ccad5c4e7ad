"""Rows that were read again, in the changelog: in their place, whole, and for as long as someone can be before them."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Choices, Column, Kind, TableSchema
from lakeingest.errors import ChangelogGone, StaleWriter, StateUnreadable
from lakeingest.files import file as files
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import VECTOR, table_schema
from lakeingest.spool import archive
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.spool.changes import BATCH_ROWS
from lakeingest.spool.held import Held
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.patch_files import PatchFolder
from lakeingest.spool.reread_files import FOLDER, RereadFolder, leftovers
from lakeingest.spool.spool import Spool
from tests.servers.stores import forget_kept
from tests.spool.test_archive import DAY, OPENED, SCHEMA, TABLE, grow, held, ids, place, read, rows, segment, spool

__all__ = ["spool"]

WIDE = TableSchema(
    TABLE,
    (
        *SCHEMA.columns,
        Column("v", Kind.STRING, source_type("varchar(9)"), nullable=False),
        Column("w", Kind.VECTOR, source_type("vector(2)"), nullable=False),
        Column("at", Kind.DATE, source_type("date"), nullable=True),
    ),
    ("id",),
)


def folder(spool: Spool) -> RereadFolder:
    """Of the table."""
    return RereadFolder.of(spool.folder, TABLE)


def reread(spool: Spool, number: int, ids: Sequence[int], *, files: int = 1, log: str = "") -> None:
    """A merge that ends where the segment of this number begins puts these rows into the copy."""
    patches = PatchFolder.of(spool.folder.parent, SCHEMA)
    name = patches.write_rows(1, pa.table({"id": pa.array(ids, pa.int32())}, schema=table_schema(SCHEMA)))
    stop, log = place(number), log or archive.ensure_name(spool.folder)
    first = folder(spool).next_number(stop, log)
    parts = np.array_split(np.arange(len(ids)), files)
    written = [folder(spool).write([(patches.file(name), part)], SCHEMA, stop, first + int(part[0])) for part in parts]
    folder(spool).add(ReadTo(stop, log=log, reread=first), written)


def at(number: int, row: int) -> ReadTo:
    """The position of a row that was read again where the segment of this number begins."""
    return ReadTo(place(number), reread=row)


@pytest.mark.long("takes seconds", only=("s3",))
def test_they_come_after_their_stop_and_before_what_comes_next(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any position, whether the segments are in the spool, in the archive, or put together around them."""
    monkeypatch.setattr(archive, "JOIN", 4)
    wanted = rows(range(1))
    spool.append([segment(spool, 0)])
    for number in range(1, 9):
        ids = [number * 100 + 50, number * 100 + 51, number * 100 + 52]
        reread(spool, number, ids, files=2)
        spool.append([segment(spool, number)])
        wanted += ids + rows(range(number, number + 1))
    assert read(spool) == wanted
    for number in range(1, 9):
        rest = wanted[5 * number - 3 :]
        assert read(spool, ReadTo(place(number))) == rest
        for row in range(3):
            assert read(spool, at(number, row)) == rest[row + 1 :]
        assert read(spool, ReadTo(Place(1, 7, 10 * number + 5), 0)) == rest[4:]
        spool.forget(place(number), DAY)
        assert read(spool) == wanted
    assert {one.level for one in archive.all_archived(spool.folder)} == {1}


def test_those_of_one_stop_are_numbered_on(spool: Spool) -> None:
    """Several merges end where the source is quiet; a reader at the spool's end gets each row once."""
    spool.append([segment(spool, 0)])
    log = StoredChangelog(spool.folder)
    since, got = ReadTo(place(1)), list[int]()
    for number in range(3):
        reread(spool, 1, [number, 10 + number])
        with log.opened(TABLE, since, archive.name_of(spool.folder)) as changes:
            assert changes.end == place(1)
            got += ids(changes.rows())
            since = changes.read_to
    assert got == [0, 10, 1, 11, 2, 12]
    assert since == replace(at(1, 5), log=archive.name_of(spool.folder))
    assert read(spool, since) == []
    with pytest.raises(StaleWriter):
        folder(spool).add(replace(since, reread=4), [])


def test_a_part_up_to_a_place_ends_before_what_was_read_again_there(spool: Spool) -> None:
    """A copy as of the place comes in between: it has these rows, or those from before."""
    spool.append([segment(spool, 0), segment(spool, 1)])
    reread(spool, 2, [7])
    with StoredChangelog(spool.folder).opened(TABLE, ReadTo(place(0)), archive.name_of(spool.folder)) as changes:
        before = ids(changes.rows(stop=place(2)))
        after = ids(changes.rows(ReadTo(place(2))))
    assert (before, after) == (rows(range(2)), [7])


def test_many_rows_are_read_in_batches(spool: Spool) -> None:
    """And a reader goes on within them."""
    count = 3 * BATCH_ROWS
    spool.append([segment(spool, 0)])
    reread(spool, 1, range(count), files=2)
    assert read(spool, ReadTo(place(1))) == list(range(count))
    assert read(spool, at(1, count - 10)) == list(range(count - 9, count))


@pytest.mark.parametrize("soft", [False, True])
def test_a_key_without_a_row_comes_alone(spool: Spool, soft: bool) -> None:  # noqa: FBT001
    """With NULL in all other columns, not with the values that fill a patch; where they are known, with them."""
    schema = replace(WIDE, choices=Choices(deletes="soft")) if soft else WIDE
    patches = PatchFolder.of(spool.folder.parent, schema)
    row = {"id": 1, "v": "one", "w": [1.0, 2.0], "at": None}
    known = pa.Table.from_pylist([row], table_schema(schema))
    gone = patches.write_absent(1, known if soft else known.select(["id"]))
    patched = [(patches.file(patches.write_rows(1, known)), np.array([0])), (patches.file(gone), np.array([0]))]
    name, count = folder(spool).write(patched, schema, place(0), 0)
    with files.parquet(folder(spool).path / name) as opened:
        found = opened.read()
    assert count == 2
    assert found.schema.field("w").type == VECTOR
    rows = found.to_pylist()
    origin = {change.EPOCH: 1, change.FILE: 7, change.POS: 0, change.COMMITTED_AT: None, change.GTID: None}
    alone = row if soft else {"id": 1, "v": None, "w": None, "at": None}
    assert rows == [
        {change.KIND: RowKind.INSERT, change.ORDINAL: 0, **origin, **row},
        {change.KIND: RowKind.DELETE, change.ORDINAL: 1, **origin, **alone},
    ]


def test_they_go_when_no_reader_can_be_before_them(spool: Spool) -> None:
    """With the segments that begin at their stop or before; their files go, too."""
    spool.append([segment(spool, number) for number in range(2)])
    reread(spool, 1, [1])
    reread(spool, 2, [2])
    spool.forget(place(2))
    assert read(spool) == [2]
    assert len(folder(spool).path.listed("*")) == 2
    grow(spool, range(2, 3), timedelta(0))
    assert folder(spool).path.listed("*") == []


def test_another_changelog_does_not_have_them(spool: Spool) -> None:
    """Neither when the spool is opened anew, nor rows that a version left which does not know them."""
    spool.append([segment(spool, 0)])
    reread(spool, 1, [1])
    again = Spool.open(spool.folder, OPENED)
    assert folder(again).path.listed("*") == []
    again.append([segment(again, 0)])
    reread(again, 1, [2], log="0ther")
    assert read(again) == rows(range(1))
    reread(again, 1, [3])
    assert read(again) == [*rows(range(1)), 3]
    grow(again, range(1, 2), DAY)
    assert len(folder(again).path.listed("*")) == 2


def test_a_spool_whose_run_died_before_it_gave_a_name_gets_one(spool: Spool) -> None:
    """So that they belong to the changelog that readers find from then on."""
    (spool.folder / "archive" / "id.json").delete()
    spool.append([segment(spool, 0)])
    reread(spool, 1, [1])
    grow(spool, range(1, 2), DAY)
    assert read(spool, ReadTo(place(1))) == [1, *rows(range(1, 2))]


def test_a_listing_that_lacks_one_is_made_again(spool: Spool) -> None:
    """Two merges that end at one stop while the folder is read: the second may be seen without the first."""
    spool.append([segment(spool, 0)])
    reread(spool, 1, [1])
    reread(spool, 1, [2])
    [first, _] = folder(spool).path.listed("*.json")
    hidden = first.with_suffix(".away")
    first.move_to(hidden)
    log, name = folder(spool), archive.name_of(spool.folder)
    with pytest.raises(FileNotFoundError):
        log.files_after(ReadTo(place(1), log=name), place(1))
    hidden.move_to(first)
    assert len(log.files_after(ReadTo(place(1), log=name), place(1))) == 2


def test_a_reader_that_lists_while_they_are_removed_does_not_miss_them(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment without a change of the table is no file that it would miss: it looks whether the segment is there."""
    spool.append([segment(spool, 0), segment(spool, 1, rows=0), segment(spool, 2)])
    reread(spool, 1, [1])
    name, real = archive.name_of(spool.folder), RereadFolder.files_after

    def late(log: RereadFolder, since: ReadTo, end: Place) -> list[object]:
        spool.forget(place(2))
        return list(real(log, since, end))

    monkeypatch.setattr(RereadFolder, "files_after", late)
    with (
        pytest.raises(ChangelogGone, match="the oldest position is"),
        StoredChangelog(spool.folder).opened(TABLE, ReadTo(place(1)), name),
    ):
        pass


def test_what_comes_while_a_reader_lists_is_for_the_next_time(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segments were listed before: rows as of a later place come after changes that it has not listed."""
    spool.append([segment(spool, 0)])
    found, real = held(spool), StoredChangelog.held
    lists = [found]

    def early(log: StoredChangelog) -> Held | None:
        return lists.pop() if lists else real(log)

    spool.append([segment(spool, 1)])
    reread(spool, 2, [2])
    monkeypatch.setattr(StoredChangelog, "held", early)
    with StoredChangelog(spool.folder).opened(TABLE, ReadTo(place(0)), found.name) as changes:
        assert ids(changes.rows()) == rows(range(1))
        assert changes.read_to == ReadTo(place(1))
    assert read(spool, changes.read_to) == [*rows(range(1, 2)), 2]


def test_a_slow_reader_that_nobody_waits_for_falls_behind(spool: Spool) -> None:
    """ChangelogGone, not a hole: what it has listed is removed before it is read."""
    spool.append([segment(spool, 0)])
    reread(spool, 1, [1])
    with StoredChangelog(spool.folder).opened(TABLE, ReadTo(place(1)), archive.name_of(spool.folder)) as changes:
        grow(spool, range(1, 2), timedelta(0))
        forget_kept()
        with pytest.raises(ChangelogGone, match=r"shop\.t: rows that were read again at 0{5}1\..*reread\.0{10}-"):
            list(changes.rows())


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_torn_file_is_an_error_that_names_it(spool: Spool, suffix: str) -> None:
    """No row is left out in silence."""
    spool.append([segment(spool, 0)])
    reread(spool, 1, [1])
    [file] = folder(spool).path.listed(f"*.{suffix}")
    file.write(file.read()[:-3])
    forget_kept()
    with pytest.raises(StateUnreadable, match=rf"{file.name}, which holds rows that were read again, cannot be read"):
        read(spool)
    assert sweep(spool, timedelta(0)) == (0, 0)
    spool.append([segment(spool, 1)])
    spool.forget(place(2))
    assert read(spool) == []


def test_what_a_killed_merge_left_is_swept(spool: Spool) -> None:
    """A file that no document names is seen by no reader; it goes with the other leftovers."""
    spool.append([segment(spool, 0)])
    reread(spool, 1, [1])
    left = folder(spool).path / "0123.parquet"
    left.write(b"half of it")
    assert read(spool) == [*rows(range(1)), 1]
    assert list(leftovers(spool.folder)) == [left]
    assert sweep(spool, timedelta(hours=1)) == (0, 0)
    time.sleep(1.1)  # a store tells seconds
    assert sweep(spool, timedelta(0)) == (1, 10)
    assert read(spool) == [*rows(range(1)), 1]
    assert not isinstance(spool.folder, Path) or (spool.folder / FOLDER).is_dir()
