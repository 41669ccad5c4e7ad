"""A source whose foreign keys change rows outside its log, and copies of its tables, in a few lines each."""

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascaded import Cascaded, Standing
from lakeingest.core.cascades.cascades import ForeignKey, Move, Row, RowChange, Rule, depth, values_of
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import SpoolGap

Rows = dict[Row, Row]  # by their keys


def table(name: str) -> TableId:
    """A table of the model."""
    return TableId("m", name)


P, C, G, K, H, T, D = map(table, "PCGKHTD")
COLUMNS = {
    P: ("id",),
    C: ("id", "p", "v"),
    G: ("id", "g", "v"),
    K: ("p", "n"),
    H: ("id", "p", "n"),
    T: ("id", "up"),
    D: ("id", "d"),
}
KEYS = {one: names[:2] if one == K else names[:1] for one, names in COLUMNS.items()}
LINKS = [(C, ("p",), P, ("id",)), (G, ("g",), C, ("id",)), (K, ("p",), P, ("id",)), (H, ("p", "n"), K, ("p", "n"))]
LINKS += [(T, ("up",), T, ("id",)), (G, ("v",), P, ("id",)), (D, ("d",), G, ("id",))]


FOCUS = [[P, P, C, G, D], [P, P, K, H], [T], [P, C, G], [P, P, C, G, K, H, T, D]]


def class_of(values: Row) -> Row:
    """The class of values: 11 and 1 are one value to the source."""
    return tuple(value and value % 10 for value in values)


def place(number: int) -> Place:
    """The place of a transaction."""
    return Place(1, 1, number)


class Killed(Exception):
    """A run ends here."""


class Collision(Exception):
    """A statement that fails: it would give two rows one key."""


