"""While a table stands still, the spool has few files, and all that it had."""

from dataclasses import replace
from itertools import pairwise

import pytest

from lakeingest.core.binlog.position import GtidSet
from lakeingest.core.ddl.alteration import Alteration
from lakeingest.files.file import File
from lakeingest.spool import thinning
from lakeingest.spool.leftovers import sweep
from lakeingest.spool.spool import NO_TIME, Spool
from lakeingest.spool.thinning import join_neighbours
from lakeingest.spool.transaction_files import log_of
from tests.servers.stores import killed_at
from tests.spool.test_archive import DAY, OPENED, TABLE, UUID, place, read, rows, segment


@pytest.fixture
def spool(shared_folder: File, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """An empty one, in which four neighbours are many."""
    monkeypatch.setattr(thinning, "JOIN", 4)
    return Spool.open(shared_folder / "spool", OPENED)


def loaded(spool: Spool) -> Spool:
    """The spool as the next run finds it; it has the same segments."""
    found = Spool.load(spool.folder)
    assert found is not None
    assert list(found.parts()) == list(spool.parts())
    return found


def test_neighbours_are_joined_as_soon_as_there_are_many(spool: Spool) -> None:
    """Files stay few however long it lasts; rows, GTIDs and the ends of their transactions are what they were."""
    for number in range(50):
        spool.append([segment(spool, number)])
        join_neighbours(spool, {place(0)})
    assert len(list(spool.parts())) < 3 + 3 + 50 // 16 + 2
    assert len((spool.folder / "segments").listed("*.json")) == len(list(spool.parts()))
    assert sweep(spool, NO_TIME) == (0, 0)
    assert read(spool) == rows(range(50))
    again = loaded(spool)
    assert again.backlog(TABLE, place(0)) == 100
    assert all(before[3] == after[1] for before, after in pairwise(again.parts()))
    low = GtidSet.parse(f"{UUID}:1-30")
    assert log_of(again).places([low], again.start)[low].pos == 195
    again.append([segment(again, 50)])
    again.forget(place(51), DAY)
    assert read(again) == rows(range(51))


def test_a_segment_ends_where_a_copy_stands(spool: Spool) -> None:
    """By that the spool proves that the copy is of its history."""
    spool.append([segment(spool, number) for number in range(10)])
    join_neighbours(spool, {place(0), place(4)})
    assert [part[1].place for part in spool.parts()] == [place(0), place(4), place(8), place(9)]


@pytest.mark.parametrize("kind", ["other tables", "DDL", "many rows"])
def test_segments_of_another_kind_stay_apart(spool: Spool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that watch other tables, that stand for DDL, or that are large enough."""
    monkeypatch.setattr(thinning, "LARGE_ROWS", 3)
    parts = [segment(spool, number) for number in range(10)]
    other = segment(spool, 4, rows=4 if kind == "many rows" else 2, other=kind == "other tables")
    parts[4] = replace(
        other, alterations={TABLE: Alteration(statement="ALTER TABLE t ADD c INT")} if kind == "DDL" else {}
    )
    spool.append(parts)
    join_neighbours(spool, ())
    assert [part[1].place for part in spool.parts()] == [place(0), place(4), place(5), place(9)]


@pytest.mark.parametrize("steps", range(16))
@pytest.mark.long("each step in one place in turn", turn="shared_folder")
def test_a_crash_at_any_step_loses_nothing(spool: Spool, steps: int) -> None:
    """Killed at each change of a name, on disk or in the store: all rows are there once, for merges and for readers."""
    spool.append([segment(spool, 0)])
    spool.forget(place(1), DAY)
    spool.append([segment(spool, number) for number in range(1, 6)])
    with killed_at(steps):
        join_neighbours(spool, ())
        assert steps > 10
    assert read(spool) == rows(range(6))
    again = Spool.load(spool.folder)
    assert again is not None
    assert again.backlog(TABLE, place(1)) == 10
    assert len(again.files(TABLE, place(1), place(6))) in {2, 5}
    sweep(again, NO_TIME)
    again.append([segment(again, 6)])
    join_neighbours(again, ())
    assert read(again) == rows(range(7))
    again.forget(place(6), DAY)
    assert read(again) == rows(range(7))
    last = Spool.load(spool.folder)
    assert last is not None
    last.append([segment(last, 7)])
    last.forget(place(8), DAY)
    assert read(last) == rows(range(8))
    assert not (spool.folder / "segments").listed("*.json")
