"""The spool on disk: what it holds, what it refuses, and how it survives being interrupted."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet, Place, Position
from lakeingest.core.copies.prepared import Pending, Prepared, Xid
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.s3 import LocalS3
from lakeingest.errors import SpoolGap, StaleWriter, StateUnreadable, StorageFailed
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.rows import TRANSACTIONS
from lakeingest.spool import transaction_files
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.readers import reading
from lakeingest.spool.spool import Spool
from lakeingest.spool.thinning import thin
from lakeingest.spool.transaction_files import log_of
from tests.servers.stores import forget_kept, stored_in

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ORDERS, ITEMS, LATE = TableId("shop", "orders"), TableId("shop", "items"), TableId("shop", "late")
OPENED = Position(UUID, 1, FilePosition("binlog.000007", 4), GtidSet.parse(f"{UUID}:1-10"))


def place(pos: int, file: int = 7) -> Place:
    """A place in the spool's epoch."""
    return Place(1, file, pos)


def segment(folder: File, start: int, stop: int, gtids: range, **tables: int | None) -> Manifest:
    """A segment of one file with a transaction for each GTID, spread evenly; `tables` are counts of change rows."""
    step = (stop - start) // max(len(gtids), 1)
    rows = [
        {"uuid": UUID, "tag": "", "number": number, "epoch": 1, "file": 7, "pos": start + step * nth, "committed_at": 0}
        for nth, number in enumerate(gtids, start=1)
    ]
    name = f"data/{start}-{stop}"
    with files.written(folder / f"{name}.parquet") as path:
        pq.write_table(pa.Table.from_pylist(rows, TRANSACTIONS), path)
    entries: dict[TableId, tuple[str, int] | None] = {}
    for table, count in tables.items():
        file = f"{name}-{table}.parquet"
        if count is not None:
            with files.written(folder / file) as path:
                pq.write_table(pa.table({"id": range(count)}), path)
        entries[TableId("shop", table)] = None if count is None else (file, count)
    return Manifest(
        FilePosition("binlog.000007", start),
        FilePosition("binlog.000007", stop),
        GtidSet.of_gtids(Gtid(UUID, number) for number in gtids),
        f"{name}.parquet",
        entries,
    )


@pytest.fixture
def spool(shared_folder: File) -> Spool:
    """Three segments: orders are in the first and the last, items in the first two, `late` joins with the last."""
    return filled(shared_folder / "spool")


@pytest.fixture
def local_spool(tmp_path: Local) -> Spool:
    """The same on this machine."""
    return filled(tmp_path / "spool")


def filled(folder: File) -> Spool:
    """A spool with these segments."""
    spool = Spool.open(folder, OPENED)
    spool.append([segment(spool.folder, 4, 100, range(11, 15), orders=5, items=2)])
    spool.append(
        [
            segment(spool.folder, 100, 200, range(15, 17), orders=None, items=3),
            segment(spool.folder, 200, 300, range(17, 18), orders=7, items=None, late=1),
        ]
    )
    return spool


def state(spool: Spool) -> tuple[object, ...]:
    """All that can be asked of a spool."""
    return (spool.opened, spool.position, *(spool.backlog(table, spool.start) for table in (ORDERS, ITEMS, LATE)))


def read_again(folder: File) -> None:
    """Load all that the driver reads of a spool, for low watermarks within its segments."""
    forget_kept()
    loaded = Spool.load(folder)
    assert loaded is not None
    log_of(loaded).places([GtidSet.parse(f"{UUID}:1-{last}") for last in (11, 15)], loaded.start)


def test_an_empty_spool_ends_where_it_begins(tmp_path: Local) -> None:
    """Opened, it has no segment; where none was opened there is none to load."""
    assert Spool.load(tmp_path / "spool") is None
    spool = Spool.open(tmp_path / "spool", OPENED)
    assert (spool.start, spool.position) == (place(4), OPENED)
    loaded = Spool.load(tmp_path / "spool")
    assert loaded is not None
    assert state(loaded) == state(spool)