class Source:
    """Tables, the states that they had after each transaction, and what was logged."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self.removing = chance, 0.2
        self._busy = chance.choice(FOCUS)  # the tables that are changed
        self._variants = chance.choice([1, 2])  # of a value that are one to the source
        self.keys: dict[TableId, tuple[ForeignKey, ...]] = {}
        for child, columns, parent, referenced in LINKS:
            has_key = set(columns) & set(KEYS[child])
            rules = [Rule.CASCADE, Rule.CASCADE, Rule.SET_NULL, Rule.NONE]
            rules = [Rule.CASCADE, Rule.NONE] if has_key else rules
            key = ForeignKey(child, columns, parent, referenced, chance.choice(rules), chance.choice(rules))
            if (key.on_delete, key.on_update) != (Rule.NONE, Rule.NONE):
                self.keys[child] = (*self.keys.get(child, ()), key)
        every = [key for keys in self.keys.values() for key in keys]
        self.secret = {key for key in every if chance.random() < chance.choice([0, 0.2])}  # not comparable
        self.states: list[dict[TableId, Rows]] = [{one: {} for one in COLUMNS}]
        self.log: list[tuple[int, TableId, Row | None, Row | None]] = []

    @property
    def now(self) -> int:
        """The number of the last transaction."""
        return len(self.states) - 1

    def change(self) -> None:
        """A transaction of some random logged changes, with all that foreign keys make of them."""
        state, logged = {one: dict(rows) for one, rows in self.states[-1].items()}, []
        for _ in range(self._chance.randrange(1, 3)):
            name = self._chance.choice(self._busy)
            rows = list(state[name].values())
            before = self._chance.choice(rows) if rows and self._chance.random() < self.removing else None
            after = None if before and self._chance.random() < 0.5 else self._row(name)
            try:
                tried = {one: dict(rows) for one, rows in state.items()}
                self._apply(tried, name, before, after)
            except Collision:
                continue
            state = tried
            logged.append((self.now + 1, name, before, after))
        self.log += logged
        self.states.append(state)

    def _row(self, name: TableId) -> Row:
        variant = self._chance.randrange
        return tuple(variant(1, 4) + 10 * variant(self._variants) for _ in COLUMNS[name])

    def _apply(self, state: dict[TableId, Rows], name: TableId, before: Row | None, after: Row | None) -> None:
        rows = state[name]
        if before is not None:
            del rows[key_of(name, before)]
        if after is not None:
            if class_of(key_of(name, after)) in map(class_of, rows):
                raise Collision
            rows[key_of(name, after)] = after
        if before is None:
            return
        for key in (one for keys in self.keys.values() for one in keys if one.parent == name):
            effect = key.effect(COLUMNS[name], RowChange(place(0), before, after))
            if effect is None:
                continue
            for row in list(state[key.table].values()):
                values = values_of(key.columns, COLUMNS[key.table], row)
                if class_of(values) == class_of(effect[0]) and row in state[key.table].values():
                    self._apply(state, key.table, row, changed(key, row, effect[1]))


def key_of(name: TableId, row: Row) -> Row:
    """The key of a row."""
    return values_of(KEYS[name], COLUMNS[name], row)


def changed(key: ForeignKey, row: Row, values: Row | None) -> Row | None:
    """The child row with the values that a foreign key gives it."""
    if values is None:
        return None
    new = dict(zip(key.columns, values, strict=True))
    return tuple(new.get(name, value) for name, value in zip(COLUMNS[key.table], row, strict=True))


@dataclass
class Patch:
    """Rows, or None, of keys in a view; every change up to `low` is in it."""

    low: int
    rows: dict[Row, Row | None]


@dataclass
class Copy:
    """The copy of a table: rows, each as of its mark; the rest is as in `core.progress`."""

    name: TableId
    to: int
    rows: Rows = field(default_factory=dict)
    marks: dict[Row, int] = field(default_factory=dict)  # of the first copy, by key
    at: int | None = None
    patches: list[Patch] = field(default_factory=list)
    needed: int = 0
    gap: bool = False
    version: int = 0
    settled: int = -1
    left: list[Row] = field(default_factory=list)  # keys that are still to be compared


class Lake:
    """Copies of all tables, with the log up to `end`; `noise` is what the source does meanwhile."""

    def __init__(self, source: Source, noise: Callable[[], None]) -> None:
        self.source, self.noise = source, noise
        self.between: Callable[[], None] = lambda: None
        self.end = source.now
        self.cascaded = Cascaded()
        self.copies = {name: Copy(name, self.end) for name in COLUMNS}
        self.compared = self.published = self.reread = 0

    # what `Cascaded` asks for

    @property
    def stop(self) -> Place:
        """The end of the log."""
        return place(self.end)

    def columns(self, name: TableId) -> tuple[str, ...]:
        """All of them."""
        return COLUMNS[name]

    def standing(self, name: TableId) -> Standing:
        """How far the copy goes."""
        copy = self.copies[name]
        return Standing(place(copy.to), None if copy.at is None else place(copy.at), copy.gap, copy.version)

    def comparable(self, key: ForeignKey) -> bool:
        """Most are."""
        return key not in self.source.secret

    def classes(self, key: ForeignKey, values: Collection[Row]) -> Mapping[Row, Row]:
        """As the source compares them."""
        assert key not in self.source.secret
        return {one: class_of(one) for one in values}

    def may_touch(self, key: ForeignKey, after: Place, upto: Place) -> bool:
        """Whatever was changed or removed."""
        assert key in self.source.secret
        return any(change.place <= upto for change in self.logged(key.parent, after))

    def logged(self, name: TableId, after: Place) -> Iterable[RowChange]:
        """The rows that the log takes away or makes others."""
        for number, one, before, new in self.source.log:
            if one == name and before is not None and after < place(number) <= self.stop:
                yield RowChange(place(number), before, new)

    def versions(self, name: TableId, sought: Mapping[ForeignKey, Collection[Row]]) -> Iterable[Row]:
        """In the copy, in patches, in the log since."""
        copy = self.copies[name]
        known = [*copy.rows.values(), *(row for patch in copy.patches for row in patch.rows.values())]
        for number, one, before, after in self.source.log:
            if one == name and copy.needed < number <= self.end:
                known += [before, after]
        for key, values in sought.items():
            for row in filter(None, known):
                if class_of(values_of(key.columns, COLUMNS[name], row)) in values:
                    yield row

    # what a run does

    def spool(self) -> None:
        """Read the log up to now; more may be written at once."""
        self.end = self.source.now
        self.noise()

    def view(self, name: TableId) -> tuple[int, Rows]:
        """A low watermark, and the rows of a view that has all up to there, and maybe more."""
        low = self.source.now
        self.noise()
        seen = self.source.states[-1][name]
        self.noise()
        return low, seen

    def copy_first(self, name: TableId) -> None:
        """Read the table in chunks of one key value each."""
        copy = self.copies[name]
        copy.to = copy.needed = self.end
        for first in range(1, 4):
            low, seen = self.view(name)
            for key, row in seen.items():
                if class_of(key)[0] == first:
                    copy.rows[key] = row
            copy.marks[first,] = low
        self.spool()

    def merge(self, copy: Copy) -> None:
        """Bring the rows to the end of the log, as `core.wave` does it."""
        wanted: dict[Row, tuple[int, Row | None]] = {}
        touched = {
            key_of(copy.name, row) for _, one, *rows in self.source.log if one == copy.name for row in rows if row
        }
        for key in {*copy.rows, *touched}:
            mark = copy.marks[class_of(key[:1])] if copy.at is None else copy.at
            wanted[key] = mark, copy.rows.get(key)
        for patch in copy.patches:
            wanted |= {key: (patch.low, row) for key, row in patch.rows.items()}
        for number, one, before, after in self.source.log:
            for row, kept in ((before, False), (after, True)) if one == copy.name and number <= self.end else ():
                if row is not None and wanted[key_of(copy.name, row)][0] < number:
                    key = key_of(copy.name, row)
                    wanted[key] = wanted[key][0], row if kept else None
        copy.rows = {key: row for key, (_, row) in wanted.items() if row is not None}
        copy.at, copy.patches, copy.needed = self.end, [], self.end
        if copy.settled == self.end:
            copy.to = self.end
        copy.version += 1

    def read(self, copy: Copy, keys: Iterable[Row], *, since: int, to: int) -> None:
        """Read keys again, as a patch; also rows whose keys are the same ones to the source."""
        low, seen = self.view(copy.name)
        rows = {key: seen.get(key) for key in keys}
        classes = set(map(class_of, rows))
        rows |= {key: row for key, row in seen.items() if class_of(key) in classes}
        self.commit(copy, Patch(low, rows), since=since, to=to)

    def commit(self, copy: Copy, patch: Patch, *, since: int, to: int) -> None:
        """Let a patch wait for the next merge."""
        copy.patches.append(patch)
        copy.to, copy.needed = to, min(copy.needed, since)
        copy.version += 1
        if copy.to < copy.settled:
            copy.settled = -1

    def settle(self, copy: Copy) -> bool:
        """`pipeline.cascades.settle`; False where parents change all the time."""
        for _ in range(6):
            try:
                changes = self.cascaded.changes(copy.name, self.source.keys, self)
            except SpoolGap:
                if not copy.gap:
                    self.compare(copy)
                return True
            touched = {change for change in changes if change.place > place(copy.to)}
            moves = [one for one in self.cascaded.moves(copy.name) if one.place > place(copy.to)]
            moves = [one for one in moves if set(one.key.columns) & set(KEYS[copy.name])]
            below = [key.table for keys in self.source.keys.values() for key in keys if key.parent == copy.name]
            known = [self.copies[one] for one in {copy.name, *below}]
            self.cascaded.forget(copy.name, place(min(min(one.to, one.needed) for one in known)))
            if not touched and not moves:
                copy.settled = self.end
                return True
            rows = {row for change in touched for row in (change.before, change.after) if row is not None}
            self.reread += len(rows)
            stop = self.end
            self.read(copy, {key_of(copy.name, row) for row in rows}, since=stop, to=stop)
            if moves:
                low, seen = self.view(copy.name)
                found = self.moved(copy.name, seen, moves)
                self.commit(copy, Patch(low, found), since=stop, to=stop)
            self.between()
            self.spool()
        return False

    def moved(self, name: TableId, seen: Rows, moves: Collection[Move]) -> dict[Row, Row | None]:
        """The rows of a view with values that were given to them."""
        given = {(one.key, class_of(one.values)) for one in moves}
        keys = {one.key for one in moves}
        return {
            at: row
            for at, row in seen.items()
            for key in keys
            if (key, class_of(values_of(key.columns, COLUMNS[name], row))) in given
        }

    def compare(self, copy: Copy) -> None:
        """All rows are to be compared."""
        self.merge(copy)
        self.compared += 1
        copy.gap, copy.to, copy.settled = True, self.end, self.end
        copy.left = sorted({*copy.rows, *self.source.states[-1][copy.name], *((n,) for n in range(1, 4))})

    def compare_some(self, copy: Copy) -> None:
        """A wave of the comparison: a third of what is left, with all keys that begin alike."""
        since, first = self.end, class_of(copy.left[0])[0]
        low, seen = self.view(copy.name)
        keys = {key for key in {*copy.rows, *seen} if class_of(key)[0] == first}
        rows = {key: seen.get(key) for key in keys if copy.rows.get(key) != seen.get(key)}
        copy.left = [key for key in copy.left if class_of(key)[0] != first]
        copy.gap = bool(copy.left)
        if rows:
            self.commit(copy, Patch(low, rows), since=since, to=min(copy.to, since))
        copy.version += 1
        self.spool()

    def catch_up(self, copy: Copy) -> None:
        """Settle, merge, and compare what readers would see with the source."""
        if copy.name in self.source.keys and not self.settle(copy):
            return
        self.merge(copy)
        if not copy.gap and self.is_settled(copy):
            self.published += 1
            assert copy.at is not None
            assert copy.rows == self.source.states[copy.at][copy.name], (copy.name, copy.at)

    def is_settled(self, copy: Copy) -> bool:
        """Whether readers may see it."""
        return not copy.patches and (copy.name not in self.source.keys or copy.to == copy.at)

    def in_order(self) -> list[Copy]:
        """Parents before their children."""
        return sorted(self.copies.values(), key=lambda copy: depth(copy.name, self.source.keys))
