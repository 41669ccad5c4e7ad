"""Changes by foreign keys that the source does not log: which rows of a table they may have touched.

ON DELETE or ON UPDATE with CASCADE or SET NULL changes the child rows that refer to the old values of a parent row.
This module searches for these child rows. The search begins with the changes of the parent: the logged changes, and
the changes by the parent's own foreign keys. Parents are searched before their children, so both are known.
A child row is touched only if one of its versions refers to the old values: the version in the copy, a later version in
the log, or a version that an earlier change by a foreign key left. The search may find rows that were not touched, but
it misses no row that was touched. Only the source knows the new values of the rows, so the rows are read again
(`pipeline.cascades`).

The server may take different values for equal, such as `a` and `A`. `Classes` tells which values are in one class.
"""

import enum
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, OperatorNeeded, StateUnreadable

Row = tuple[Any, ...]  # the values of some columns of a row, in the order of their names


class Rule(enum.StrEnum):
    """The action of a foreign key on the rows of the child."""

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
    """A foreign key of the child `table`: its `columns` have the values of the columns `referenced` of the `parent`.

    `types` has for each column the type that decides how the server compares values (`core.cascades.comparison`); () if
    all columns are integers.
    """

    table: TableId
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    on_delete: Rule
    on_update: Rule
    types: tuple[str, ...] = ()

    def effect(self, columns: Sequence[str], change: RowChange) -> tuple[Row, Row | None] | None:
        """The old values of the child rows that a change of the parent touches, and the new values of these child rows.

        Both are values of the foreign key's columns. The new values are None if the child rows are deleted. The result
        is None if the change touches no child row. `columns`: the columns of the parent's rows.
        """
        old = values_of(self.referenced, columns, change.before)
        new = None if change.after is None else values_of(self.referenced, columns, change.after)
        rule = self.on_delete if new is None else self.on_update
        if rule is Rule.NONE or None in old or new == old:  # no child row refers to NULL
            return None
        new_values = (None,) * len(old) if rule is Rule.SET_NULL else new
        return old, new_values


@dataclass(frozen=True, slots=True)
class Move:
    """New values that the change at `place` gave to a foreign key's columns. Maybe no chunk has a row with them."""

    place: Place
    key: ForeignKey
    values: Row


ForeignKeys = Mapping[TableId, Sequence[ForeignKey]]
# A function from values of a foreign key's columns, without NULL, to the class of each. If the server may take two
# values for equal, they have one class
Classes = Callable[[ForeignKey, Collection[Row]], Mapping[Row, Row]]


def values_of(names: Sequence[str], columns: Sequence[str], row: Row) -> Row:
    """The values of the named columns of a row that has `columns`."""
    return tuple(row[columns.index(name)] for name in names)


def family(table: TableId, keys: ForeignKeys) -> tuple[ForeignKey, ...]:
    """The foreign keys that may change rows of the table, sorted: its own, those of its parents, and so on upwards.

    Raises OperatorNeeded if these foreign keys form a ring of several tables, because parents are searched first.
    """
    collected: set[ForeignKey] = set()
    _collect(table, keys, collected, ())
    return tuple(sorted(collected))


def _collect(table: TableId, keys: ForeignKeys, collected: set[ForeignKey], path: tuple[TableId, ...]) -> None:
    """Add the foreign keys of the table and of all its ancestors to `collected`.

    `path`: the tables below this one, through which the search came to this table.
    """
    if table in path:
        ring = ", ".join(map(str, path[path.index(table) :]))
        raise OperatorNeeded(f"foreign keys lead from {ring} back to {table}")
    for key in keys.get(table, ()):
        collected.add(key)
        if key.parent != table:  # a table that refers to itself is no ring of several tables
            _collect(key.parent, keys, collected, (*path, table))


def depth(table: TableId, keys: ForeignKeys) -> int:
    """The number of tables above this one by the foreign keys `keys`, counted as in `depth_by`."""
    return depth_by(table, lambda child: {key.parent for key in keys.get(child, ())})


def depth_by(table: TableId, parents_of: Callable[[TableId], Collection[TableId]]) -> int:
    """The number of tables above this one: its parents, their parents and so on.

    If there is no ring, a table has a greater depth than each of its parents.
    """
    above: set[TableId] = set()
    waiting = [table]
    while waiting:
        parents = {*parents_of(waiting.pop())} - above
        above |= parents
        waiting += parents
    return len(above - {table})  # a table in a ring, or one that refers to itself, does not count as above itself


def signature(keys: Iterable[ForeignKey]) -> str:
    """A text that is the same for the same foreign keys, in any order; '' if there are none."""
    texts = [
        f"{key.table} {key.columns} {key.parent} {key.referenced} {key.on_delete} {key.on_update}"
        + (f" {key.types}" if key.types else "")
        for key in keys
    ]
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16] if texts else ""


