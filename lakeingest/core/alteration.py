"""Alterations: what the DDL of a table did to its columns, and which definition was in force between two of them.

A statement says which column became which. What a column is, only the server says, and only of the definition that it
has now. So a definition in between is put together: a column that no later statement defines anew is as it is now; one
that no earlier statement defined anew is as it was before all of them. Types are never read from statements.
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
    """One column is changed: its name so far, or that of a new column; its name after that; where it stands.

    `after` names the column before it, or is FIRST; None: it stays where it is, and a new one comes last.
    """

    act: Act
    name: str
    to: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Alteration:
    """All that one statement changed of a table, in its order.

    `is_barrier`: it changed values, the key or the table itself, or nobody knows what; old rows tell nothing.
    `changes` then are those of names, as far as it could be read.
    `empties`: it removed all rows (TRUNCATE). `statement` is how it begins, up to the first value in it. `text` is
    all of it, for readers of the changelog alone: values are not for logs; '' of a barrier, and from older versions.
    """

    changes: tuple[Change, ...] = ()
    is_barrier: bool = False
    empties: bool = False
    statement: str = ""
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {
            "changes": [[one.act.value, one.name, one.to, one.after] for one in self.changes],
            "barrier": self.is_barrier,
            "empties": self.empties,
            "statement": self.statement,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; KeyError, TypeError or ValueError for anything else."""
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
    """A column as long as it exists, by whatever name: the column that it was at first, if it was there."""

    number: int
    first: Column | None = None


Names = dict[_Life, str]  # in the order of the columns


def lifts(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> list[Lift]:
    """How the rows of a table come through each of its alterations, one after the other.

    `before` held before the first, and `now` holds after the last of them. NotLiftable where a definition in between
    cannot be known, or where one changes values, the key, or a type to one that does not hold every old value; or
    where one of them is a barrier. Unexplained where the statements do not lead to `now`.
    """
    table = before.table
    if any(one.is_barrier for one in alterations):
        raise NotLiftable(f"{table}: DDL changed its values, its key or the table itself")
    lives: list[Names] = [{_Life(number, column): column.name for number, column in enumerate(before.columns)}]
    defined: dict[_Life, list[int]] = {}
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
    return [
        Lift(
            old,
            new,
            tuple(before_.get(life) for life in after_),
            frozenset(name for life, name in after_.items() if step in defined.get(life, ())),
        )
        for step, (old, new, before_, after_) in enumerate(
            zip(schemas, schemas[1:], lives, lives[1:], strict=False), start=1
        )
    ]


def added(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> frozenset[str]:
    """The columns of `now` that may be new since `before`, through these alterations."""
    names = {change.to.casefold() for one in alterations for change in one.changes if change.act is Act.ADD}
    return frozenset(name for name in now.names if name not in before.names or name.casefold() in names)


def _altered(table: object, names: Names, alteration: Alteration, number: int) -> list[_Life]:
    """Change `names` as the statement did; the lives that it defined. New lives are numbered from `number` on.

    As MySQL does it: what is dropped goes, what keeps its place is renamed there; then, in the order of the statement,
    every other column is put after its neighbour, or last.
    """
    found = [
        (change, None if change.act is Act.ADD else _named(table, names, change.name)) for change in alteration.changes
    ]
    defined, placed = [], []
    for offset, (change, life) in enumerate(found):
        if change.act is Act.DROP:
            assert life is not None  # noqa: S101 - looked up above
            del names[life]
            continue
        one = life or _Life(number + offset)
        if change.act is not Act.RENAME:
            defined.append(one)
        if life is not None and change.after is None:
            names[life] = change.to
        else:
            names.pop(one, None)
            placed.append((one, change))
    for one, change in placed:
        _place(table, names, one, change)
    if len({name.casefold() for name in names.values()}) < len(names):
        raise NotLiftable(f"{table}: two columns of one name")
    return defined


def _place(table: object, names: Names, life: _Life, change: Change) -> None:
    order = list(names.items())
    at = len(order)
    if change.after == FIRST:
        at = 0
    elif change.after is not None:
        neighbour = _named(table, names, change.after)
        at = [one for one, _ in order].index(neighbour) + 1
    order.insert(at, (life, change.to))
    names.clear()
    names.update(order)


def _named(table: object, names: Names, name: str) -> _Life:
    found = [life for life, known in names.items() if known.casefold() == name.casefold()]
    if len(found) != 1:
        raise NotLiftable(f"{table}: its DDL names a column {name}, which is not known")
    return found[0]


def _column(
    table: object,
    life: _Life,
    name: str,
    step: int,
    defined: Mapping[_Life, Sequence[int]],
    last: Mapping[_Life, Column],
) -> Column:
    """A column as it was after a step."""
    steps = defined.get(life, ())
    if life in last and not any(later > step for later in steps):
        return replace(last[life], name=name)
    if life.first is not None and not any(earlier <= step for earlier in steps):
        return replace(life.first, name=name)
    raise NotLiftable(f"{table}: nobody knows any more how its column {name} was defined between two alterations")


def _assert_untouched(table: object, defined: Mapping[_Life, Sequence[int]], last: Mapping[_Life, Column]) -> None:
    """Unexplained where a column that no statement defined is another now: DDL that the binlog lacks has changed it."""
    for life, column in last.items():
        first = life.first
        if first is None or life in defined:
            continue
        same_charset = not first.charset or not column.charset or first.charset == column.charset
        if replace(first, name=column.name) != column or not same_charset:
            raise Unexplained(f"{table}: no DDL in the binlog says why its column {column.name} is another now")


def _schema(before: TableSchema, now: TableSchema, names: Names, columns: tuple[Column, ...]) -> TableSchema:
    called = {life.first.name: name for life, name in names.items() if life.first is not None}
    if not set(before.key) <= called.keys():
        raise NotLiftable(f"{before.table}: a column of its key was dropped")
    return replace(
        now,
        columns=columns,
        stored=(),  # between two alterations nobody knows where the columns are that are left out
        key=tuple(called[name] for name in before.key),
        generated=tuple(called[name] for name in before.generated if name in called),
    )