def test_what_is_appended_is_loaded_again(spool: Spool) -> None:
    """The position is the stop of the last segment with all GTIDs up to there; a second process sees the same."""
    assert spool.position == Position(UUID, 1, FilePosition("binlog.000007", 300), GtidSet.parse(f"{UUID}:1-17"))
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == state(spool)
    assert loaded.files(ORDERS, place(4), place(300)) == spool.files(ORDERS, place(4), place(300))


def test_a_spool_without_gtids_has_none(tmp_path: Local) -> None:
    """Positions stay without GTIDs, however many segments follow."""
    spool = Spool.open(tmp_path, Position(UUID, 1, FilePosition("binlog.000007", 4), None))
    spool.append([segment(spool.folder, 4, 100, range(0), orders=1)])
    spool.forget(place(100))
    assert spool.position == Position(UUID, 1, FilePosition("binlog.000007", 100), None)
    loaded = Spool.load(tmp_path)
    assert loaded is not None
    assert loaded.position == spool.position


def test_a_segment_must_continue_the_last(spool: Spool) -> None:
    """Neither a gap nor an overlap becomes part of the spool."""
    before = state(spool)
    for start in (200, 299, 301):
        with pytest.raises(SpoolGap, match=f"binlog.000007:{start} does not continue binlog.000007:300"):
            spool.append([segment(spool.folder, start, 400, range(18, 19), orders=1)])
    assert state(spool) == before
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == before


def test_a_second_run_cannot_continue_the_same_spool(spool: Spool) -> None:
    """Of two runs that loaded it one appends; the other is refused, and no word of the first one's is replaced."""
    late = Spool.load(spool.folder)
    assert late is not None
    spool.append([segment(spool.folder, 300, 400, range(18, 20), orders=1)])
    before = state(late)
    for _ in range(2):
        with pytest.raises(StaleWriter, match=r"another run continued the spool .*000004\.json"):
            late.append([segment(spool.folder, 300, 350, range(18, 19), orders=1)])
    assert state(late) == before
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == state(spool)
    assert not (spool.folder / "segments").listed("*.new")


