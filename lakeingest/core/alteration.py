"""Alterations: what the DDL of a table did to its columns, and which definition was in force between two statements.

A statement says which columns were added, dropped, renamed and moved. Only the server says how a column is defined, and
it tells only the current definition. So a definition in between is put together: a column that no later statement
redefined has its current definition; a column that no earlier statement redefined has the definition that it had before
all statements. Types are never read from statements.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from lakeingest.core.lift import Lift, NotLiftable, Unexplained
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import Column, TableId, TableSchema

FIRST = ""  # the place before all columns


class Act(enum.StrEnum):
    """What is done to a column."""

    ADD = "add"
    DROP = "drop"
    DEFINE = "define"  # its type, or anything else of its definition; maybe also its name
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one column. `name` is its name so far, or the name of a new column; `to` is its name afterwards.

    `after`: the column that it is put behind, or FIRST. None: the column stays where it is; a new column comes last.
    """

    act: Act
    name: str
    to: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Alteration:
    """All changes that one statement made to a table, in the order of the statement.

    `is_barrier`: the statement changed values, the key or the table itself, or something unknown; old rows tell nothing
    about new ones. `changes` then has the changes of names that could be read.
    `empties`: the statement removed all rows (TRUNCATE). `statement` is its text up to the first value in it. `text` is
    its whole text, for readers of the changelog alone, because logs must have no values; '' for a barrier, and in
    documents of older versions.
    """

    changes: tuple[Change, ...] = ()
    is_barrier: bool = False
    empties: bool = False
    statement: str = ""
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {
            "changes": [[change.act.value, change.name, change.to, change.after] for change in self.changes],
            "barrier": self.is_barrier,
            "empties": self.empties,
            "statement": self.statement,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        changes = (Change(Act(act), str(name), str(to), after) for act, name, to, after in doc["changes"])
        barrier, empties = (doc.get(name) is True for name in ("barrier", "empties"))
        statement, text = (str(doc.get(name, "")) for name in ("statement", "text"))
        return cls(tuple(changes), barrier, empties, statement, text)


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement in the binlog that altered tables, with the positions before and after it.

    `alone` are the tables that it certainly had for itself: all transactions with changes of them had ended before.
    """

    start: FilePosition
    stop: FilePosition
    alterations: Mapping[TableId, Alteration]
    alone: frozenset[TableId] = frozenset()


@dataclass(frozen=True, slots=True)
class _Life:
    """The identity of a column, whatever its name. `first` is its definition before all statements; None: it is new."""

    number: int
    first: Column | None = None


Names = dict[_Life, str]  # in the order of the columns


def lifts(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> list[Lift]:
    """The lifts that bring the rows of a table over each of its alterations, in their order.

    `before` held before the first alteration, and `now` holds after the last one.

    Raises:
        NotLiftable: an alteration is a barrier, or changes values, the key, or a type to one that does not hold every
            old value; or a definition in between cannot be known.
        Unexplained: the statements do not lead to `now`.

    """
    table = before.table
    if any(alteration.is_barrier for alteration in alterations):
        raise NotLiftable(f"{table}: DDL changed its values, its key or the table itself")
    # Step 1: the names of the columns before the first statement, and after each of them
    lives: list[Names] = [{_Life(number, column): column.name for number, column in enumerate(before.columns)}]
    defined: dict[_Life, list[int]] = {}  # by column, the numbers of the statements that defined it
    for step, alteration in enumerate(alterations, start=1):
        names = dict(lives[-1])
        for life in _altered(table, names, alteration, number=sum(map(len, lives))):
            defined.setdefault(life, []).append(step)
        lives.append(names)
    if tuple(lives[-1].values()) != now.names:
        raise Unexplained(
            f"{table}: by its DDL its columns would be {', '.join(lives[-1].values())}, and they are"
            f" {', '.join(now.names)}"
        )
    # Step 2: the definitions at the same moments
    last = dict(zip(lives[-1], now.columns, strict=True))
    schemas = [before]
    for step, names in enumerate(lives[1:], start=1):
        columns = tuple(_column(table, life, name, step, defined, last) for life, name in names.items())
        schemas.append(_schema(before, now, names, columns))
    if schemas[-1].fingerprint != now.fingerprint:
        raise Unexplained(f"{table}: its key, or how its rows are mapped, is no longer what it was")
    _assert_untouched(table, defined, last)
    schemas[-1] = now
    for old, new in pairwise(schemas):
        if old.fingerprint == new.fingerprint and not old.reads_as(new):
            raise NotLiftable(f"{table}: the charset of a column, or the place of one that is left out, is another now")
    # Step 3: a lift from each definition to the next
    lifted = []
    for step in range(1, len(schemas)):
        old_names, new_names = lives[step - 1], lives[step]
        origins = tuple(old_names.get(life) for life in new_names)
        redefined = frozenset(name for life, name in new_names.items() if step in defined.get(life, ()))
        lifted.append(Lift(schemas[step - 1], schemas[step], origins, redefined))
    return lifted


def added(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> frozenset[str]:
    """The columns of `now` that may be new since `before`, through these alterations."""
    changes = [change for alteration in alterations for change in alteration.changes]
    names = {change.to.casefold() for change in changes if change.act is Act.ADD}
    return frozenset(name for name in now.names if name not in before.names or name.casefold() in names)


def _altered(table: object, names: Names, alteration: Alteration, number: int) -> list[_Life]:
    """Change `names` as the statement does, and return the columns that it defines. `number` is free for a new column.

    MySQL's order: dropped columns go, and a column that keeps its place is renamed there. Then, in the order of the
    statement, every other column is put behind its neighbour, or last.
    """
    # all columns are looked up by the names that they have before the statement
    old_columns = [
        (change, None if change.act is Act.ADD else _named(table, names, change.name)) for change in alteration.changes
    ]
    defined, to_place = [], []
    for offset, (change, old) in enumerate(old_columns):
        if change.act is Act.DROP:
            assert old is not None  # noqa: S101 - looked up above
            del names[old]
            continue
        life = old or _Life(number + offset)
        if change.act is not Act.RENAME:
            defined.append(life)
        if old is not None and change.after is None:
            names[old] = change.to
        else:
            names.pop(life, None)
            to_place.append((life, change))
    for life, change in to_place:
        _place(table, names, life, change)
    if len({name.casefold() for name in names.values()}) < len(names):
        raise NotLiftable(f"{table}: two columns of one name")
    return defined


def _place(table: object, names: Names, life: _Life, change: Change) -> None:
    """Put a column where the change says: first, behind its neighbour, or last."""
    order = list(names.items())
    at = len(order)
    if change.after == FIRST:
        at = 0
    elif change.after is not None:
        neighbour = _named(table, names, change.after)
        at = list(names).index(neighbour) + 1
    order.insert(at, (life, change.to))
    names.clear()
    names.update(order)


def _named(table: object, names: Names, name: str) -> _Life:
    """The only column of this name, in any case of letters. Raises NotLiftable if there is none, or more than one."""
    matches = [life for life, column_name in names.items() if column_name.casefold() == name.casefold()]
    if len(matches) != 1:
        raise NotLiftable(f"{table}: its DDL names a column {name}, which is not known")
    return matches[0]


def _column(
    table: object,
    life: _Life,
    name: str,
    step: int,
    defined: Mapping[_Life, Sequence[int]],
    last: Mapping[_Life, Column],
) -> Column:
    """The definition that a column, then called `name`, had after the statement number `step`.

    `defined` has the numbers of the statements that defined a column, `last` its current definition. Raises NotLiftable
    if statements on both sides of that moment defined the column.
    """
    steps = defined.get(life, ())
    if life in last and not any(later > step for later in steps):
        return replace(last[life], name=name)
    if life.first is not None and not any(earlier <= step for earlier in steps):
        return replace(life.first, name=name)
    raise NotLiftable(f"{table}: nobody knows any more how its column {name} was defined between two alterations")


def _assert_untouched(table: object, defined: Mapping[_Life, Sequence[int]], last: Mapping[_Life, Column]) -> None:
    """Raise Unexplained if a column has changed that no statement defined: the binlog lacks the DDL that did it."""
    for life, column in last.items():
        first = life.first
        if first is None or life in defined:
            continue
        same_charset = not first.charset or not column.charset or first.charset == column.charset
        if replace(first, name=column.name) != column or not same_charset:
            raise Unexplained(f"{table}: no DDL in the binlog says why its column {column.name} is another now")


def _schema(before: TableSchema, now: TableSchema, names: Names, columns: tuple[Column, ...]) -> TableSchema:
    """The definition with these columns, under the names that they have there. Raises NotLiftable without the key."""
    new_names = {life.first.name: name for life, name in names.items() if life.first is not None}
    if not set(before.key) <= new_names.keys():
        raise NotLiftable(f"{before.table}: a column of its key was dropped")
    return replace(
        now,
        columns=columns,
        stored=(),  # between two alterations, nobody knows the places of columns that are left out
        key=tuple(new_names[name] for name in before.key),
        generated=tuple(new_names[name] for name in before.generated if name in new_names),
    )
