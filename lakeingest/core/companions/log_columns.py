"""The columns of a changelog as a table: those that say what a row is, then those of the table whose changes it has.

A column is only ever added. A dropped column stays, and a renamed one is a new column. If a new type does not hold the
old values, the column gets another name, with a number. A new column with the name of a dropped one also gets a
number. So older rows keep their values, and no column of the log has values of two columns of the table. A row of DDL
tells which column of the table is in which column of the log; the log itself knows this only for the definition of its
last row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.widening import holds
from lakeingest.core.tables.change import COMMITTED_AT, GTID, OP, ORDINAL, POSITION
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.kinds import STORED_AS
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema

NUMBER = "_lakeingest_number"
ORIGIN = "_lakeingest_origin"
SCHEMA = "_lakeingest_schema"
DDL_JSON = "_lakeingest_ddl"
LOGGED_AT = "_lakeingest_logged_at"
COPY, BINLOG, REREAD = "copy", "binlog", "reread"  # the values of ORIGIN

_LARGE = 6  # the digits of a second in a time
_TYPES: Mapping[Kind, SourceType] = {
    Kind.INT32: SourceType("int", "int"),
    Kind.INT64: SourceType("bigint", "bigint"),
    Kind.UINT64: SourceType("bigint unsigned", "bigint", unsigned=True),
    Kind.DECIMAL: SourceType("decimal", "decimal"),
    Kind.FLOAT: SourceType("float", "float"),
    Kind.DOUBLE: SourceType("double", "double"),
    Kind.DATE: SourceType("date", "date"),
    Kind.DATETIME: SourceType("datetime(6)", "datetime", size=_LARGE),
    Kind.TIMESTAMP: SourceType("timestamp(6)", "timestamp", size=_LARGE),
    Kind.STRING: SourceType("text", "text"),
    Kind.BOOLEAN: SourceType("bit(1)", "bit", size=1),
    Kind.BINARY: SourceType("blob", "blob"),
    Kind.VECTOR: SourceType("vector", "vector"),
}


def _column(name: str, kind: Kind, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, kind, _TYPES[kind], nullable=nullable, comment=comment)


_OWN = (
    _column(
        NUMBER, Kind.INT64, "the order of the rows: each row has a greater number than those before", nullable=False
    ),
    _column(OP, Kind.STRING, "+I, -U, +U, -D, DDL, TRUNCATE or RESET", nullable=False),
    _column(ORIGIN, Kind.STRING, "binlog; copy: read with the whole table; reread: read again; NULL: RESET"),
    _column(POSITION, Kind.STRING, "the place of the transaction in the binlog, as a text that sorts", nullable=False),
    _column(COMMITTED_AT, Kind.TIMESTAMP, "when the transaction was committed; NULL: the row was read"),
    _column(GTID, Kind.STRING, "the transaction's GTID, if the source has GTIDs"),
    _column(ORDINAL, Kind.INT64, "the number of the change row in its transaction"),
    _column(SCHEMA, Kind.STRING, "tells the definitions of the table apart", nullable=False),
    _column(DDL_JSON, Kind.STRING, "of DDL, TRUNCATE and RESET: the statement and the columns, as JSON"),
    _column(LOGGED_AT, Kind.TIMESTAMP, "when the row was written", nullable=False),
)


def new_log(log: TableId, definition: TableSchema) -> TableSchema:
    """The definition of a new log of a table with this definition."""
    empty = TableSchema(log, _OWN, (NUMBER,), comment=f"Changes of {definition.table}, by lakeingest")
    return followed(empty, definition, columns_of(empty, definition, {}))


def followed(log: TableSchema, definition: TableSchema, columns: Mapping[str, str]) -> TableSchema:
    """The definition of the log once it can hold rows of this definition; `log` itself if it can already.

    `columns`: the result of `columns_of`.
    """
    by_name = {column.name: column for column in log.columns}
    for wanted in _stored(definition):
        name = columns[wanted.name]
        present = by_name.get(name)
        if present is None or not _holds(wanted, present):
            by_name[name] = replace(wanted, name=name, default=Value(None))
    after = tuple(by_name.values())
    return log if after == log.columns else replace(log, columns=after)


def lift_of(before: TableSchema, after: TableSchema) -> Lift:
    """The step between two definitions of a log. Older rows have NULL in new columns."""
    old = {column.name: column for column in before.columns}
    changed = frozenset(column.name for column in after.columns if old.get(column.name) != column)
    origins = tuple(name if name in old else None for name in after.names)
    return Lift(before, after, origins, defined=changed)


def columns_of(
    log: TableSchema,
    definition: TableSchema,
    before: Mapping[str, str],
    origins: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """For each column of the definition, by its name, the name of its column in the log.

    The log may lack a column of the result: `followed` adds it.

    `before`: the result of this function for the previous definition. `origins`: by column, its name before the DDL, as
    in `Followed.origins`; None: a column of the same name is the same column. A column keeps its column in the log if
    it is the same column, still has its name, and its values can be stored there. Otherwise it gets a new column, so
    that no column of the log has values of two columns. Names are compared without case, as engines do.
    """
    present = {column.name: column for column in log.columns}
    old_in_log = {name.casefold(): name_in_log for name, name_in_log in before.items()}
    found: dict[str, str] = {}
    for wanted in _stored(definition):
        was = wanted.name if origins is None else origins[wanted.name]
        in_log = old_in_log.get(wanted.name.casefold())
        is_same = was is not None and was.casefold() == wanted.name.casefold()
        if in_log is not None and is_same and _can_store(present[in_log], wanted):
            found[wanted.name] = in_log
    taken = {name.casefold() for name in (*present, *found.values())}
    own = {name.casefold() for name in definition.names}
    for name in definition.names:
        if name not in found:
            # names of the definition's other columns count as taken: each column gets its own name if it can
            others = taken | (own - {name.casefold()})
            found[name] = next(one for one in _candidates(name) if one.casefold() not in others)
            taken.add(found[name].casefold())
    return {name: found[name] for name in definition.names}


def _can_store(column: Column, wanted: Column) -> bool:
    """Whether the column of the log can store the values of `wanted`, as it is or with the wider type of `wanted`."""
    return _holds(wanted, column) or _holds(column, wanted)


def _candidates(name: str) -> Iterable[str]:
    """The names that a column may have in the log: its own, then those with a number."""
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _stored(definition: TableSchema) -> tuple[Column, ...]:
    """The columns of a definition as a log stores them: nullable, and with one type for each way to store values."""
    return tuple(map(_as_stored, definition.columns))


def _as_stored(column: Column) -> Column:
    kind = STORED_AS.get(column.kind, column.kind)
    stored = Column(column.name, kind, _TYPES[kind])
    return replace(stored, precision=column.precision, scale=column.scale) if kind is Kind.DECIMAL else stored


def _holds(before: Column, after: Column) -> bool:
    """Whether a column like `after` stores each value of one like `before`, whatever their names are."""
    renamed = replace(before, name=after.name)
    return renamed == after or holds(renamed, after)
