"""The checksums of `core.proofs.checksum`, computed by the server in SQL from the canonical texts of its values."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.core.proofs.checksum import DIGITS, NEWLINE, Checksum, ends_with_newline
from lakeingest.core.tables.keys import Key, KeyRange, quote
from lakeingest.core.tables.schema import EWKB, NULL_DATES, SRID_BYTES, Column, Kind, TableSchema
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import connect, query, query_row, table_name
from lakeingest.mysql.decoders import select_rows
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.hash_key import keyed

_TIME = "'%Y-%m-%d %H:%i:%s.%f'"


def range_checksums(
    source: Source, schema: TableSchema, keys: KeyRange, buckets: int = 1, numbers: Sequence[int] | None = None
) -> dict[int, Checksum]:
    """The checksum of the rows in the range `keys`, for each of `buckets` buckets, by the bucket's number.

    A row's key decides its bucket (`core.proofs.checksum.bucket`). `numbers` restricts the rows to the buckets with
    these numbers. One statement reads the range. Buckets without rows are left out. Raises OperatorNeeded if a row is
    longer than the server's max_allowed_packet.
    """
    wanted = f"{_table_and_range(schema, keys)}{_in_buckets(schema, buckets, numbers)}"
    with connect(source) as connection:
        server = dialect(connection)
        rows_by_bucket = query(
            connection,
            f"SELECT bucket, COUNT(*), {server.xor} FROM (SELECT {_bucket(schema, buckets)} AS bucket,"
            f" UNHEX({_digest(schema)}) AS hash FROM {wanted}{server.computes_once}) AS hashes GROUP BY bucket",
        )
        (warnings,) = query_row(connection, "SELECT @@warning_count", 1)
        if int(warnings):  # a row may have no hash: `xor` leaves it out, and the server only warns
            _require_all_hashed(connection, schema, wanted)
    return {int(number): Checksum.of_digits(int(count), digits) for number, count, digits in rows_by_bucket}


def row_checksums(
    source: Source, schema: TableSchema, keys: KeyRange, limit: int, buckets: tuple[int, Sequence[int]] | None = None
) -> dict[Key, Checksum]:
    """The checksum of each row in the range `keys`, by the row's key, for the first `limit` rows in key order.

    `buckets` restricts the rows: the number of all buckets, and the numbers of the buckets to read. If only the server
    knows the order of keys, the result has the canonical texts of the keys, and the rows are ordered by these texts.
    Raises OperatorNeeded as `range_checksums` does.
    """
    # SQL for the key's columns: their integers, or their canonical texts
    key_terms = [quote(column.source_name) if schema.ordered else _text(column) for column in schema.key_columns]
    order_terms = key_terms if schema.ordered else [f"CAST({text} AS BINARY)" for text in key_terms]
    in_buckets = "" if buckets is None else _in_buckets(schema, *buckets)
    wanted = f"{_table_and_range(schema, keys)}{in_buckets}"
    with connect(source) as connection:
        rows = query(
            connection,
            f"SELECT {', '.join(key_terms)}, {_digest(schema)} FROM {wanted}"
            f" ORDER BY {', '.join(order_terms)} LIMIT {limit}",
        )
        if any(digits is None for *_, digits in rows):
            _require_all_hashed(connection, schema, wanted)
    to_part = int if schema.ordered else str  # the server sends each part of a key as text
    return {tuple(map(to_part, key)): Checksum.of_digits(1, digits) for *key, digits in rows}


def rows_in_range(source: Source, schema: TableSchema, keys: KeyRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the range `keys` as the copy has them. It is for tables whose copies hide values."""
    with connect(source, stream=True) as connection:
        yield from select_rows(connection, keyed(schema, source), "SELECT", f"FROM {_table_and_range(schema, keys)}")


def _table_and_range(schema: TableSchema, keys: KeyRange) -> str:
    """SQL that names the table, and selects its rows that are in the range and are to be copied.

    The server evaluates the condition of the user. So a comparison of checksums also tests how copies evaluate it.
    """
    condition = f" AND ({schema.choices.rows})" if schema.choices.rows else ""
    return f"{table_name(schema.table)} WHERE ({keys.predicate(schema.source_key)}){condition}"


def _in_buckets(schema: TableSchema, count: int, numbers: Sequence[int] | None) -> str:
    """SQL that restricts rows to the buckets with these numbers, of `count` buckets; '' without numbers."""
    return "" if numbers is None else f" AND {_bucket(schema, count)} IN ({', '.join(map(str, numbers))})"


def _digest(schema: TableSchema) -> str:
    """SQL for the first DIGITS hexadecimal digits of a row's hash."""
    return f"LEFT(SHA2(CONCAT({', '.join(map(_coded, schema.columns))}), 256), {DIGITS})"


def _coded(column: Column) -> str:
    """SQL for the part that a column adds to the text of its row (`core.proofs.checksum`)."""
    if not ends_with_newline(column.kind):
        return _with_octets(column)
    return f"IF({_value(column)} IS NULL, 'N', {_text(column)}), '{NEWLINE}'"


