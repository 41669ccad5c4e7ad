"""Which companions a run looks at, and for which the archive keeps changes: those that are wanted, of its tables."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeingest.core.companion import Standing, companion_of
from lakeingest.core.position import Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files.local import Local
from lakeingest.pipeline.companions.companions import Companions, Name
from lakeingest.pipeline.events import Undelivered
from lakeingest.pipeline.run.profile import Profile
from lakeingest.spool.readers import needed_by_readers
from lakeingest.state.companions import read_companions, read_tidied, store_companions
from lakeingest.state.stopped import COMPANIONS, Stopped, StoppedTables

A, B = TableId("shop", "a"), TableId("shop", "b")
OLD = Place(1, 1, 100)
TODAY = datetime.now(UTC).date()
NOTED = Standing(1, ReadTo(OLD, log="1f0c83aa"), 5)


def table(id_: TableId, *, at: Place | None) -> Any:
    """A quiet table, whose copy readers see as of this place; None: the run does not know it, as of a stopped one."""
    shown = None if at is None else SimpleNamespace(position=SimpleNamespace(place=at))
    return SimpleNamespace(id=id_, shown=shown, copy=SimpleNamespace(published=5, visible=True))


@dataclass
class Kind:
    """Histories of the table A, which are at the version that is noted; `broken`: they cannot be read."""

    key: str = "history"
    broken: bool = False
    asked: list[TableId] = field(default_factory=list)
    tidied: list[TableId] = field(default_factory=list)

    def is_wanted(self, asked: Any) -> bool:
        """Of one table alone."""
        return bool(asked.id == A)

    def table_of(self, of: TableId) -> TableId:
        """As that of the real ones."""
        return companion_of(of, "history")

    def standing(self, of: Any) -> Standing:
        """What is noted."""
        self.asked.append(of.id)
        if self.broken:
            raise StateUnreadable("a file is damaged")
        return Standing(NOTED.version, NOTED.read_to)

    def tidy(self, of: Any, *, now: bool) -> int | None:
        """A commit."""
        assert now
        self.tidied.append(of.id)
        return 2


@dataclass
class Ran:
    """A run that had these notes, with one catching up; `present`: the tables that the lake has."""

    folder: Path
    notes: set[Name]
    tables: tuple[Any, ...]
    takes_all: bool = True
    tidied: date | None = TODAY
    kind: Kind = field(default_factory=Kind)
    present: tuple[tuple[str, str], ...] = (("shop", "a__history"),)
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = Local(self.folder)
        store_companions(state, dict.fromkeys(self.notes, NOTED), self.tidied)
        target = SimpleNamespace(names=lambda *, shown: self.present if shown else (), storage_errors=nullcontext)
        edges: Any = SimpleNamespace(
            state=state,
            writing=state,
            target=target,
            source=SimpleNamespace(settings=None),
            config=SimpleNamespace(target=SimpleNamespace(identifier=lambda of: (of.database, of.name))),
            lease=SimpleNamespace(assert_held=lambda: None),
            profile=Profile(),
            observe=self.events.append,
        )
        kinds: list[Any] = [self.kind]
        self.companions = Companions(edges, kinds, {one.id: one for one in self.tables}, takes_all=self.takes_all)
        self.companions.catch_up(self.tables)
        spool: Any = SimpleNamespace(folder=state / "spool")
        self.companions.hold(spool)
        self.kept, self.holds = read_companions(state), needed_by_readers(spool.folder) is not None
        self.tidied_now = read_tidied(state)


NOW = Place(1, 9, 9000)
MINE: Name = ("history", A)
UNWANTED = [
    ("history", B),
    ("history", TableId("shop", "dropped")),
    ("changelog.table", A),
    ("changelog.transactions", B),
]


@pytest.mark.parametrize("name", UNWANTED)
def test_companions_that_nobody_wants_hold_nothing(tmp_path: Path, name: Name) -> None:
    """Of tables without a history now, of tables that left, of a kind that is not asked for any more."""
    ran = Ran(tmp_path, {MINE, name}, (table(A, at=NOW), table(B, at=NOW)))
    assert (set(ran.kept), ran.holds) == ({MINE}, False)


def test_a_table_that_stands_still_or_is_left_out_of_this_run_holds(tmp_path: Path) -> None:
    """Its companion is written once it goes on."""
    ran = Ran(tmp_path, {MINE}, (table(A, at=None), table(B, at=NOW)))
    assert (set(ran.kept), ran.holds) == ({MINE}, True)
    ran = Ran(tmp_path, {MINE}, (table(B, at=NOW),), takes_all=False)
    assert (set(ran.kept), ran.holds) == ({MINE}, True)


def test_the_companion_of_a_quiet_table_is_looked_at_if_it_may_be_gone(tmp_path: Path) -> None:
    """Somebody has dropped or renamed it, or it could not be written before. Else it costs nothing."""
    quiet = (table(A, at=NOW),)
    assert Ran(tmp_path, {MINE}, quiet).kind.asked == []
    dropped = Ran(tmp_path, {MINE}, quiet, kind=Kind(broken=True), present=(("shop", "a"),))
    assert dropped.kind.asked == [A]
    assert dropped.holds
    [said] = dropped.events
    assert isinstance(said, Undelivered)
    assert dropped.companions.errors_of(quiet[0]) == {"history": "StateUnreadable"}
    again = Ran(tmp_path, {MINE}, quiet, kind=Kind(broken=True))
    assert again.kind.asked == [A]
    StoppedTables(Local(tmp_path), COMPANIONS).remove(companion_of(A, "history"))
    assert Ran(tmp_path, {MINE}, quiet).companions.errors_of(quiet[0]) == {"history": ""}


def test_companions_of_quiet_tables_are_tidied_once_a_day(tmp_path: Path) -> None:
    """By runs for all tables; what is noted then is the version after it."""
    quiet = (table(A, at=NOW), table(B, at=NOW))
    yesterday = TODAY - timedelta(days=1)
    assert Ran(tmp_path, {MINE}, quiet, takes_all=False, tidied=yesterday).tidied_now == yesterday
    for day in (yesterday, None):
        ran = Ran(tmp_path, {MINE}, quiet, tidied=day)
        assert (ran.kind.tidied, ran.tidied_now) == ([A], TODAY)
        assert ran.kept[MINE] == Standing(2, ReadTo(NOW, log="1f0c83aa"), 5)
        ran.companions.catch_up(quiet)
        assert ran.kind.tidied == [A]
    assert Ran(tmp_path, {MINE}, quiet).kind.tidied == []


def test_an_error_of_a_companion_is_not_that_of_a_table_of_its_name(tmp_path: Path) -> None:
    """A table of the source may be called so."""
    state, name = Local(tmp_path), companion_of(A, "history")
    StoppedTables(state, COMPANIONS).record(Stopped.of(name, StateUnreadable("x")))
    assert StoppedTables(state).read(name) is None
    assert StoppedTables(state, COMPANIONS).read(name) is not None