@dataclass(frozen=True, slots=True)
class CascadesRead:
    """A note: a copy, or its patches that wait for a merge, have all changes by foreign keys up to the place `to`.

    `keys`: the `signature` of the foreign keys that were known when the changes were looked for.
    """

    keys: str
    to: Place

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {"keys": self.keys, "to": str(self.to)}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for anything else."""
        try:
            return cls(str(doc["keys"]), Place.parse(doc["to"]))
        except DAMAGED as error:
            raise StateUnreadable(f"not what is known of foreign keys: {doc!r}") from error


class Affected:
    """The rows of one table that its foreign keys may have touched, found step by step.

    1. The caller calls `add_changes` for each parent.
    2. As long as `sought` returns classes of values, the caller looks up the rows with values of these classes, and
       calls `add_rows`.
    3. In the end, `changes` has each change that may have happened, whatever the order of the calls was.
    """

    def __init__(self, table: TableId, columns: Sequence[str], keys: Sequence[ForeignKey], classes: Classes) -> None:
        self._table, self._columns, self._keys, self._classes = table, tuple(columns), tuple(keys), classes
        # by foreign key, and by the class of the old values: the place of each change, and the new values
        self._effects: dict[ForeignKey, dict[Row, set[tuple[Place, Row | None]]]] = {key: {} for key in keys}
        # by foreign key, and by values: the class of the values
        self._class_of: dict[ForeignKey, dict[Row, Row]] = {key: {} for key in keys}
        # by foreign key: the classes that `sought` has returned
        self._returned: dict[ForeignKey, set[Row]] = {key: set() for key in keys}
        self._rows: set[Row] = set()  # the known versions of the table's rows
        self.changes: set[RowChange] = set()

    def add_changes(self, parent: TableId, columns: Sequence[str], changes: Iterable[RowChange]) -> None:
        """Take in changes of a parent, whose rows have these columns."""
        self._note_effects(parent, columns, changes)
        self._spread()

    def sought(self) -> dict[ForeignKey, set[Row]]:
        """By foreign key, the classes of values whose rows the caller has to look up. No class is returned twice."""
        to_look_up = {}
        for key, effects in self._effects.items():
            if new_classes := effects.keys() - self._returned[key]:
                self._returned[key] |= new_classes
                to_look_up[key] = new_classes
        return to_look_up

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Take in versions of the table's rows: in the copy, in its patches, or in the log."""
        self._rows.update(rows)
        self._spread()

    @property
    def moves(self) -> set[Move]:
        """The values that changes of the parents gave to rows of the table. Values with a NULL are left out."""
        moves: set[Move] = set()
        for key, effects in self._effects.items():
            outcomes = [outcome for outcomes_of_class in effects.values() for outcome in outcomes_of_class]
            # `new` is None if the rows were deleted
            moves |= {Move(place, key, new) for place, new in outcomes if new is not None and None not in new}
        return moves

    def _note_effects(self, parent: TableId, columns: Sequence[str], changes: Iterable[RowChange]) -> None:
        """Note the effects that these changes of the parent have through each foreign key."""
        parent_changes = list(changes)
        for key in self._keys:
            if key.parent != parent:
                continue
            effects = [(change.place, key.effect(columns, change)) for change in parent_changes]
            touching = [(place, *effect) for place, effect in effects if effect is not None]  # (place, old, new)
            classes = self._classes_with(key, (old for _, old, _ in touching))
            for place, old, new in touching:
                self._effects[key].setdefault(classes[old], set()).add((place, new))

    def _classes_with(self, key: ForeignKey, values: Iterable[Row]) -> Mapping[Row, Row]:
        """The class of each of `values`, which have no NULL, and of each value of the key that was asked for before."""
        class_of = self._class_of[key]
        if unclassed := set(values) - class_of.keys():
            class_of |= self._classes(key, unclassed)
        return class_of

    def _spread(self) -> None:
        """Apply every known effect to every known row, until there is no new change.

        A changed row may be touched once more, and may itself be a parent row.
        """
        while new := self._possible_changes() - self.changes:
            self.changes |= new
            self._rows |= {change.after for change in new if change.after is not None}
            self._note_effects(self._table, self._columns, new)

    def _possible_changes(self) -> set[RowChange]:
        """The changes that the foreign keys may have made to the known rows.

        A foreign key without effects is skipped, so that the classes of its values are not looked up.
        """
        return {change for key in self._keys if self._effects[key] for change in self._changes_by(key)}

    def _changes_by(self, key: ForeignKey) -> Iterator[RowChange]:
        """The changes that one foreign key may have made to the known rows."""
        all_rows = [(row, values_of(key.columns, self._columns, row)) for row in self._rows]
        referring = [(row, values) for row, values in all_rows if None not in values]  # NULL refers to no parent row
        classes = self._classes_with(key, (values for _, values in referring))
        effects = self._effects[key]
        for row, values in referring:
            for place, new in effects.get(classes[values], ()):
                yield RowChange(place, row, None if new is None else self._row_with(row, key.columns, new))

    def _row_with(self, row: Row, names: Sequence[str], values: Row) -> Row:
        """The row with these values in the named columns."""
        new = dict(zip(names, values, strict=True))
        return tuple(new.get(name, value) for name, value in zip(self._columns, row, strict=True))
