"""For which companions the archive keeps changes: those that are wanted, of tables of the pipeline."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeingest.core.companion import Standing
from lakeingest.core.position import Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.files.local import Local
from lakeingest.pipeline.companions.companions import Companions, Name
from lakeingest.spool.readers import needed_by_readers
from lakeingest.state.companions import read_companions, store_companions

A, B = TableId("shop", "a"), TableId("shop", "b")
OLD = Place(1, 1, 100)


def table(id_: TableId, *, at: Place | None) -> Any:
    """A quiet table, whose copy readers see as of this place; None: the run does not know it, as of a stopped one."""
    shown = None if at is None else SimpleNamespace(position=SimpleNamespace(place=at))
    return SimpleNamespace(id=id_, shown=shown, copy=SimpleNamespace(published=5, visible=True))


def kept(folder: Path, notes: set[Name], *tables: Any, takes_all: bool = True) -> tuple[set[Name], bool]:
    """After a run that had these notes: those that are left, and whether the archive is kept."""
    state = Local(folder)
    store_companions(state, {name: Standing(1, ReadTo(OLD, log="1f0c83aa"), 5) for name in notes})
    edges: Any = SimpleNamespace(state=state, writing=state)
    kind: Any = SimpleNamespace(key="history", is_wanted=lambda table: table.id == A)
    run = Companions(edges, [kind], {table.id: table for table in tables}, takes_all=takes_all)
    run.catch_up(tables)
    spool: Any = SimpleNamespace(folder=state / "spool")
    run.hold(spool)
    return set(read_companions(state)), needed_by_readers(spool.folder) is not None


NOW = Place(1, 9, 9000)
UNWANTED = [
    ("history", B),
    ("history", TableId("shop", "dropped")),
    ("changelog.table", A),
    ("changelog.transactions", B),
]


@pytest.mark.parametrize("name", UNWANTED)
def test_companions_that_nobody_wants_hold_nothing(tmp_path: Path, name: Name) -> None:
    """Of tables without a history now, of tables that left, of a kind that is not asked for any more."""
    tables = table(A, at=NOW), table(B, at=NOW)
    assert kept(tmp_path, {("history", A), name}, *tables) == ({("history", A)}, False)


def test_a_table_that_stands_still_or_is_left_out_of_this_run_holds(tmp_path: Path) -> None:
    """Its companion is written once it goes on."""
    mine: set[Name] = {("history", A)}
    assert kept(tmp_path, mine, table(A, at=None), table(B, at=NOW)) == (mine, True)
    assert kept(tmp_path, mine, table(B, at=NOW), takes_all=False) == (mine, True)