def test_a_manifest_is_whole_when_it_exists(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash before it stands under its name leaves the spool as it was, and the next run is not in its way."""
    before = state(spool)

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", crash)
        patched.setattr(Path, "unlink", crash)  # a process that is killed does not clean up
        with pytest.raises(KeyboardInterrupt):
            spool.append([segment(spool.folder, 300, 400, range(18, 20), orders=1)])
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == before
    loaded.append([segment(spool.folder, 300, 400, range(18, 20), orders=1)])
    again = Spool.load(spool.folder)
    assert again is not None
    assert state(again) == state(loaded)


def test_only_the_files_of_the_wanted_changes_are_listed(spool: Spool) -> None:
    """A segment counts when it holds a change after `after` and up to `stop`; one without changes has no file."""

    def names(table: TableId, after: int, stop: int) -> list[str]:
        return [file.name for file in spool.files(table, place(after), place(stop))]

    assert names(ORDERS, 4, 300) == ["4-100-orders.parquet", "200-300-orders.parquet"]
    assert names(ITEMS, 4, 300) == ["4-100-items.parquet", "100-200-items.parquet"]
    assert names(ITEMS, 100, 200) == ["100-200-items.parquet"]
    assert names(ITEMS, 99, 101) == ["4-100-items.parquet", "100-200-items.parquet"]
    assert names(LATE, 200, 300) == ["200-300-late.parquet"]
    assert names(ORDERS, 300, 300) == []
    assert all(file.exists() for file in spool.files(ORDERS, place(4), place(300)))


def test_the_names_of_a_segments_files_are_on_the_disk_before_its_manifest(
    tmp_path: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss leaves no manifest without its files; those of a new spool's folders are safe too."""
    synced: dict[int, int] = {}
    real, link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_mtime_ns

    def look(new: Path, path: Path) -> None:
        for folder in (tmp_path, tmp_path / "spool", tmp_path / "spool" / "data"):
            status = folder.stat()
            assert synced.get(status.st_ino) == status.st_mtime_ns, f"{folder} was not synced"
        link(new, path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", look)
    spool = Spool.open(tmp_path / "spool", OPENED)
    spool.append([segment(spool.folder, 4, 100, range(11, 15), orders=5)])


@pytest.mark.parametrize(
    ("table", "after", "stop", "why"),
    [
        (ORDERS, place(3), place(300), "shop.orders needs changes from"),
        (ORDERS, place(200, file=6), place(300), "the spool holds"),
        (ORDERS, place(4), place(301), "binlog.000007:300"),
        (ORDERS, place(4), place(4, file=8), "shop.orders needs changes"),
        (LATE, place(199), place(300), "shop.late was not watched from binlog.000007:100 to binlog.000007:200"),
        (TableId("shop", "other"), place(200), place(300), "shop.other was not watched"),
    ],
)
def test_missing_changes_are_a_gap(spool: Spool, table: TableId, after: Place, stop: Place, why: str) -> None:
    """A mark before the spool, a stop beyond it, and a segment that did not watch the table are refused."""
    with pytest.raises(SpoolGap, match=why):
        spool.files(table, after, stop)


def test_the_backlog_counts_change_rows(spool: Spool) -> None:
    """Rows of segments that end after the place, and begin before the stop; a table that was not watched has none."""
    assert [spool.backlog(ORDERS, place(pos)) for pos in (4, 99, 100, 299, 300)] == [12, 12, 7, 7, 0]
    assert [spool.backlog(ORDERS, place(4), place(pos)) for pos in (4, 100, 200, 201, 300)] == [0, 5, 5, 12, 12]
    assert [spool.backlog(LATE, place(pos)) for pos in (4, 300)] == [1, 0]


def test_the_log_knows_the_transactions_in_order(spool: Spool) -> None:
    """A low watermark is resolved to the place of its last transaction; what is no prefix of the log is refused."""
    log = log_of(spool)
    lows = [GtidSet.parse(f"{UUID}:1-{last}") for last in (10, 11, 14, 16, 17, 99)]
    found = log.places(lows, spool.start)
    assert [found[low] for low in lows] == [place(4), place(28), place(100), place(200), place(300), place(300)]
    with pytest.raises(StateUnreadable, match="binlog_order_commits"):
        log.places([GtidSet.parse(f"{UUID}:1-11:13")], spool.start)
    with pytest.raises(SpoolGap):
        log.places([GtidSet.parse(f"{UUID}:1-9")], spool.start)


def test_a_log_of_many_segments_opens_only_the_one_that_a_low_ends_in(tmp_path: Local) -> None:
    """Of 200 segments 199 lose their file of transactions, and nobody misses them; the other one is read."""
    spool = Spool.open(tmp_path, OPENED)
    spool.append([segment(tmp_path, 4 + 100 * n, 104 + 100 * n, range(11 + 4 * n, 15 + 4 * n)) for n in range(200)])
    needed = tmp_path / "data" / "9604-9704.parquet"  # the 97th, of transactions 395 to 398
    for file in (tmp_path / "data").iterdir():
        if file != needed:
            file.delete()
    lows = [GtidSet.parse(f"{UUID}:1-{last}") for last in (10, 14, 396, 397, 810)]
    found = log_of(spool).places(lows, spool.start)
    assert [found[low].pos for low in lows] == [4, 104, 9654, 9679, 20004]
    needed.unlink()
    with pytest.raises(StateUnreadable, match="cannot be read"):
        log_of(spool).places(lows, spool.start)


def test_a_segment_of_many_transactions_is_read_in_parts(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches smaller than the segment come to the same place."""
    monkeypatch.setattr(transaction_files, "BATCH_ROWS", 1)
    low = GtidSet.parse(f"{UUID}:1-13")
    assert log_of(spool).places([low], spool.start) == {low: place(76)}


def test_opening_again_drops_the_old_spool(spool: Spool) -> None:
    """Old segments are no part of a spool that is opened again."""
    again = Spool.open(spool.folder, OPENED)
    assert again.position == OPENED
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert loaded.position == OPENED


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_opening_again_survives_a_crash_between_its_steps(
    local_spool: Spool, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Interrupted after some of the old manifests are gone, what is left is a spool that ends earlier."""
    unlink = Path.unlink
    gone: list[Path] = []

    def crash(path: Path, *, missing_ok: bool = False) -> None:
        if path.parent.name == "segments":
            if len(gone) == steps:
                raise KeyboardInterrupt
            gone.append(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", crash)
    with pytest.raises(KeyboardInterrupt):
        Spool.open(local_spool.folder, OPENED)
    loaded = Spool.load(local_spool.folder)
    assert loaded is not None
    assert loaded.position.at.pos == 300 - 100 * steps


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("opened.json", ""),
        ("opened.json", "{"),
        ("opened.json", "[]"),
        ("opened.json", "{}"),
        ("opened.json", "null"),
        ("opened.json", "\udcff"),
        ("segments/000002.json", ""),
        ("segments/000002.json", '{"start": "binlog.0000'),
        ("segments/000002.json", "{}"),
        ("segments/000002.json", "17"),
        ("segments/first.json", "{}"),
        ("data/4-100.parquet", "PAR1"),
    ],
)
def test_a_damaged_spool_is_refused_by_name(spool: Spool, file: str, content: str) -> None:
    """What cannot be read back is never taken for an empty spool; the folder is named in one line."""
    (spool.folder / file).write(content.encode(errors="surrogateescape"))
    with pytest.raises(StateUnreadable) as refused:
        read_again(spool.folder)
    assert str(spool.folder) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", ["gone", "empty", "truncated", "of another segment"])
def test_damaged_change_rows_are_refused_by_name(spool: Spool, damage: str) -> None:
    """A file of change rows that is not as its manifest says never reaches a merge."""
    file = spool.folder / "data" / "4-100-orders.parquet"
    whole = file.read()
    other = (spool.folder / "data" / "4-100-items.parquet").read()
    file.delete()
    if damage != "gone":
        file.write({"empty": b"", "truncated": whole[:-40], "of another segment": other}[damage])
    forget_kept()
    with pytest.raises(StateUnreadable, match=r"4-100-orders\.parquet"):
        spool.files(ORDERS, place(4), place(300))


@pytest.mark.parametrize("part", ["start", "stop", "gtids", "transactions", "tables"])
def test_a_manifest_needs_all_its_parts(spool: Spool, part: str) -> None:
    """A part that is missing, or of another form, is StateUnreadable at the latest when it is used."""
    path = spool.folder / "segments" / "000002.json"
    doc = files.document(path)
    for changed in ({name: doc[name] for name in doc if name != part}, doc | {part: 5}, doc | {part: None}):
        path.write(json.dumps(changed).encode())
        with pytest.raises(StateUnreadable):
            read_again(spool.folder)


def test_a_missing_or_foreign_segment_is_a_gap(spool: Spool) -> None:
    """A manifest that was removed, or one of another spool, breaks the chain: the spool is not used."""
    second = spool.folder / "segments" / "000002.json"
    kept = second.read()
    second.delete()
    with pytest.raises(StateUnreadable, match=r"gap before segment 3: binlog.000007:100 to binlog.000007:200"):
        Spool.load(spool.folder)
    second.write(kept.replace(b'"binlog.000007:100"', b'"binlog.000006:100"'))
    with pytest.raises(StateUnreadable, match="gap before segment 2"):
        Spool.load(spool.folder)


def test_forgetting_drops_only_what_no_mark_needs(spool: Spool) -> None:
    """Whole segments up to the place go, files and manifests; the rest and the position stay."""
    position, kept = spool.position, spool.files(ORDERS, place(200), place(300))
    spool.forget(place(99))
    assert spool.start == place(4)
    spool.forget(place(250))
    assert (spool.start, spool.position) == (place(200), position)
    assert spool.files(ORDERS, place(200), place(300)) == kept
    with pytest.raises(SpoolGap):
        spool.files(ORDERS, place(199), place(300))
    found = [*spool.folder.listed("*"), *spool.folder.listed("*/*")]
    left = {str(path).removeprefix(f"{spool.folder}/") for path in found if path.suffix}
    assert left == {
        "opened.json",
        "archive/id.json",
        "segments/000003.json",
        "data/200-300.parquet",
        "data/200-300-orders.parquet",
        "data/200-300-late.parquet",
    }
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == state(spool)


def test_only_the_table_that_stands_still_keeps_its_files(spool: Spool) -> None:
    """The others keep what they need; a reader of the changelog that is at work keeps all."""
    before, kept = state(spool), spool.files(ITEMS, place(4), place(100))
    needed = {ORDERS: place(200), ITEMS: place(4), LATE: place(300)}
    with reading(spool.folder):
        thin(spool, needed, timedelta(0))
    thin(spool, needed, timedelta(minutes=5))
    assert state(spool) == before
    thin(spool, needed, timedelta(0))
    assert spool.files(ITEMS, place(4), place(100)) == kept
    assert len(spool.files(ORDERS, place(200), place(300))) == 1
    assert len(spool.files(LATE, place(200), place(300))) == 1  # the last segment is whole
    with pytest.raises(SpoolGap, match="was not watched"):
        spool.files(ORDERS, place(4), place(300))
    left = [path.name for path in (spool.folder / "data").listed("*orders*")]
    assert left == ["200-300-orders.parquet"]
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == state(spool)


def test_only_old_files_that_no_segment_has_are_swept(local_spool: Spool) -> None:
    """What a killed task left goes once it is old; the files of segments stay, however old they are."""
    before = state(local_spool)
    left = local_spool.folder / "data" / "killed-0.parquet"
    left.write(b"1234")
    assert sweep(local_spool, timedelta(days=1)) == (0, 0)
    for file in (local_spool.folder / "data").listed("*"):
        file.set_changed(0)
    assert sweep(local_spool, timedelta(days=1)) == (1, 4)
    assert not left.exists()
    assert state(local_spool) == before
    read_again(local_spool.folder)


def test_the_bytes_of_a_table_are_those_of_its_own_files(spool: Spool) -> None:
    """Of the segments that end after a place; none where a table has no changes there."""
    first, last = (file.size() for file in spool.files(ORDERS, place(4), place(300)))
    assert spool.bytes_of(ORDERS, place(4)) == first + last
    assert spool.bytes_of(ORDERS, place(100)) == last
    assert spool.bytes_of(ITEMS, place(200)) == 0


def test_appending_goes_on_after_all_was_forgotten(spool: Spool) -> None:
    """Numbers may begin anew; the chain does not break."""
    spool.forget(place(300))
    assert spool.position.gtids == GtidSet.parse(f"{UUID}:1-17")
    spool.append([segment(spool.folder, 300, 400, range(18, 20), orders=1)])
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == state(spool)
    assert loaded.files(ORDERS, place(300), place(400)) != []


def test_the_next_run_has_the_noted_boundaries(spool: Spool) -> None:
    """Those after the position, in the order they came; with a segment past them they are gone, and from the disk."""
    at = [FilePosition("binlog.000007", pos) for pos in (400, 500)]
    later = FilePosition("binlog.000008", 4)
    for boundary in (FilePosition("binlog.000007", 300), at[0], at[1], at[1]):
        spool.note(boundary, 1_700_000_000)
    assert tuple(spool.boundaries) == tuple(at)
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert tuple(loaded.boundaries) == tuple(at)
    loaded.append([segment(spool.folder, 300, 450, range(18, 20), orders=1)])
    assert tuple(loaded.boundaries) == (at[1],)
    loaded.append([segment(spool.folder, 450, 600, range(20, 22), orders=1)])
    loaded.note(later, 1_700_000_001)
    again = Spool.load(spool.folder)
    assert again is not None
    assert loaded.boundaries == again.boundaries == {later: 1_700_000_001}
    assert files.document(spool.folder / "boundaries.json") == {str(later): 1_700_000_001}


def test_a_spool_that_is_opened_again_has_no_boundaries(spool: Spool) -> None:
    """Those of another binlog would be cut in the midst of a transaction."""
    spool.note(FilePosition("binlog.000007", 400), 1_700_000_000)
    Spool.open(spool.folder, OPENED)
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert not loaded.boundaries


def test_what_is_prepared_is_known_from_run_to_run(spool: Spool) -> None:
    """Also when its segments were dropped; not in a spool that has seen nothing, or is of an older version."""
    at_first = spool.pending
    assert at_first is None
    x, y, z = (Xid(b"x", b"", number) for number in range(3))
    here = Prepared(FilePosition("binlog.000007", 305), FilePosition("binlog.000007", 309), frozenset({ORDERS}))
    for begin, pending in ((300, Pending({x: here, y: here})), (400, Pending({z: here}, {x}))):
        spool.append([replace(segment(spool.folder, begin, begin + 100, range(begin, begin + 1)), pending=pending)])
    assert spool.pending is not None
    assert spool.pending.prepared == {y: here, z: here}
    for forgotten in (300, 500):
        spool.forget(place(forgotten))
        loaded = Spool.load(spool.folder)
        assert loaded is not None
        assert loaded.pending == Pending({y: here, z: here})
    older = files.document(spool.folder / "opened.json")
    del older["prepared"]
    (spool.folder / "opened.json").write(json.dumps(older).encode())
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert loaded.pending is None


def test_forgetting_survives_a_crash_between_its_steps(spool: Spool) -> None:
    """With the new beginning written and manifests not yet gone, the spool is whole, and goes on."""
    first = spool.folder / "segments" / "000001.json"
    kept = first.read()
    spool.forget(place(150))
    first.write(kept)  # as a crash before its removal leaves it; its files are gone or not
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert state(loaded) == state(spool)
    loaded.append([segment(spool.folder, 300, 400, range(18, 20), orders=1, items=None)])
    loaded.forget(place(300))
    again = Spool.load(spool.folder)
    assert again is not None
    assert state(again) == state(loaded)
    assert again.files(ORDERS, place(300), place(400)) != []


def test_a_crash_after_all_segments_were_dropped_does_not_hide_the_next_one(spool: Spool) -> None:
    """The last segment's manifest is left behind by a crash: a new segment is not mistaken for it."""
    last = spool.folder / "segments" / "000003.json"
    kept = last.read()
    spool.forget(place(300))
    last.write(kept)
    for stop in (400, 500, 600):
        loaded = Spool.load(spool.folder)
        assert loaded is not None
        loaded.append([segment(spool.folder, stop - 100, stop, range(stop, stop + 1), orders=1)])
    again = Spool.load(spool.folder)
    assert again is not None
    assert again.position.at == FilePosition("binlog.000007", 600)


def test_a_folder_that_cannot_be_written_needs_a_person(tmp_path: Local) -> None:
    """The state folder is named, and what is wrong with it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="state folder cannot be written"):
        Spool.open(tmp_path / "file" / "spool", OPENED)


_FULL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from lakeingest.files.local import Local
from lakeingest.spool.spool import Spool
from lakeingest.spool.transaction_files import log_of
from lakeingest.spool.thinning import thin
from tests.servers.stores import forget_kept, stored_in
spool = Spool.load(Local(sys.argv[1]))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
from lakeingest.errors import StorageFailed
from lakeingest.core.binlog.position import Place
try:
    spool.forget(Place(1, 7, 300))
except StorageFailed as error:
    print(error)
"""


def test_a_run_that_lost_its_lease_does_not_move_the_start_of_a_spool_in_a_store(s3: LocalS3) -> None:
    """It was paused after its last look at the lease: what the next run has dropped is not named again."""
    spool = filled(stored_in(s3) / "spool")
    following = Spool.load(spool.folder)
    assert following is not None
    following.forget(place(200))
    for _ in range(2):
        with pytest.raises(StaleWriter, match=r"another run moved .*opened\.json; run the same command again"):
            spool.forget(place(100))
    following.forget(place(300))
    loaded = Spool.load(spool.folder)
    assert loaded is not None
    assert loaded.start == place(300)


def test_a_full_disk_leaves_the_spool_as_it_was(local_spool: Spool) -> None:
    """A write that fails half way needs a person, and the next process finds the old state whole."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", _FULL, str(local_spool.folder), root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "state folder cannot be written" in done.stdout
    loaded = Spool.load(local_spool.folder)
    assert loaded is not None
    assert state(loaded) == state(local_spool)


def test_a_spool_reaches_back_for_tables_that_join_and_no_other_is_read_again(tmp_path: Local) -> None:
    """Before segments that are there, and where there are none; loaded again it is the same, and it is forgotten."""
    at = Position(UUID, 1, FilePosition("binlog.000007", 100), GtidSet())
    start = Position(UUID, 1, FilePosition("binlog.000007", 4), GtidSet())
    for name, later in (("empty", False), ("longer", True)):
        spool = Spool.open(tmp_path / name, at)
        if later:
            spool.append([segment(spool.folder, 100, 200, range(0), orders=5)])
        position = spool.position
        spool.reach_back(start, segment(spool.folder, 4, 100, range(0), late=3))
        if later:
            spool.widen(segment(spool.folder, 100, 200, range(0), late=2))
        for one in (spool, Spool.load(spool.folder)):
            assert one is not None
            assert (one.start, one.position) == (place(4), position)
            assert [file.name for file in one.files(LATE, place(4), position.place)] == (
                ["4-100-late.parquet", "100-200-late.parquet"] if later else ["4-100-late.parquet"]
            )
            with pytest.raises(SpoolGap):
                one.files(ORDERS, place(4), position.place)
            if later:
                assert len(one.files(ORDERS, place(100), position.place)) == 1
        spool.append([segment(spool.folder, position.at.pos, 300, range(0), orders=1, late=1)])
        spool.forget(place(100))
        loaded = Spool.load(spool.folder)
        assert loaded is not None
        assert (loaded.start, loaded.position.place) == (place(100), place(300))


def test_a_spool_reaches_back_several_times(tmp_path: Local) -> None:
    """Loaded again, its segments are in order, whatever their numbers."""
    spool = Spool.open(tmp_path, Position(UUID, 1, FilePosition("binlog.000007", 500), GtidSet()))
    spool.append([segment(spool.folder, 500, 600, range(0), orders=5)])
    for begin in (400, 300, 200, 100):
        start = Position(UUID, 1, FilePosition("binlog.000007", begin), GtidSet())
        spool.reach_back(start, segment(spool.folder, begin, begin + 100, range(0), late=1))
        loaded = Spool.load(tmp_path)
        assert loaded is not None
        assert [part.start.pos for part in loaded.segments] == [*range(begin, 600, 100)]


def test_what_is_read_again_of_a_table_replaces_what_was_spooled_of_it(tmp_path: Local) -> None:
    """Its rows and its values that were made NULL count once; those of the other table stay."""
    spool = Spool.open(tmp_path, Position(UUID, 1, FilePosition("binlog.000007", 100), GtidSet()))
    for start in (100, 200):
        part = segment(spool.folder, start, start + 100, range(0), orders=5, late=4)
        spool.append([replace(part, nulled={ORDERS: 2, LATE: 3})])
    spool.widen(replace(segment(spool.folder, 150, 300, range(0), late=6), nulled={LATE: 4}))
    for one in (spool, Spool.load(spool.folder)):
        assert one is not None
        assert [one.nulled(table, place(100), place(300)) for table in (ORDERS, LATE)] == [4, 4]
        assert [one.backlog(table, place(100)) for table in (ORDERS, LATE)] == [10, 6]


def test_a_spool_reaches_back_only_to_an_earlier_place_without_a_gap(spool: Spool) -> None:
    """What does not end at its start is no part of it."""
    for begin, stop in ((2, 3), (4, 4)):
        with pytest.raises(SpoolGap):
            spool.reach_back(
                Position(UUID, 1, FilePosition("binlog.000007", begin), GtidSet()),
                segment(spool.folder, begin, stop, range(0), late=1),
            )
