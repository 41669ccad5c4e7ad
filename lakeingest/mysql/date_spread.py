"""How the dates of a table are spread over time, from a few short reads, whatever the size of the table.

No statement scans a table or an index. If an index begins with a date column, the server takes the column's first and
last value from the index, and estimates the rows between them. Otherwise a few rows are read, at places that are spread
over an integer key.
"""

from collections.abc import Iterator
from datetime import date
from itertools import pairwise

import pymysql

from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.proposed_partitions import LEAST_ROWS, Dates, ProposedPartitions, dates_of, propose, starts
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import LakeIngestError, ProtocolBroken, SourceAway
from lakeingest.mysql.connection import literal, named_errors, query, query_dicts, source_of, table_name
from lakeingest.mysql.key_space import estimated_rows, key_bounds
from lakeingest.mysql.packets import surprises

SPOTS = 100  # the number of places in a table at which one row each is read
_DATED = {Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP}


def proposed_partitions(connection: pymysql.Connection, schema: TableSchema) -> ProposedPartitions | None:
    """The partitions that are proposed for a table.

    None if there is no proposal, or if the server refuses the questions, for example because the user lacks SELECT.
    Raises SourceAway and ProtocolBroken, because these concern all tables.
    """
    try:
        with named_errors(source_of(connection)):
            return propose(*date_spread(connection, schema))
    except (SourceAway, ProtocolBroken):  # they concern all tables
        raise
    except LakeIngestError:
        return None


@surprises("an answer to a question")
def date_spread(connection: pymysql.Connection, schema: TableSchema) -> tuple[int, list[Dates]]:
    """The estimated number of rows of a table, and the spread of each date column whose spread can be known.

    The list is empty if the table is too small for partitions. Columns that an UPDATE of other columns changes (ON
    UPDATE CURRENT_TIMESTAMP) are left out: their rows would move between partitions.
    """
    rows = estimated_rows(connection, schema)
    columns = [column for column in schema.columns if column.kind in _DATED]
    if rows < LEAST_ROWS or not columns:
        return rows, []
    updated = _updated(connection, schema)
    columns = [column for column in columns if column.source_name not in updated]
    leading = [column for column in columns if _leads(connection, schema, column)]
    indexed = {column.name: _from_index(connection, schema, column) for column in leading}
    others = [column for column in columns if column.name not in indexed]
    spreads = indexed | {dates.column: dates for dates in _from_rows(connection, schema, others)}
    return rows, [dates for column in columns if (dates := spreads.get(column.name)) is not None]


def _updated(connection: pymysql.Connection, schema: TableSchema) -> set[str]:
    """The names at the source of the columns that each UPDATE of a row sets to the present time."""
    database, name = literal(schema.table.database), literal(schema.table.name)
    rows = query(
        connection,
        f"SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {database} AND TABLE_NAME = {name}"
        " AND EXTRA LIKE '%on update%'",
    )
    return {str(column) for (column,) in rows}


def _ends(schema: TableSchema, column: Column) -> str:
    """The statement that selects the first and the last value of a column."""
    name = quote(column.source_name)
    return f"SELECT MIN({name}), MAX({name}) FROM {table_name(schema.table)}"


def _leads(connection: pymysql.Connection, schema: TableSchema, column: Column) -> bool:
    """Whether the server takes the column's first and last value from an index, without reading any other value."""
    [row] = query_dicts(connection, f"EXPLAIN FORMAT=TRADITIONAL {_ends(schema, column)}")
    return "optimized away" in str(row["extra"])


def _from_index(connection: pymysql.Connection, schema: TableSchema, column: Column) -> Dates | None:
    """The spread by the server's estimates for ranges of an index; None if the first or last value is no date."""
    [ends] = query(connection, _ends(schema, column))
    least, greatest = map(_day, ends)
    if least is None or greatest is None:
        return None
    name, table = quote(column.source_name), table_name(schema.table)

    def estimate(condition: str) -> int:
        """The optimizer's estimate of the number of rows that meet the condition."""
        [row] = query_dicts(connection, f"EXPLAIN FORMAT=TRADITIONAL SELECT {name} FROM {table} WHERE {condition}")
        return int(row["rows"] or 0)

    begins = starts(least, greatest)
    parts = [estimate(f"{name} >= '{low}' AND {name} < '{high}'") for low, high in pairwise(begins)]
    parts.append(estimate(f"{name} >= '{begins[-1]}'"))
    undated = estimate(f"{name} IS NULL") if column.nullable else 0
    return Dates(column.name, least, greatest, tuple(parts), undated, "by its index")


def _from_rows(connection: pymysql.Connection, schema: TableSchema, columns: list[Column]) -> Iterator[Dates]:
    """Yield the spread of these columns in a few rows. Yields nothing if the key is no integer, or has no index."""
    # a declared key may have no index, without which the server would scan the table
    bounds = key_bounds(connection, schema) if columns and schema.countable and not schema.declared else None
    if bounds is None:
        return
    least, greatest = bounds
    key, table = quote(schema.source_key[0]), table_name(schema.table)
    names = ", ".join(quote(column.source_name) for column in columns)
    spots = (least + (greatest - least) * number // (SPOTS - 1) for number in range(SPOTS))
    reads = (f"(SELECT {names} FROM {table} WHERE {key} >= {spot} ORDER BY {key} LIMIT 1)" for spot in spots)
    rows = query(connection, " UNION ALL ".join(reads))
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        if dates := dates_of(column.name, map(_day, values), f"in {len(rows)} rows that were read"):
            yield dates


def _day(value: object) -> date | None:
    """The day in a value of a date column; None for NULL, and for a zero or partial date."""
    try:  # the server's text of a value begins with the day; `None` as a text is no date either
        return date.fromisoformat(str(value)[:10])
    except ValueError:
        return None
