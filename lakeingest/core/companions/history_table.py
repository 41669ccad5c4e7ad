"""The table with the history of a table: its columns, and how they follow DDL of the table.

Its columns are those that the table has or had, then those that say where a version begins and ends. No column is ever
removed. A new column of the table, or one with a new type, may have the name of a column of the history that cannot
hold its values or that belongs to a dropped column. Then the column of the history gets a number behind its name, such
as `price__1`, and keeps its values. If a column of the table has a name that the history needs for itself, that column
gets a number, such as `is_current__1`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from lakeingest.core.binlog.history import Committed, History
from lakeingest.core.companions.companion import companion_of
from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.widening import holds
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.kinds import STORED_AS
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
FROM_POSITION, TO_POSITION = "valid_from_position", "valid_to_position"
FROM_GTID, TO_GTID = "valid_from_gtid", "valid_to_gtid"
BEGUN_BY, ENDED_BY = "begun_by", "ended_by"

HISTORY = "history"  # the suffix of histories (`core.companions.companion`)
KEY = FROM_POSITION  # no two versions begin at the same position

_NAMES = {Kind.INT32: "int", Kind.INT64: "bigint"}  # types that `core.ddl.widening` knows, because one holds the other


def _validity(name: str, kind: Kind, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, kind, _type(kind), nullable=nullable, comment=comment)


def _type(kind: Kind) -> SourceType:
    """The type of a column of a history, which is no type of MySQL: named after the kind, or as `_NAMES` says."""
    name = _NAMES.get(kind, kind.value)
    return SourceType(name, name)


VALIDITY = (
    _validity(VALID_FROM, Kind.TIMESTAMP, "since when readers of the source could see the version", nullable=False),
    _validity(VALID_TO, Kind.TIMESTAMP, "from when on they could not see it any more; NULL: it is current"),
    _validity(IS_CURRENT, Kind.BOOLEAN, "whether the version has no end", nullable=False),
    _validity(FROM_POSITION, Kind.STRING, "the first position of the changelog with this version", nullable=False),
    _validity(TO_POSITION, Kind.STRING, "the first position after that without it; NULL: it is current"),
    _validity(FROM_GTID, Kind.STRING, "the transaction that began the version; NULL: not known"),
    _validity(TO_GTID, Kind.STRING, "the transaction that ended it; NULL: none has, or it is not known"),
    _validity(BEGUN_BY, Kind.STRING, "insert, update; copy, correction: it may have been so earlier", nullable=False),
    _validity(ENDED_BY, Kind.STRING, "update, delete, truncate, correction, gap; NULL: it is current"),
)
NAMES = tuple(column.name for column in VALIDITY)


def history_id(table: TableId) -> TableId:
    """The name of the table with the history of `table`."""
    return companion_of(table, HISTORY)


def in_history(schema: TableSchema) -> TableSchema:
    """The definition of a table with the names that its columns have in its history.

    If the history needs a column's name for itself, the column gets a number behind its name: the first one that gives
    a free name.
    """
    names, taken = dict[str, str](), {name.casefold() for name in (*schema.names, *NAMES)}
    for name in schema.names:
        names[name] = _free_name(name, taken) if name.casefold() in NAMES else name
        taken.add(names[name].casefold())
    if all(name == kept for name, kept in names.items()):
        return schema
    columns = tuple(replace(column, name=names[column.name]) for column in schema.columns)
    return replace(schema, columns=columns, key=tuple(names[name] for name in schema.key))


def new_history(schema: TableSchema) -> TableSchema:
    """The definition of a new history of a table. `schema`: with the names that `in_history` gives.

    Raises ValueError if a column of `schema` has a name that the history needs for itself.
    """
    return _history(history_id(schema.table), schema, map(_stored, schema.columns))


def described(history: TableSchema, schema: TableSchema) -> TableSchema:
    """The same history with the table's present comments, for readers: stored definitions have no comments."""
    comments = {column.name: column.comment for column in (*schema.columns, *VALIDITY)}
    columns = (replace(column, comment=comments.get(column.name, column.comment)) for column in history.columns)
    return replace(history, columns=tuple(columns), comment=_comment(schema))


