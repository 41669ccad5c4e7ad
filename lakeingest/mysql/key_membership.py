"""Asks the server which keys are in a range, because only the server knows their order. No row of the table is read."""

from collections.abc import Mapping, Sequence
from typing import Any

import pymysql

from lakeingest.core.tables.keys import KeyRange, quote
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.mysql.connection import literal, query
from lakeingest.mysql.key_values import number_of
from lakeingest.mysql.keyed_rows import value_of

_AT_ONCE = 500  # how many keys one query has


def keys_within(
    connection: pymysql.Connection, schema: TableSchema, keys: Sequence[Mapping[str, Any]], within: KeyRange
) -> list[Mapping[str, Any]]:
    """The keys among `keys` that are in the range `within`, by the order of the columns' types and collations."""
    collations = _collations(connection, schema)
    keys_inside: list[Mapping[str, Any]] = []
    for first in range(0, len(keys), _AT_ONCE):
        part = keys[first : first + _AT_ONCE]
        numbers_inside = query(connection, _range_query(schema, collations, part, within))
        keys_inside += (part[int(number)] for (number,) in numbers_inside)
    return keys_inside


def _collations(connection: pymysql.Connection, schema: TableSchema) -> dict[str, tuple[str, str]]:
    """The charset and the collation of each text column, by the column's name."""
    database, name = literal(schema.table.database), literal(schema.table.name)
    rows = query(
        connection,
        "SELECT COLUMN_NAME, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = {database} AND TABLE_NAME = {name} AND COLLATION_NAME IS NOT NULL",
    )
    return {str(column): (str(charset), str(collation)) for column, charset, collation in rows}


def _range_query(
    schema: TableSchema, collations: Mapping[str, tuple[str, str]], keys: Sequence[Mapping[str, Any]], within: KeyRange
) -> str:
    """The query for the keys that are in the range `within`; it returns their indexes in `keys`.

    The values in the query get the types and collations of the table's columns, so that the server compares them as it
    compares the columns.
    """
    parts = []
    for number, key in enumerate(keys):
        values = (
            f"{_value(column, collations.get(column.source_name), key[column.name])} AS {quote(column.name)}"
            for column in schema.key_columns
        )
        parts.append(f"SELECT {number} AS `lakeingest number`, {', '.join(values)}")
    listed = " UNION ALL ".join(parts)
    return f"SELECT `lakeingest number` FROM ({listed}) AS listed WHERE {within.predicate(schema.key)}"


def _value(column: Column, charset_and_collation: tuple[str, str] | None, value: Any) -> str:
    """SQL for a key's value with the type of its column. A column without text has no `charset_and_collation`."""
    if column.members:  # the server orders an ENUM or SET by its numbers
        return str(number_of(column, value))
    written = value_of(column, value)
    match column.kind:
        case Kind.STRING if charset_and_collation is not None:
            charset, collation = charset_and_collation
            return f"CONVERT({written} USING {charset}) COLLATE {collation}"
        case Kind.DATE:
            return f"DATE({written})"
        case Kind.DATETIME | Kind.TIMESTAMP:
            return f"TIMESTAMP({written})"
        case Kind.TIME:
            return f"TIME({written})"
        case Kind.NUMERAL:  # a number without quotes, because a text would be compared as a text
            return written.strip("'")
        case Kind.UUID | Kind.ADDRESS:
            return f"CAST({written} AS {column.source_type.name})"
        case _:
            return written
