"""Alterations: what the DDL of a table did to its columns, and which definition was in force between two statements.

A statement says which columns were added, dropped, renamed and moved. Only the server says how a column is defined, and
the server tells only the current definition. So the definition between two statements is put together, column by
column. If no later statement defined the column, its current definition was in force already. If no earlier statement
defined the column, its definition from before all statements was still in force. Types are never read from statements.

The user may leave columns out by name. Statements about such columns are followed by name alone. A column that has
another name in the copy is followed by its name at the source, which the statements have.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.ddl.lift import Lift, NotLiftable, Unexplained
from lakeingest.core.tables.column_choice import ColumnChoice
from lakeingest.core.tables.schema import Column, TableId, TableSchema

FIRST = ""  # the place before all columns


class Act(enum.StrEnum):
    """A kind of change of a column."""

    ADD = "add"
    DROP = "drop"
    DEFINE = "define"  # the column gets another type, or another definition in any way; maybe also another name
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one column.

    `name`: the column's name before the statement; for a new column, its name. `to`: the name after the statement.
    `after`: the neighbour behind which the column is put, or FIRST; if None, an old column keeps its place, and a new
    column is put last.
    """

    act: Act
    name: str
    to: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Alteration:
    """All changes that one statement made to a table, in the order of the statement.

    `is_barrier`: the statement changed values, the key or the table itself, or something unknown. So the new rows
    cannot be made from the old rows. For a barrier, `changes` has only the changes of names that could be read.
    `empties`: the statement removed all rows (TRUNCATE).
    `statement`: the beginning of the statement, up to its first value, because logs must have no values.
    `text`: the whole statement, only for readers of the changelog; '' for a barrier.
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
        barrier, empties = (doc[name] is True for name in ("barrier", "empties"))
        statement, text = (str(doc[name]) for name in ("statement", "text"))
        return cls(tuple(changes), barrier, empties, statement, text)


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement in the binlog that altered tables, with the positions before and after it.

    `alone`: the tables on which the statement certainly had an exclusive lock: each transaction that changed such a
    table had ended before the statement.
    """

    start: FilePosition
    stop: FilePosition
    alterations: Mapping[TableId, Alteration]
    alone: frozenset[TableId] = frozenset()


@dataclass(frozen=True, slots=True)
class _Identity:
    """A column through all statements, whatever its name is.

    `first`: the column's definition before all statements; None if the column was left out before them, or if a
    statement added it.
    `computed`: it was left out as a generated column, not by its name.
    `placed`: its place among the columns is known.
    """

    number: int
    first: Column | None = None
    computed: bool = False
    placed: bool = True


Names = dict[_Identity, str]  # the names of a table's columns, in the order of the columns


