"""The key space of a table: the least and greatest key, the estimated number of rows, and boundaries of chunks.

The server computes a boundary, in the order of its own index. A boundary has integers for integer columns. For other
columns it has SQL literals, which the server compares as it compares the values of the column.
"""

import pymysql

from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange, quote
from lakeingest.core.tables.schema import INTEGERS, Column, Kind, TableSchema
from lakeingest.mysql.connection import literal, query, query_dicts, table_name
from lakeingest.mysql.packets import surprises

_LISTED = 4096  # the most numbers of an ENUM or SET that a condition lists; with more, each chunk scans the whole index


@surprises("an answer to a question")
def key_bounds(
    connection: pymysql.Connection, schema: TableSchema, keys: KeyRange = EVERY_KEY
) -> tuple[int, int] | None:
    """The least and the greatest key in a range; None if the range has no row. The table's key must be one integer."""
    column, where = quote(schema.source_key[0]), keys.predicate(schema.source_key)
    [(least, greatest)] = query(
        connection, f"SELECT MIN({column}), MAX({column}) FROM {table_name(schema.table)} WHERE {where}"
    )
    return None if least is None else (int(least), int(greatest))


@surprises("an answer to a question")
def estimated_rows(connection: pymysql.Connection, schema: TableSchema, keys: KeyRange = EVERY_KEY) -> int:
    """The optimizer's estimate of the number of rows in a range of keys."""
    key, table = quote(schema.source_key[0]), table_name(schema.table)
    where = "" if keys == EVERY_KEY else f" WHERE {keys.predicate(schema.source_key)}"
    [row] = query_dicts(connection, f"EXPLAIN FORMAT=TRADITIONAL SELECT {key} FROM {table}{where}")
    return int(row["rows"] or 0)


@surprises("an answer to a question")
def estimated_bytes(connection: pymysql.Connection, schema: TableSchema) -> int:
    """The storage engine's estimate of the bytes of the table's rows, without the table's secondary indexes."""
    database, name = literal(schema.table.database), literal(schema.table.name)
    [(size,)] = query(
        connection,
        f"SELECT DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = {database} AND TABLE_NAME = {name}",
    )
    return int(size or 0)


@surprises("an answer to a question")
def next_boundary(
    connection: pymysql.Connection, schema: TableSchema, lower: Key | None, rows: int, upper: Key | None = None
) -> Key | None:
    """The key of the row that is `rows` rows after the key `lower` (None: after the first row).

    The result is None if fewer rows follow, or if that row has the key `upper` or a later one.
    """
    boundaries = query(connection, boundary_query(schema, lower, rows, upper))
    if not boundaries:
        return None
    return tuple(map(_part, schema.key_columns, boundaries[0]))


def boundary_query(schema: TableSchema, lower: Key | None, rows: int, upper: Key | None = None) -> str:
    """The statement that `next_boundary` sends. The server reads only the key's index for it, no row of the table."""
    literals = ", ".join(map(_literal, schema.key_columns))
    order = ", ".join(map(quote, schema.source_key))
    where = KeyRange(lower, upper).predicate(schema.source_key)
    return f"SELECT {literals} FROM {table_name(schema.table)} WHERE {where} ORDER BY {order} LIMIT 1 OFFSET {rows}"


def _part(column: Column, text: str) -> int | str:
    """The part of a boundary for one column, from the text that `_literal` selects."""
    if column.kind in INTEGERS:
        return int(text)
    return part_of_number(column, int(text)) if column.members else text


def part_of_number(column: Column, number: int) -> str:
    """The part of a boundary for the number of an ENUM's member or a SET's value.

    With at most `_LISTED` numbers, the part is `number/last number`, so that a condition can list all numbers from the
    boundary to the last.
    """
    last_number = len(column.members) if column.source_type.name == "enum" else 2 ** len(column.members) - 1
    return f"{number}/{last_number}" if last_number <= _LISTED else str(number)


def _literal(column: Column) -> str:
    """The SQL expression that returns a column's value as the text of a literal.

    With this literal in a condition, the server can use the column's index.
    """
    name = quote(column.source_name)
    if column.kind in INTEGERS:
        return name
    if column.members or column.kind is Kind.BOOLEAN or column.source_type.name == "bit":
        return f"CAST({name} AS UNSIGNED)"  # the server orders these types by their numbers
    match column.kind:
        case Kind.DECIMAL | Kind.NUMERAL:
            return f"CAST({name} AS CHAR)"
        case Kind.STRING:  # the bytes in the column's own charset, without conversion
            return f"CONCAT('_', CHARSET({name}), ' x''', HEX({name}), '''')"
        case Kind.BINARY:
            return f"CONCAT('x''', HEX({name}), '''')"
        case _:
            return f"CONCAT('''', CAST({name} AS CHAR), '''')"
