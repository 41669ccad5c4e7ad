"""Which companions a run looks at, and for which the archive keeps changes: those that are wanted, of its tables."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeingest.config import parse_config
from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.companion import Standing, companion_of
from lakeingest.core.tables.schema import TableId
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


def today() -> date:
    """The present day, which a long run of tests may see end."""
    return datetime.now(UTC).date()


NOTED = Standing(1, ReadTo(OLD, log="1f0c83aa"), 5)
OWN = replace(NOTED, of=0)
reads_versions = pytest.mark.skipif(find_spec("pyiceberg") is None, reason="the core's environment has no PyIceberg")


def table(id_: TableId, *, at: Place | None) -> Any:
    """A quiet table, whose copy readers see as of this place; None: the run does not know it, as of a stopped one."""
    shown = None if at is None else SimpleNamespace(position=SimpleNamespace(place=at))
    return SimpleNamespace(id=id_, shown=shown, copy=SimpleNamespace(published=5, visible=True))


@dataclass
class Kind:
    """Histories of some tables, whose last commit is `own`; `broken`: they cannot be read."""

    key: str = "history"
    broken: bool = False
    tidies: bool = True
    own: Standing | None = OWN
    asked: list[TableId] = field(default_factory=list)
    tidied: list[TableId] = field(default_factory=list)
    wanted: set[TableId] = field(default_factory=lambda: {A})

    def is_wanted(self, asked: Any) -> bool:
        """Of these tables."""
        return asked.id in self.wanted

    def table_of(self, of: TableId) -> TableId:
        """As that of the real ones."""
        return companion_of(of, "history")

    def standing(self, of: Any) -> Standing | None:
        """What is noted."""
        self.asked.append(of.id)
        if self.broken:
            raise StateUnreadable("a file is damaged")
        return self.own

    def tidy(self, of: Any, *, now: bool) -> int | None:
        """A commit."""
        assert now
        self.tidied.append(of.id)
        return 2


@dataclass
class Ran:
    """A run that had these notes, with one catching up; `present`: the tables that the lake has.

    `tidies`: it tidies all companions after that. A companion that is to be written meets an error: there is no spool.
    """

    folder: Path
    notes: set[Name]
    tables: tuple[Any, ...]
    takes_all: bool = True
    tidied: date | None = field(default_factory=today)
    tidies: bool = True
    kind: Kind = field(default_factory=Kind)
    present: tuple[tuple[str, str], ...] = (("shop", "a__history"),)
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = Local(self.folder)
        store_companions(state, dict.fromkeys(self.notes, NOTED), self.tidied)
        doc = {"name": "x", "source": {"host": "h", "user": "u"}, "tables": {"include": ["shop.*"]}}
        config = parse_config(doc, self.folder, {})
        target = SimpleNamespace(names=lambda *, shown: self.present if shown else (), storage_errors=nullcontext)
        edges: Any = SimpleNamespace(
            state=state,
            writing=state,
            target=target,
            source=SimpleNamespace(settings=config.source),
            config=config,
            lease=SimpleNamespace(assert_held=lambda: None),
            profile=Profile(),
            observe=self.events.append,
        )
        kinds: list[Any] = [self.kind]
        self.companions = Companions(edges, kinds, {one.id: one for one in self.tables}, takes_all=self.takes_all)
        self.spool: Any = SimpleNamespace(folder=state / "spool")
        self.companions.catch_up(self.tables)
        if self.tidies:
            self.companions.tidy(self.tables, lambda: False)
        self.hold()

    def hold(self) -> None:
        """What is noted now, and held."""
        state = Local(self.folder)
        self.companions.hold(self.spool)
        self.kept, self.holds = read_companions(state), needed_by_readers(self.spool.folder) is not None
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
    assert Ran(
        tmp_path, {MINE}, quiet, takes_all=False, tidied=today() - timedelta(days=1)
    ).tidied_now == today() - timedelta(days=1)
    for day in (today() - timedelta(days=1), None):
        ran = Ran(tmp_path, {MINE}, quiet, tidied=day)
        assert (ran.kind.tidied, ran.tidied_now) == ([A], today())
        assert ran.kept[MINE] == Standing(2, ReadTo(NOW, log="1f0c83aa"), 5)
        assert not ran.companions.tidy(quiet, lambda: False)
        assert ran.kind.tidied == [A]
    assert Ran(tmp_path, {MINE}, quiet).kind.tidied == []
    never = Ran(tmp_path, {MINE}, quiet, tidied=today() - timedelta(days=1), kind=Kind(tidies=False))
    assert (never.kind.asked, never.kind.tidied, never.tidied_now) == ([], [], today())


def test_a_few_companions_are_tidied_in_a_round(tmp_path: Path) -> None:
    """The next round goes on with the others. None is begun once the run is stopping."""
    tables = tuple(table(TableId("shop", f"t{number}"), at=NOW) for number in range(5))
    kind = Kind(wanted={one.id for one in tables})
    present = tuple(("shop", f"t{number}__history") for number in range(5))
    notes: set[Name] = {("history", one.id) for one in tables}
    ran = Ran(tmp_path, notes, tables, tidied=today() - timedelta(days=1), tidies=False, kind=kind, present=present)
    assert not ran.companions.tidy(tables, lambda: True, at_most=2)
    assert kind.tidied == []
    asked = iter([False, True])
    assert ran.companions.tidy(tables, lambda: next(asked), at_most=2)
    assert kind.tidied == [tables[0].id]
    for done, noted in ((3, today() - timedelta(days=1)), (5, today())):
        assert ran.companions.tidy(tables, lambda: False, at_most=2)
        assert kind.tidied == [one.id for one in tables[:done]]
        ran.hold()
        assert ran.tidied_now == noted
    assert not ran.companions.tidy(tables, lambda: False, at_most=2)


@reads_versions
@pytest.mark.parametrize("version", [0, 7])
def test_a_quiet_companion_that_has_gone_back_is_written_from_its_own_commit(tmp_path: Path, version: int) -> None:
    """After a rollback, or after lost files: what was noted of another version never counts for it.

    The archive keeps what follows the commit. Neither the position nor the copy's version may be taken from the note.
    """
    own = Standing(version, ReadTo(Place(1, 1, 50), log="1f0c83aa"))
    quiet, changed = table(A, at=NOW), table(A, at=Place(1, 9, 9999))
    changed.copy.published = 6
    by_tidying = Ran(tmp_path, {MINE}, (quiet,), tidied=today() - timedelta(days=1), kind=Kind(own=own))
    assert (by_tidying.kept[MINE], by_tidying.holds) == (replace(own, version=2), True)
    assert by_tidying.events == []
    by_tidying.companions.catch_up([quiet])
    assert len(by_tidying.events) == 1  # it lacks something, though its table has not changed
    by_tidying.hold()
    assert (by_tidying.kept[MINE], by_tidying.holds) == (replace(own, version=2), True)
    by_writing = Ran(tmp_path, {MINE}, (changed,), kind=Kind(own=own))
    assert (by_writing.kept[MINE], by_writing.holds) == (own, True)


@reads_versions
def test_a_companion_that_is_gone_when_it_is_tidied_begins_anew(tmp_path: Path) -> None:
    """What was noted of it does not count any more."""
    quiet = (table(A, at=NOW),)
    ran = Ran(tmp_path, {MINE}, quiet, tidied=today() - timedelta(days=1), kind=Kind(own=None))
    assert (ran.kind.asked, ran.kind.tidied, ran.events, ran.kept) == ([A], [], [], {})
    ran.companions.catch_up(quiet)
    assert len(ran.events) == 1


def test_after_an_error_nobody_knows_what_a_companion_was_complete_as_of(tmp_path: Path) -> None:
    """Neither this run nor the next one."""
    ran = Ran(tmp_path, {MINE}, (table(A, at=NOW),), tidied=today() - timedelta(days=1), kind=Kind(broken=True))
    assert len(ran.events) == 1
    assert (ran.kept[MINE], ran.holds) == (Standing(1, ReadTo(NOW, log="1f0c83aa"), 0), True)


@pytest.mark.parametrize("broken", [True, False])
def test_a_record_that_cannot_be_written_or_removed_does_not_stop_the_run(tmp_path: Path, *, broken: bool) -> None:
    """It is reported, and the companion is tried again later."""
    StoppedTables(Local(tmp_path), COMPANIONS).record(Stopped.of(companion_of(A, "history"), StateUnreadable("x")))
    [record] = (tmp_path / COMPANIONS).iterdir()
    record.unlink()
    (record / "in the way").mkdir(parents=True)
    quiet = (table(A, at=NOW),)
    ran = Ran(tmp_path, {MINE}, quiet, tidied=today() - timedelta(days=1), kind=Kind(broken=broken))
    assert ran.kind.asked == [A]
    assert [(event.what, event.reason.split()[0]) for event in ran.events] == [
        ("history", "StateUnreadable:" if broken else "StorageFailed:"),
        ("history", "StorageFailed:"),
    ]
    assert (ran.kept[MINE].of, ran.holds, ran.tidied_now) == (0, True, today())
    ran.companions.catch_up(quiet)
    assert ran.kind.asked == [A]  # it is tried again after a minute


def test_an_error_of_a_companion_is_not_that_of_a_table_of_its_name(tmp_path: Path) -> None:
    """A table of the source may be called so."""
    state, name = Local(tmp_path), companion_of(A, "history")
    StoppedTables(state, COMPANIONS).record(Stopped.of(name, StateUnreadable("x")))
    assert StoppedTables(state).read(name) is None
    assert StoppedTables(state, COMPANIONS).read(name) is not None