def _bucket(schema: TableSchema, count: int) -> str:
    """SQL for the number of a row's bucket, of `count` buckets."""
    return f"CRC32(CONCAT({', '.join(map(_with_octets, schema.key_columns))})) % {count}" if count > 1 else "0"


def _with_octets(column: Column) -> str:
    """SQL for a value's length in octets, a colon, and its text; N for NULL."""
    text = _text(column)
    # a column in utf8mb4 is measured without the conversion in `text`, which takes time and does not change the length
    measured = quote(column.source_name) if column.charset == "utf8mb4" else text
    # not IFNULL(CONCAT(…), 'N'), because CONCAT returns NULL for a value that is longer than a packet
    return f"IF({_value(column)} IS NULL, 'N', CONCAT(LENGTH({measured}), ':', {text}))"


def _value(column: Column) -> str:
    """SQL for the column's value. A zero or impossible date becomes NULL if the user chose NULL for such dates."""
    name = quote(column.source_name)
    if column.choice != NULL_DATES:
        return name
    # the condition that the date is no day of the calendar; for an impossible date, LAST_DAY may be NULL
    no_day = f"0 IN (YEAR({name}), MONTH({name}), DAY({name})) OR DAY({name}) > COALESCE(DAY(LAST_DAY({name})), 0)"
    return f"IF({no_day}, NULL, {name})"


def _ewkb(raw: str) -> str:
    """SQL for the hexadecimal digits of a geometry in PostGIS's form (EWKB), from MySQL's form `raw`."""
    srid = f"SUBSTR({raw}, 1, {SRID_BYTES})"
    # in this order: byte order and the type's first three bytes; the type's last byte, in which the flag 0x20 says that
    # an SRID follows; the SRID; the rest
    with_srid = f"HEX(SUBSTR({raw}, 5, 4)), '20', HEX({srid}), HEX(SUBSTR({raw}, 10))"
    return f"IF({srid} = x'00000000', HEX(SUBSTR({raw}, 5)), CONCAT({with_srid}))"


def _text(column: Column) -> str:
    """SQL for the canonical text of a column's value (`core.proofs.checksum`)."""
    name = quote(column.source_name)
    match column.kind:
        case Kind.DATETIME | Kind.TIMESTAMP:
            return f"DATE_FORMAT({name}, {_TIME})"
        case Kind.STRING:
            return f"CONVERT({name} USING utf8mb4)"
        case Kind.BINARY:  # cast to bytes, because a BIT would be a number
            raw = f"CAST({name} AS BINARY)"
            if column.choice == EWKB:
                return _ewkb(raw)
            return f"HEX(SUBSTR({raw}, {SRID_BYTES + 1}))" if column.is_geometry else f"HEX({raw})"
        case Kind.MICROS:
            # FLOOR, because on MariaDB the seconds of TIME_TO_SEC have a fraction
            micros = f"SIGN({name} + 0) * (FLOOR(ABS(TIME_TO_SEC({name}))) * 1000000 + MICROSECOND({name}))"
            return f"CAST(CAST({micros} AS SIGNED) AS CHAR)"
        case Kind.VECTOR:
            return f"HEX({name})"
        case Kind.FLOAT:
            return _text_of_double(f"CAST({name} AS DOUBLE)")
        case Kind.DOUBLE if column.source_type.size:
            # a product, because a DOUBLE(M,D) itself is printed with only D digits
            return _text_of_double(f"{name} * 1e0")
        case Kind.INT32 | Kind.INT64 | Kind.UINT64 | Kind.DECIMAL | Kind.NUMERAL | Kind.BOOLEAN:
            # `+ 0`, because a sum is printed without the zeros of ZEROFILL
            return f"CAST({name} + 0 AS CHAR)"
        case _:
            return f"CAST({name} AS CHAR)"


def _text_of_double(value: str) -> str:
    """SQL for the text of a DOUBLE, made of its sign and the text of its absolute value.

    The sign is added apart, because MySQL prints an expression in at most 22 characters, which are too few for a sign
    and all digits.
    """
    return f"IF({value} < 0, CONCAT('-', CAST(-({value}) AS CHAR)), CAST({value} AS CHAR))"


def _require_all_hashed(connection: pymysql.Connection, schema: TableSchema, rows: str) -> None:
    """Raise OperatorNeeded if a row has no hash: CONCAT returns NULL for a row that is longer than a packet.

    `rows`: SQL for the table and the condition on its rows.
    """
    statement = f"SELECT SUM({_digest(schema)} IS NULL), @@max_allowed_packet FROM {rows}"
    unhashed, packet = query_row(connection, statement, 2)
    if int(unhashed or 0):
        raise OperatorNeeded(
            f"{schema.table}: {unhashed} rows are longer than max_allowed_packet ({packet}),"
            " so the source cannot hash them; raise it"
        )
