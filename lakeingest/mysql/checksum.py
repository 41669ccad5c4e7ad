"""The checksums of `core.checksum`, computed by MySQL in SQL over the canonical text of its own values."""

import pymysql

from lakeingest.config import Source
from lakeingest.core.checksum import Checksum
from lakeingest.core.keys import Key, KeyRange, quote
from lakeingest.core.schema import SRID_BYTES, Column, Kind, TableSchema
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import connect, query, table_name

_TIME = "'%Y-%m-%d %H:%i:%s.%f'"


def range_checksum(source: Source, schema: TableSchema, keys: KeyRange) -> Checksum:
    """The checksum of the rows whose keys are in the range, as one statement sees them."""
    with connect(source) as connection:
        [(rows, hashed, left, right)] = query(
            connection,
            f"SELECT COUNT(*), COUNT(d), BIT_XOR({_half('d', 1)}), BIT_XOR({_half('d', 17)})"
            f" FROM (SELECT {_digest(schema)} AS d FROM {_from(schema, keys)}) AS digests",
        )
        _all_hashed(connection, schema, int(rows), int(hashed))
    return Checksum(int(rows), int(left), int(right))


def row_checksums(source: Source, schema: TableSchema, keys: KeyRange, limit: int) -> dict[Key, Checksum]:
    """The checksum of each row of the range, for at most `limit` rows in key order."""
    key = ", ".join(quote(name) for name in schema.key)
    with connect(source) as connection:
        rows = query(
            connection,
            f"SELECT {key}, {_half(_digest(schema), 1)}, {_half(_digest(schema), 17)} FROM {_from(schema, keys)}"
            f" ORDER BY {key} LIMIT {limit}",
        )
    return {tuple(int(part) for part in row[:-2]): Checksum(1, int(row[-2]), int(row[-1])) for row in rows}


def _from(schema: TableSchema, keys: KeyRange) -> str:
    table = table_name(schema.table)
    return f"{table} WHERE {keys.predicate(schema.key)}"


def _digest(schema: TableSchema) -> str:
    texts = ((quote(column.name), _text(column)) for column in schema.columns)
    # not IFNULL of the CONCAT: a cell that is longer than a packet must not look like NULL
    parts = (f"IF({name} IS NULL, 'N', CONCAT(LENGTH({text}), ':', {text}))" for name, text in texts)
    return f"SHA2(CONCAT({', '.join(parts)}), 256)"


def _half(digest: str, first: int) -> str:
    return f"CAST(CONV(SUBSTR({digest}, {first}, 16), 16, 10) AS UNSIGNED)"


def _text(column: Column) -> str:
    name = quote(column.name)
    match column.kind:
        case Kind.DATETIME | Kind.TIMESTAMP:
            return f"DATE_FORMAT({name}, {_TIME})"
        case Kind.STRING:
            return f"CONVERT({name} USING utf8mb4)"
        case Kind.BINARY:  # as bytes: a BIT is a number otherwise
            raw = f"CAST({name} AS BINARY)"
            return f"HEX(SUBSTR({raw}, {SRID_BYTES + 1}))" if column.is_geometry else f"HEX({raw})"
        case Kind.VECTOR:
            return f"HEX({name})"
        case Kind.FLOAT:
            return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
        case Kind.INT32 | Kind.INT64 | Kind.UINT64 | Kind.DECIMAL | Kind.BOOLEAN:  # a sum has no zeros of ZEROFILL
            return f"CAST({name} + 0 AS CHAR)"
        case _:
            return f"CAST({name} AS CHAR)"


def _all_hashed(connection: pymysql.Connection, schema: TableSchema, rows: int, hashed: int) -> None:
    if hashed < rows:  # CONCAT gives NULL for a row that is longer than a packet
        [(packet,)] = query(connection, "SELECT @@max_allowed_packet")
        raise OperatorNeeded(
            f"{schema.table}: {rows - hashed} rows are longer than max_allowed_packet ({packet}),"
            " and cannot be hashed by the source; raise it"
        )