def lifts(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> list[Lift]:
    """The lifts that bring the rows of a table over each of its alterations, in their order.

    `before` held before the first alteration, and `now` holds after the last one.

    Raises:
        NotLiftable: an alteration is a barrier, drops a column of the key, or changes how rows without column names are
            read; or the definition between two alterations cannot be known; or a lift is refused (`Lift`).
        Unexplained: the statements do not lead to `now`.

    """
    table, choice = before.table, now.choices.columns
    if any(alteration.is_barrier for alteration in alterations):
        raise NotLiftable(f"{table}: DDL changed its values, its key or the table itself")
    # Step 1: the names of the columns after each statement. Statements are numbered from 1, so [0] is before all
    names_after = [_names_of(before)]
    defined: dict[_Identity, list[int]] = {}  # by column, the numbers of the statements that defined it
    next_number = len(names_after[0])  # for the identity of a new column
    for statement, alteration in enumerate(alterations, start=1):
        names = dict(names_after[-1])
        for identity in _apply_statement(table, names, alteration, next_number):
            defined.setdefault(identity, []).append(statement)
        names_after.append(names)
        next_number += len(alteration.changes)  # each change adds one column at most
    copied_after = [_copied(names, choice) for names in names_after]
    if tuple(copied_after[-1].values()) != now.source_names:
        raise Unexplained(
            f"{table}: by its DDL its columns would be {', '.join(copied_after[-1].values())}, and they are"
            f" {', '.join(now.source_names)}"
        )
    # Step 2: the table's definition after each statement; as in `names_after`, [0] is before all
    current = dict(zip(copied_after[-1], now.columns, strict=True))  # by column, its definition in `now`
    _assert_keep_names(table, current)
    schemas = [before]
    for statement, names in enumerate(names_after[1:], start=1):
        copied = copied_after[statement]
        columns = tuple(
            _definition_after(table, identity, name, statement, defined, current).named(name, choice)
            for identity, name in copied.items()
        )
        schemas.append(_schema(before, now, names, copied, columns))
    if schemas[-1].fingerprint != now.fingerprint:
        raise Unexplained(f"{table}: its key, or how its rows are mapped, is no longer what it was")
    _assert_explained(table, defined, current)
    schemas[-1] = now  # the same definition, but with the layout (`TableSchema.layout`)
    # a copy names its definition by the fingerprint, so definitions with one fingerprint must read a row in one way
    for old, new in pairwise(schemas):
        if old.fingerprint == new.fingerprint and not old.reads_as(new):
            raise NotLiftable(f"{table}: the charset of a column, or the place of one that is left out, is another now")
    # Step 3: the lift over statement `number + 1`. Items `number` and `number + 1` of each list are those around it
    return [
        _lift(
            old,
            new,
            names_after[number : number + 2],
            copied_after[number : number + 2],
            _defined_by(number + 1, defined),
        )
        for number, (old, new) in enumerate(pairwise(schemas))
    ]


def added(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> frozenset[str]:
    """The columns of `now` that may be new: `before` copies no column of that name, or one of the alterations adds it.

    Names are those at the source; the result has those in the copy.
    """
    changes = [change for alteration in alterations for change in alteration.changes]
    names = {change.to.casefold() for change in changes if change.act is Act.ADD}
    return frozenset(
        column.name
        for column in now.columns
        if column.source_name not in before.source_names or column.source_name.casefold() in names
    )


def _assert_keep_names(table: object, current: Mapping[_Identity, Column]) -> None:
    """Raise NotLiftable if DDL renamed a column that had a name of the user's choice in the copy, and has none now."""
    for identity, column in current.items():
        first = identity.first
        if first is None or not first.renamed_from:
            continue
        if not column.renamed_from and column.name != first.source_name:
            raise NotLiftable(f"{table}: {first.source_name} is {column.name} now, and {first.name} in the copy")


def _names_of(schema: TableSchema) -> Names:
    """The names of the columns of a definition, in MySQL's order. Columns that are left out are among them.

    If nobody knows the places of the columns that are left out, they come last.
    """
    copied = {column.source_name: column for column in schema.columns}
    # `stored` may also have columns that only the binlog shows (`TableSchema.hides`)
    known = [name for name in schema.stored if name in copied or name in schema.skipped]
    computed = {*schema.skipped} - {*schema.left_out}
    return {
        _Identity(number, copied.get(name), computed=name in computed, placed=bool(known) or name in copied): name
        for number, name in enumerate(known or (*schema.source_names, *schema.skipped))
    }


def _copied(names: Names, choice: ColumnChoice) -> Names:
    """The copied columns among these columns."""
    return {column: name for column, name in names.items() if not column.computed and not choice.leaves_out(name)}


def _defined_by(statement: int, defined: Mapping[_Identity, Sequence[int]]) -> set[_Identity]:
    """The columns that the statement of this number defines."""
    return {column for column, definers in defined.items() if statement in definers}


def _lift(
    old: TableSchema, new: TableSchema, names: Sequence[Names], copied: Sequence[Names], defined: Collection[_Identity]
) -> Lift:
    """The lift over one statement. `names` and `copied`: the columns before and after the statement.

    Raises NotLiftable if a column was left out before the statement, and is copied after it.
    """
    (old_names, new_names), (old_copied, new_copied) = names, copied
    if unread := [new_copied[column] for column in new_copied if column in old_names and column not in old_copied]:
        raise NotLiftable(
            f"{new.table}: {', '.join(unread)} was left out, so the values of its older rows are not known"
        )
    # by column, its name in the copy
    old_name = dict(zip(old_copied, old.names, strict=True))
    origins = tuple(old_name.get(column) for column in new_copied)
    redefined = frozenset(name for column, name in zip(new_copied, new.names, strict=True) if column in defined)
    # columns that are left out on one side of the statement (`here`), and that are missing on the other side (`there`),
    # have another name there, or were defined by the statement
    unseen = frozenset(
        name
        for here, copied_here, there in ((old_names, old_copied, new_names), (new_names, new_copied, old_names))
        for column, name in here.items()
        if column not in copied_here and (there.get(column) != name or column in defined)
    )
    return Lift(old, new, origins, redefined, unseen=unseen)


def _apply_statement(table: object, names: Names, alteration: Alteration, number: int) -> list[_Identity]:
    """Change `names` as the statement does, and return the columns that the statement defines, new columns included.

    New columns are numbered from `number` on. The order is MySQL's: first, dropped columns are removed, and columns
    that keep their place are renamed. Then, in the order of the statement, each new or moved column is put into its
    place. Raises NotLiftable if a column is not known, or if two columns get one name.
    """
    # all columns are looked up by the names that they have before the statement
    old_columns = [
        (change, None if change.act is Act.ADD else _find_by_name(table, names, change.name))
        for change in alteration.changes
    ]
    defined = []
    to_put = []  # the new and the moved columns
    for offset, (change, old) in enumerate(old_columns):
        if change.act is Act.DROP:
            assert old is not None  # noqa: S101 - looked up above
            del names[old]
            continue
        identity = old or _Identity(number + offset)
        if change.act is not Act.RENAME:
            defined.append(identity)
        keeps_place = old is not None and change.after is None
        if keeps_place:
            names[identity] = change.to
        else:
            names.pop(identity, None)
            to_put.append((identity, change))
    for identity, change in to_put:
        _put_column(table, names, identity, change)
    if len({name.casefold() for name in names.values()}) < len(names):
        raise NotLiftable(f"{table}: two columns of one name")
    return defined


def _put_column(table: object, names: Names, column: _Identity, change: Change) -> None:
    """Put a column into `names` where the change says: first, behind its neighbour, or last."""
    order = list(names.items())
    index = len(order)  # last
    if change.after == FIRST:
        index = 0
    elif change.after is not None:
        neighbour = _find_by_name(table, names, change.after, by_place=True)
        index = list(names).index(neighbour) + 1
    order.insert(index, (column, change.to))
    names.clear()
    names.update(order)


def _find_by_name(table: object, names: Names, name: str, *, by_place: bool = False) -> _Identity:
    """The only column of this name, in any case of letters.

    Raises NotLiftable if there is no such column, or more than one. `by_place`: only the column's place is needed, and
    NotLiftable is raised if its place is not known. Without `by_place`, its definition is needed, and NotLiftable is
    raised if the column is left out as a generated column, because nobody knows its definition.
    """
    matches = [column for column, column_name in names.items() if column_name.casefold() == name.casefold()]
    if len(matches) == 1:
        is_known = matches[0].placed if by_place else not matches[0].computed
        if is_known:
            return matches[0]
    raise NotLiftable(f"{table}: its DDL names a column {name}, which is not known")


def _definition_after(
    table: object,
    column: _Identity,
    name: str,
    statement: int,
    defined: Mapping[_Identity, Sequence[int]],
    current: Mapping[_Identity, Column],
) -> Column:
    """The definition of a column after the statement of this number. The names in it may be from another time.

    `name`: the column's name after the statement, for the error.
    `defined`: by column, the numbers of the statements that defined it. `current`: by column, its current definition.
    The result is the current definition if no later statement defined or dropped the column. It is `column.first` if
    the table had the column before all statements, and only later statements defined it. Else NotLiftable is raised.
    """
    definers = defined.get(column, ())
    is_defined_later = any(definer > statement for definer in definers)
    if column in current and not is_defined_later:
        return current[column]
    is_defined_by_then = any(definer <= statement for definer in definers)
    if column.first is not None and not is_defined_by_then:
        return column.first
    raise NotLiftable(f"{table}: nobody knows any more how its column {name} was defined between two alterations")


def _assert_explained(
    table: object, defined: Mapping[_Identity, Sequence[int]], current: Mapping[_Identity, Column]
) -> None:
    """Raise Unexplained if a column that no statement defined has another definition now, apart from its name.

    The binlog does not have the DDL that changed such a column. A charset that is not known counts as the same.
    """
    for identity, column in current.items():
        first = identity.first
        if first is None or identity in defined:
            continue  # a statement has added or defined the column
        knows_charsets = bool(first.charset and column.charset)
        has_other_charset = knows_charsets and first.charset != column.charset
        if replace(first, name=column.name, renamed_from=column.renamed_from) != column or has_other_charset:
            raise Unexplained(f"{table}: no DDL in the binlog says why its column {column.name} is another now")


def _schema(
    before: TableSchema, now: TableSchema, names: Names, copied: Names, columns: tuple[Column, ...]
) -> TableSchema:
    """The table's definition between two alterations: with the key of `before`, and `columns` in the order of `copied`.

    `names`: the names of all columns between the two; `copied`: those of copied columns. Raises NotLiftable if a column
    of the key was dropped, or is left out, or if two columns of the copy get one name.
    """
    if len({column.name.casefold() for column in columns}) < len(columns):
        raise NotLiftable(f"{before.table}: two columns of its copy get one name")
    # by the name in `before`, the name between the two alterations
    new_name = {
        identity.first.name: column.name
        for identity, column in zip(copied, columns, strict=True)
        if identity.first is not None
    }
    if not set(before.key) <= new_name.keys():
        raise NotLiftable(f"{before.table}: a column of its key was dropped")
    # `names` lacks columns that only the binlog shows (`hides`), so it gives places only if there are none
    has_places = all(identity.placed for identity in names) and not before.hides and not now.hides
    return replace(
        now,
        columns=columns,
        skipped=tuple(name for identity, name in names.items() if identity not in copied),
        stored=tuple(names.values()) if has_places else (),  # (): nobody knows the places of all columns
        key=tuple(new_name[name] for name in before.key),
        generated=tuple(new_name[name] for name in before.generated if name in new_name),
    )