def columns_of(history: TableSchema) -> tuple[Column, ...]:
    """The columns of a history that the table has or had."""
    return tuple(column for column in history.columns if column.name not in NAMES)


def followed(
    history: TableSchema, after: TableSchema, origins: Mapping[str, str | None], fills: Mapping[str, object]
) -> Lift | None:
    """The step by which the history follows its table to the definition `after`; None if nothing is to be done.

    `origins`: for each column of `after`, the column of the history whose values it goes on with; None: it is new.
    `fills`: by new column, its value in all earlier versions. A new column that `fills` does not name is NULL in them,
    because the table did not have the column.

    A column goes on with the values of a column of the history only if both have the same type in the lake, or if its
    own type is wider. Otherwise it is new. `after` has the names that `in_history` gives. ValueError is raised if one
    of these names is a name that the history needs for itself.
    """
    old_columns = {column.name: column for column in columns_of(history)}
    columns: list[Column] = []
    known: dict[str, str | None] = {}  # for each column of the next history, its name in this one
    for column in after.columns:
        stored = _stored(column)
        old = old_columns.get(origins.get(column.name) or "")  # '' finds no column
        goes_on = old is not None and holds(old, stored)
        # the default of a new column is its value in all earlier versions
        columns.append(stored if goes_on else replace(stored, default=Value(fills.get(column.name))))
        known[column.name] = old.name if goes_on and old is not None else None
    taken = {name.casefold() for name in (*after.names, *old_columns, *NAMES)}
    now = {name.casefold() for name in after.names}
    for name, column in old_columns.items():
        if name in known.values():
            continue
        kept = _free_name(name, taken) if name.casefold() in now else name
        columns.append(replace(column, name=kept, default=Value(None)))
        known[kept] = name
        taken.add(kept.casefold())
    following = _history(history.table, after, columns)
    if following == history:
        return None
    all_origins = tuple(known.get(name, name) for name in following.names)  # the columns of VALIDITY keep their names
    # a guess: the copy has followed the step, so it only matters that the lake can store the values
    return Lift(history, following, all_origins, is_guess=True)


def _history(id_: TableId, schema: TableSchema, columns: Iterable[Column]) -> TableSchema:
    """The definition of the history `id_` of the table `schema`: these columns, then those of VALIDITY."""
    return TableSchema(id_, (*columns, *VALIDITY), (KEY,), comment=_comment(schema))


def _comment(schema: TableSchema) -> str:
    return f"Every version of the rows of {schema.table}" + (f": {schema.comment}" if schema.comment else "")


def _stored(column: Column) -> Column:
    """The column of the history for a column of the table: with its type in the lake, and always nullable."""
    kind = STORED_AS.get(column.kind, column.kind)
    precision, scale = (column.precision, column.scale) if kind is Kind.DECIMAL else (0, 0)
    return Column(column.name, kind, _type(kind), precision=precision, scale=scale, comment=column.comment)


def _free_name(name: str, taken: set[str]) -> str:
    """The name with a number behind it: the first number that gives a name which is not taken."""
    names = (f"{name}__{number}" for number in count(1))
    return next(free for free in names if free.casefold() not in taken)


def at(progress: Progress, latest: int) -> Progress:
    """The progress with the `latest` time of a history, in µs since 1970: stored as a commit time in the position."""
    position = progress.position
    assert position is not None  # noqa: S101 - held by `core.copies.counted.begun`
    last = Committed(position.at.file, position.at.pos, None, latest)
    return replace(progress, position=replace(position, history=History(last=last)))


def latest_of(progress: Progress) -> int:
    """The latest time of a history, in µs since 1970, as `at` keeps it; 0 in a new history."""
    position = progress.position
    last = None if position is None or position.history is None else position.history.last
    return 0 if last is None else last.committed_at
