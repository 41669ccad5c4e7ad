"""The world of `tests.core.world` with DDL: columns come, and rows in the binlog are bare tuples, in column order.

Some DDL is a barrier: it changes values, and the binlog has no rows of that. The copy is read again after it.

Only the definition that is in force at a row's place says what its values are. A definition is read beside the stream,
and bound to a place by a bracket. Readers see the columns that the table has for them: one schema, of no branch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from lakeingest.core.binlog.position import FilePosition, Gtid, Place
from lakeingest.core.copies.phases import Phase
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.alteration import Act, Alteration, Change, lifts
from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.tables.change import ChangeRow
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableSchema
from tests.core.world import ORDERS, SERVER, Source, Statement, Table, Transaction, World, changed

ALTERATIONS_MAX = 4
INT = SourceType("int", "int")
Definition = TableSchema
Values = tuple[tuple[str, int | None], ...]  # of a row, by the names of its columns


def column(name: str) -> Column:
    """A column of numbers."""
    return Column(name, Kind.INT32, INT, nullable=name != "id", default=Value(None))


FIRST_DEFINITION = TableSchema(ORDERS, (column("id"), column("v")), ("id",))


@dataclass(frozen=True)
class Altered(Transaction):
    """DDL in the binlog."""

    alteration: Alteration


class EvolvingSource(Source):
    """A server whose table has a definition at each place. A row is its values in the order of the columns."""

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        self.definitions = [FIRST_DEFINITION]  # after the first 0, 1, 2 … transactions
        several: Any = dict.fromkeys(rows, (0,))  # values of a row
        super().__init__(several, gtids=gtids)

    def flush(self, statements: list[Statement], *, rotate: bool) -> None:
        """As the server does it; DDL waits for the transactions before it, and all wait for DDL."""
        if any(isinstance(one, Altered) for one in self.log[self.visible :]):
            return
        before = self.written
        super().flush(statements, rotate=rotate)
        if self.written > before:
            self.definitions.append(self.definitions[-1])
            self._fill(statements)

    def _fill(self, statements: list[Statement]) -> None:
        """Give each column of the rows that were just written a different value."""
        last, width = self.log[-1], len(self.definitions[-1].names) - 1
        row: Any = tuple(10 * self.written + number for number in range(width))
        changes = tuple(
            change if change.kind.is_delete else replace(change, values={"row": row}) for change in last.changes
        )
        self.log[-1] = replace(last, changes=changes)
        table: dict[int, Any] = dict(self.tables[-2])
        for key, afterwards in statements:
            changed(table, key, afterwards, row)
        self.tables[-1] = table

    def alter(self, some: int) -> None:
        """DDL adds a column at some place, or two columns exchange their names, or values change."""
        if self.visible < self.written:
            return
        if some == 0 and len(self.definitions[-1].names) > 2:
            self._exchange()
        elif some == 1:
            self._convert()
        elif some == 2 and self.written % 2:
            self._log(self.definitions[-1], Alteration(empties=True), {})
        else:
            self._add(some)

    def _convert(self) -> None:
        """Each value changes, and one row is gone; the definition stays, or has a new column."""
        now, rows = self.definitions[-1], dict(self.tables[-1])
        wider = (*now.columns, column(f"c{self.written}")) if self.written % 2 else now.columns
        changed: Any = {key: tuple(None for _ in wider[1:]) for key in sorted(rows)[1:]}
        self._log(replace(now, columns=wider), Alteration(is_barrier=True), changed)

    def _exchange(self) -> None:
        now = self.definitions[-1]
        one, other = now.names[-2:]
        columns = (*now.columns[:-2], column(other), column(one))
        changes = Change(Act.RENAME, one, other), Change(Act.RENAME, other, one)
        self._log(replace(now, columns=columns), Alteration(changes), dict(self.tables[-1]))

    def _add(self, some: int) -> None:
        now = self.definitions[-1]
        new, after = f"c{self.written}", [None, *now.names][some % (len(now.names) + 1)]
        at = len(now.names) if after is None else now.names.index(after) + 1
        columns = (*now.columns[:at], column(new), *now.columns[at:])
        rows: dict[int, Any] = dict(self.tables[-1])
        wider: Any = {key: (*row[: at - 1], None, *row[at - 1 :]) for key, row in rows.items()}
        self._log(replace(now, columns=columns), Alteration((Change(Act.ADD, new, new, after),)), wider)

    def _log(self, definition: Definition, alteration: Alteration, rows: Table) -> None:
        self.definitions.append(definition)
        end = FilePosition(self.file.file, 100 * (self.written + 1))
        place = end.place(0) if self.tells_ends else replace(self.places[-1], pos=self.places[-1].pos + 1)
        self.log.append(Altered(Gtid(SERVER, self.written + 1), place, frozenset(), (), alteration))
        self.ends.append(end)
        self.places.append(end.place(0))
        self.tables.append(rows)


class Evolving(World):
    """A merge ends before each DDL; there the rows are lifted. The definition is known by a bracket."""

    source: EvolvingSource
    CALM = (*World.CALM, "bind", "lift")

    def __init__(self, rows: Table, *, gtids: bool) -> None:
        self.alterations = 0
        self.shown: tuple[str, ...] = ()  # the columns that readers see
        self.refused = set[str]()  # why rows were not lifted
        super().__init__(rows, gtids=gtids)
        self.source = EvolvingSource(rows, gtids=gtids)
        self.definitions = {FIRST_DEFINITION.fingerprint: FIRST_DEFINITION}  # durable

    def reopen_spool(self) -> None:
        """The binlog has all that the tip of staging needs, also where that is what readers saw before a barrier."""
        if self.progress and self.spool and self.progress.splits.stop:
            begin, end = self.spool
            self.spool = min(begin, self.source.places.index(self.progress.needed_from)), end

    def begin(self) -> None:
        """A run knows no definition that it has not read itself."""
        super().begin()
        self.bound: tuple[int, Definition, int] | None = None  # spool's end, definition, written after that

    def possible(self) -> list[str]:
        """The steps that can be taken now."""
        source, altered = self.source, self.alterations < ALTERATIONS_MAX
        steps = {"alter": altered and source.visible == source.written}
        if self.progress and self.spool and not self.plan and self.lake.doc is not None and self.stands_before_ddl():
            is_bound = self.bound is not None and self.is_bound()
            steps |= {"bind": self.bound is None, "lift": is_bound}
        return [*super().possible(), *(step for step, now in steps.items() if now)]

    def alter(self, some: int) -> None:
        """A client changes the table."""
        self.source.alter(some)
        self.alterations += 1

    # Where the table stands.

    @property
    def definition(self) -> Definition:
        """The definition of the staged rows."""
        return self.definitions[self.state.fingerprint]

    def ahead(self) -> list[int]:
        """The spooled DDL after the table's position, by the number of transactions before it."""
        since = self.state.needed_from
        return [
            number
            for number, one in enumerate(self.source.log[: self.spooled[1]])
            if isinstance(one, Altered) and one.place > since
        ]

    def stops(self) -> list[int]:
        """None after the next DDL."""
        ahead = self.ahead()
        return [count for count in super().stops() if not ahead or count <= ahead[0]]

    def is_quiet(self) -> bool:
        """Whether there is no DDL of the table either."""
        return not self.ahead() and super().is_quiet()

    def stands_before_ddl(self) -> bool:
        """Whether the merge up to the next DDL is done."""
        ahead = self.ahead()
        return bool(ahead) and self.state.stop == self.source.places[ahead[0]] and self.state.phase in LIFTABLE

    # The bracket.

    def bind(self) -> None:
        """The definition is read while the spool ends somewhere; the written position is read after that."""
        self.bound = self.spooled[1], self.source.definitions[self.source.visible], self.source.written

    def is_bound(self) -> bool:
        """Whether the spool has come to the end of the bracket; with DDL within, the definition is read again."""
        assert self.bound is not None
        since, _, until = self.bound
        if self.spooled[1] < until:
            return False
        if any(isinstance(one, Altered) for one in self.source.log[since : self.spooled[1]]):
            self.bound = None
            return False
        return True

    # The lift.

    def lift(self) -> None:
        """The staged rows get the next definition, in one commit."""
        assert self.bound is not None
        ahead = self.ahead()
        altered = [one for one in self.source.log if isinstance(one, Altered)]
        pending = [one.alteration for one in altered if self.source.log.index(one) >= ahead[0]]
        known = [one for number, one in zip(ahead, pending, strict=False) if number < self.spooled[1]]
        try:
            found = self.lifts(known, self.bound[1])
        except NotLiftable as error:
            self.refused.add(str(error))
            self.start_over()
            return
        self.bound = None
        empties = self.empties(known[0])
        for lift in self.chosen(found):
            self.definitions[lift.after.fingerprint] = lift.after
            left = [] if empties else self.rows_of()
            rows = tuple((key, self.lifted_row(values, lift)) for key, values in left)
            position = self.position(self.ahead()[0] + 1)
            step = self.state.emptied if empties else self.state.lifted
            self.store(rows, step(position, lift.after.fingerprint))
        self.after_lift()

    def empties(self, alteration: Alteration) -> bool:
        """Whether the rows of before are gone after the DDL."""
        return alteration.empties

    def lifts(self, known: list[Alteration], now: Definition) -> list[Lift]:
        """The lifts over the DDL that the spool has."""
        return lifts(self.definition, known, now)

    def start_over(self) -> None:
        """The copy is read again from its first chunk, by the definition of now; readers keep what they see.

        Where DDL is not over yet, the table waits.
        """
        if not self.can_join():
            return
        source, count = self.source, self.source.executed
        now = self.next_definition()
        self.definitions[now.fingerprint] = now
        start = source.places[count] if source.gtids else self.settled()
        self.spool = sum(one.place <= start for one in source.log), count
        new = Progress(ORDERS, now.fingerprint, SERVER, 0, start)
        self.reads, self.plan, self.bound = [], None, None
        self.store(self.rows_that_stay(), self.state.started_over(new))

    def next_definition(self) -> Definition:
        """The definition that the new copy is read by."""
        return self.source.definitions[self.source.visible]

    def rows_that_stay(self) -> tuple[Any, ...]:
        """None of before."""
        return ()

    def can_join(self) -> bool:
        """Whether all DDL is executed."""
        return not any(isinstance(one, Altered) for one in self.source.log[self.source.executed :])

    def settled(self) -> Place:
        """Without GTIDs, the place up to which views have every change: a file's start, or the last DDL after that.

        DDL has the table for itself: the transactions before it have ended.
        """
        source = self.source
        altered = [end for one, end in zip(source.log, source.places[1:], strict=True) if isinstance(one, Altered)]
        return max([source.file.place(0), *altered])

    def chosen(self, found: list[Lift]) -> list[Lift]:
        """The lift over the next DDL."""
        return found[:1]

    def lifted_row(self, values: Values, lift: Lift) -> Values:
        """A row by its next definition: by the identity of columns."""
        known = dict(values)
        columns = list(zip(lift.after.names, lift.origins, strict=True))[1:]
        return tuple((name, None if origin is None else known[origin]) for name, origin in columns)

    def after_lift(self) -> None:
        """Readers see nothing of it."""

    def rows_of(self) -> list[tuple[int, Values]]:
        """The staged rows."""
        rows: Any = self.lake.rows
        return list(rows)

    # Rows.

    def decoded_by(self, place: Place) -> Definition:  # noqa: ARG002 - the merge is between two DDL
        """The definition that a row in the binlog is read with."""
        return self.definition

    def read(self, some: int) -> None:
        """Once a chunk has its high watermark, it holds the table's lock, which DDL waits for and is waited for."""
        highs = sum(read.high is not None for read in self.reads)
        super().read(some)
        if sum(read.high is not None for read in self.reads) > highs:
            self.is_as_joined &= not self.altered_before_chunk()

    def plan_wave(self) -> None:
        """A wave of a table that is as it was when it joined."""
        super().plan_wave()
        self.is_as_joined = True

    def altered_before_chunk(self) -> bool:
        """Whether there was DDL since the table joined, when the chunk has its lock; a definition can come back."""
        return any(isinstance(one, Altered) and one.place > self.state.covered_from for one in self.source.log)

    def commit_wave(self) -> None:
        """The copy starts over where the definition is not the one that the table joined with."""
        if not self.is_as_joined:
            if self.lake.main is None:
                self.lake.marked, self.spool = ((), ""), None
                self.begin()
            else:
                self.start_over()
            return
        for read in self.reads:
            rows: Any = read.rows or ()
            read.rows = _rows((key, named(values, self.definition)) for key, values in rows)
        super().commit_wave()

    def open_spool(self) -> None:
        """The table joins with the definition of now."""
        if not self.can_join():
            return
        super().open_spool()
        now = self.source.definitions[self.source.visible]
        self.definitions[now.fingerprint] = now
        joined = replace(self.state, fingerprint=now.fingerprint)
        self.store(self.lake.rows, joined if self.source.gtids else replace(joined, covered_from=self.settled()))

    def merge(self) -> None:
        """With rows by the names of their columns."""
        log = self.source.log
        self.source.log = [replace(one, changes=tuple(self._decoded(change) for change in one.changes)) for one in log]
        try:
            super().merge()
        finally:
            self.source.log = log

    def _decoded(self, change: ChangeRow) -> ChangeRow:
        if change.kind.is_delete or change.place <= self.planned.start or change.place > self.planned.stop:
            return change
        return replace(change, values={"value": named(change.values["row"], self.decoded_by(change.place))})

    # Readers.

    def compare(self, expected: Table) -> None:
        """The columns are those that the source had there, too."""
        definition = self.source.definitions[self.source.places.index(self.place)]
        rows: Any = expected
        by_name: Any = {key: named(row, definition) for key, row in rows.items()}
        super().compare(by_name)

    def publish(self) -> None:
        """The columns that readers see change with the rows."""
        super().publish()
        if self.lake.main == self.lake.marked:
            self.shown = self.definition.names

    def set_back(self) -> None:
        """Someone rolls the table back, maybe over DDL; which columns he leaves is his affair."""
        super().set_back()
        self.shown = ()

    def store(self, rows: tuple[Any, ...], progress: Progress) -> None:
        """No commit on staging changes what readers see."""
        super().store(rows, progress)
        self.look()

    def look(self) -> None:
        """A reader polls: the columns are those of the rows that he sees."""
        if self.lake.main is None or not self.shown:
            return
        rows: Any = self.lake.main[0]
        for _, values in rows:
            names = [name for name, _ in values]
            assert names == list(self.shown[1:]), "readers see columns that are not the table at their position"


LIFTABLE = {Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED}


def _rows(rows: Iterable[tuple[int, Values]]) -> Any:
    return tuple(rows)


def named(row: tuple[int | None, ...], definition: Definition) -> Values:
    """The values of a bare row, which must fit the definition."""
    names = definition.names[1:]
    assert len(row) == len(names), "a row that does not fit its definition is not the table"
    return tuple(zip(names, row, strict=True))
