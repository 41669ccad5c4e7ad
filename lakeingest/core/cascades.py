"""Changes by foreign keys that the source does not log: which rows of a table they may have touched.

ON DELETE or ON UPDATE with CASCADE or SET NULL changes the child rows whose columns have the referenced values that a
row of the parent had before. That row's change is known: it is in the log, or it is found here one table higher. So a
child row is touched only if one of its versions has such values: as the copy has it, as the log has it since, or as an
earlier one of these changes left it. More rows than were touched may be found, never fewer. What became of them, only
the source knows: they are read again (`pipeline.cascades`).

Different values may be one to the server, such as `a` and `A`. `Classes` tells which.
"""

import enum
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, OperatorNeeded, StateUnreadable

Row = tuple[Any, ...]  # the values of some columns of a row, in the order of their names


class Rule(enum.StrEnum):
    """What a foreign key does with the rows of the child."""

    CASCADE = "CASCADE"
    SET_NULL = "SET NULL"
    NONE = "NO ACTION"  # or RESTRICT: it changes no row


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row, in the transaction at `place`. `after` is None if the row was deleted."""

    place: Place
    before: Row
    after: Row | None


@dataclass(frozen=True, slots=True, order=True)
class ForeignKey:
    """A foreign key of `table` that changes rows of it: its columns have the values of `referenced` in the parent.

    `types` says of each column what decides how the server compares its values (`core.comparison`); () if all are
    integers.
    """

    table: TableId
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    on_delete: Rule
    on_update: Rule
    types: tuple[str, ...] = ()

    def effect(self, columns: Sequence[str], change: RowChange) -> tuple[Row, Row | None] | None:
        """The values of the child rows that a change of the parent touches, and those that they get.

        None instead of the latter: the rows go. None: it touches no row. The parent's rows have these `columns`.
        """
        old = values_of(self.referenced, columns, change.before)
        new = None if change.after is None else values_of(self.referenced, columns, change.after)
        rule = self.on_delete if new is None else self.on_update
        if rule is Rule.NONE or None in old or new == old:
            return None
        return old, (None,) * len(old) if rule is Rule.SET_NULL else new


@dataclass(frozen=True, slots=True)
class Move:
    """The change at `place` gave these values to the columns of a foreign key in rows that nobody may have seen."""

    place: Place
    key: ForeignKey
    values: Row


ForeignKeys = Mapping[TableId, Sequence[ForeignKey]]
# of values of a foreign key's columns, without NULL, those of their class: equal ones where the server may find the
# values to be equal
Classes = Callable[[ForeignKey, Collection[Row]], Mapping[Row, Row]]


def values_of(names: Sequence[str], columns: Sequence[str], row: Row) -> Row:
    """The values of the named columns of a row that has `columns`."""
    return tuple(row[columns.index(name)] for name in names)


def family(table: TableId, keys: ForeignKeys) -> tuple[ForeignKey, ...]:
    """The foreign keys that may change rows of the table: its own, and those of its parents, sorted.

    OperatorNeeded where they lead from another table back to it: no order of these tables is the right one.
    """
    found: set[ForeignKey] = set()
    _collect(table, keys, found, ())
    return tuple(sorted(found))


def _collect(table: TableId, keys: ForeignKeys, found: set[ForeignKey], path: tuple[TableId, ...]) -> None:
    if table in path:
        ring = ", ".join(map(str, path[path.index(table) :]))
        raise OperatorNeeded(f"foreign keys lead from {ring} back to {table}")
    for key in keys.get(table, ()):
        found.add(key)
        if key.parent != table:
            _collect(key.parent, keys, found, (*path, table))


def depth(table: TableId, keys: ForeignKeys) -> int:
    """How many tables are its parents, or parents of these. It is more than each parent has, except in a ring."""
    above: set[TableId] = set()
    waiting = [table]
    while waiting:
        parents = {key.parent for key in keys.get(waiting.pop(), ())} - above
        above |= parents
        waiting += parents
    return len(above - {table})


def signature(keys: Iterable[ForeignKey]) -> str:
    """The same text for the same foreign keys; '' for none."""
    texts = [
        f"{key.table} {key.columns} {key.parent} {key.referenced} {key.on_delete} {key.on_update}"
        + (f" {key.types}" if key.types else "")
        for key in keys
    ]
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16] if texts else ""


@dataclass(frozen=True, slots=True)
class Settled:
    """All changes by foreign keys up to the place `to` are in a copy, or in patches that wait for its next merge.

    `keys` is the signature of the foreign keys that were known then.
    """

    keys: str
    to: Place

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {"keys": self.keys, "to": str(self.to)}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; StateUnreadable for anything else."""
        try:
            return cls(str(doc["keys"]), Place.parse(doc["to"]))
        except DAMAGED as error:
            raise StateUnreadable(f"not what is known of foreign keys: {doc!r}") from error


class Affected:
    """The rows of one table that its foreign keys may have touched, found step by step.

    `add_changes` of the parents, then look for rows with values of the classes that are `sought`, and `add_rows`, until
    nothing is sought any more. The order of all that does not matter: `changes` has each change that may have happened.
    """

    def __init__(self, table: TableId, columns: Sequence[str], keys: Sequence[ForeignKey], classes: Classes) -> None:
        self._table, self._columns, self._keys, self._classes = table, tuple(columns), tuple(keys), classes
        self._effects: dict[ForeignKey, dict[Row, set[tuple[Place, Row | None]]]] = {key: {} for key in keys}
        self._class_of: dict[ForeignKey, dict[Row, Row]] = {key: {} for key in keys}  # by values
        self._asked: dict[ForeignKey, set[Row]] = {key: set() for key in keys}
        self._rows: set[Row] = set()
        self.changes: set[RowChange] = set()

    def add_changes(self, parent: TableId, columns: Sequence[str], changes: Iterable[RowChange]) -> None:
        """Rows of a parent, which have these columns, were changed."""
        self._note(parent, columns, changes)
        self._spread()

    def sought(self) -> dict[ForeignKey, set[Row]]:
        """The classes of each foreign key's values that rows are to be looked for with; each is answered once."""
        found = {}
        for key, effects in self._effects.items():
            if new := effects.keys() - self._asked[key]:
                self._asked[key] |= new
                found[key] = new
        return found

    def add_rows(self, rows: Iterable[Row]) -> None:
        """The table has these rows, or had them, or they are in its log."""
        self._rows.update(rows)
        self._spread()

    @property
    def moves(self) -> set[Move]:
        """The values that changes of the parents gave to rows of the table."""
        return {
            Move(place, key, values)
            for key, effects in self._effects.items()
            for found in effects.values()
            for place, values in found
            if values is not None and None not in values
        }

    def _note(self, parent: TableId, columns: Sequence[str], changes: Iterable[RowChange]) -> None:
        known = list(changes)
        for key in self._keys:
            if key.parent != parent:
                continue
            found = [(change.place, effect) for change in known if (effect := key.effect(columns, change)) is not None]
            classes = self._learn(key, (old for _, (old, _) in found))
            for place, (old, new) in found:
                self._effects[key].setdefault(classes[old], set()).add((place, new))

    def _learn(self, key: ForeignKey, values: Iterable[Row]) -> Mapping[Row, Row]:
        """The classes of all values that are known so far, and of these, which have no NULL."""
        known = self._class_of[key]
        if new := set(values) - known.keys():
            known |= self._classes(key, new)
        return known

    def _spread(self) -> None:
        """Let every known change touch every known row; a changed row may be touched again, or be a parent itself."""
        while new := self._touches() - self.changes:
            self.changes |= new
            self._rows |= {change.after for change in new if change.after is not None}
            self._note(self._table, self._columns, new)

    def _touches(self) -> set[RowChange]:
        return {change for key in self._keys if self._effects[key] for change in self._by(key)}

    def _by(self, key: ForeignKey) -> Iterator[RowChange]:
        """What one foreign key does with the known rows."""
        rows = [(row, values_of(key.columns, self._columns, row)) for row in self._rows]
        rows = [(row, values) for row, values in rows if None not in values]
        classes, effects = self._learn(key, (values for _, values in rows)), self._effects[key]
        for row, values in rows:
            for place, new in effects.get(classes[values], ()):
                yield RowChange(place, row, None if new is None else self._with(row, key.columns, new))

    def _with(self, row: Row, names: Sequence[str], values: Row) -> Row:
        new = dict(zip(names, values, strict=True))
        return tuple(new.get(name, value) for name, value in zip(self._columns, row, strict=True))
