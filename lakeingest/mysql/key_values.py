"""Converts keys among three forms: JSON that people write, values of Arrow, and bounds that the server compares."""

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import INTEGERS, Column, Kind, TableSchema
from lakeingest.errors import UsageError
from lakeingest.mysql.key_space import part_of_number
from lakeingest.mysql.keyed_rows import value_of
from lakeingest.rows import arrow_type

_BITS = {"0": False, "1": True, "False": False, "True": True}  # the values of a BIT(1), by the texts of JSON's values


def parse_key(schema: TableSchema, text: str) -> dict[str, Any]:
    """The Arrow values of a key, by column, from a text: a JSON array of the values in key order, or one value alone.

    Integers are numbers; decimals, dates and times are texts as MySQL writes them; bytes are a text of hexadecimal
    digits. Raises UsageError if the text does not have these values for the columns of the key.
    """
    try:
        parsed = json.loads(text, parse_float=Decimal)  # a float would lose digits
    except ValueError:
        parsed = text  # no JSON: one text without quotes
    values = parsed if isinstance(parsed, list) else [parsed]
    if len(values) != len(schema.key):
        raise UsageError(f"{text}: a key of {schema.table} has {len(schema.key)} values ({', '.join(schema.key)})")
    return {
        column.name: _arrow_value(schema, column, value)
        for column, value in zip(schema.key_columns, values, strict=True)
    }


def key_table(schema: TableSchema, keys: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The keys as an Arrow table without duplicates, with the column types of the table's rows."""
    fields = pa.schema([pa.field(column.name, arrow_type(column), nullable=False) for column in schema.key_columns])
    table = pa.Table.from_pylist(list(keys), fields)
    # without threads, so that the keys stay in order; `cast`, because grouping makes the columns nullable
    return table.group_by(list(schema.key), use_threads=False).aggregate([]).cast(fields)


def bound_of(schema: TableSchema, key: Mapping[str, Any]) -> Key:
    """A key as a bound of a range: an integer, or for other types an SQL literal that compares as the column does."""
    return tuple(_literal(column, key[column.name]) for column in schema.key_columns)


def values_of(schema: TableSchema, key: Key) -> dict[str, Any]:
    """The Arrow values of a key, by column: the inverse of `bound_of`."""
    return {
        column.name: _arrow_value(schema, column, _value_of_literal(column, part))
        for column, part in zip(schema.key_columns, key, strict=True)
    }


def values_of_texts(schema: TableSchema, texts: Sequence[str]) -> dict[str, Any]:
    """The Arrow values of a key, by column, from the canonical texts that checksums are made of (`mysql.checksum`)."""
    return {
        # a BOOLEAN's text is 0 or 1, and `bool` of any text would be True
        column.name: _arrow_value(schema, column, int(text) if column.kind is Kind.BOOLEAN else text)
        for column, text in zip(schema.key_columns, texts, strict=True)
    }


def compared_keys(schema: TableSchema, keys: Iterable[Key]) -> pa.Table:
    """The keys of differences (`core.proofs.checksum.Difference`) as a table (`key_table`), in the order of `keys`."""
    return key_table(schema, (values_of_texts(schema, tuple(map(str, key))) for key in keys))


def key_of_difference(schema: TableSchema, key: Key) -> Key:
    """The key of a difference (`core.proofs.checksum.Difference`) in the form that a re-snapshot takes.

    If only the server can order the keys, the key of a difference consists of texts. These become values, then bounds.
    """
    return key if schema.ordered else bound_of(schema, values_of_texts(schema, tuple(map(str, key))))


def _value_of_literal(column: Column, part: int | str) -> Any:
    """The value that a part of a bound stands for, in the form in which people write it in JSON."""
    text = str(part)
    if column.kind in INTEGERS:
        return int(part)
    if column.kind is Kind.MICROS and text.startswith("SEC_TO_TIME("):  # as `value_of` writes it
        seconds = Decimal(text.removeprefix("SEC_TO_TIME(").removesuffix(")"))
        return int(seconds.scaleb(6))
    if column.members:
        number = int(text.partition("/")[0])  # the part is `number/last number`, or the number alone
        if column.source_type.name == "enum":
            return column.members[number - 1] if number else ""  # members are counted from 1, and 0 is ''
        return ",".join(member for bit, member in enumerate(column.members) if number >> bit & 1)
    if column.source_type.name == "bit" and column.kind is Kind.BINARY:
        return int(text).to_bytes(_bit_bytes(column)).hex()
    if "x'" in text:  # before it, a STRING has `_utf8mb4` or another charset
        digits = text.partition("x'")[2].rstrip("'")
        return digits if column.kind is Kind.BINARY else bytes.fromhex(digits).decode()
    if column.kind is Kind.BOOLEAN:
        return bool(int(text))
    return text.strip("'")


def _bit_bytes(column: Column) -> int:
    """The number of bytes that the value of a BIT column has in Arrow."""
    return -(-column.source_type.size // 8)  # rounded up


def _literal(column: Column, value: Any) -> int | str:
    """A value of Arrow as a part of a bound: an integer, or an SQL literal that compares as the column does."""
    if column.kind in INTEGERS:
        return int(value)
    if column.members:
        return part_of_number(column, number_of(column, value))
    if column.kind is Kind.BINARY and column.source_type.name != "bit":
        return f"x'{value.hex().upper()}'"
    if column.kind is Kind.STRING:
        return f"_utf8mb4 x'{value.encode().hex().upper()}'"
    return value_of(column, value)


def number_of(column: Column, value: str) -> int:
    """The number by which MySQL orders an ENUM's member or a SET's value. Raises UsageError for an unknown member."""
    members = list(column.members)
    try:
        if column.source_type.name == "enum":
            return members.index(value) + 1 if value else 0  # MySQL counts members from 1, and 0 is ''
        return sum(1 << members.index(member) for member in value.split(",")) if value else 0  # a bit for each member
    except ValueError:
        raise UsageError(f"{value!r} is no member of {column.name}") from None


def _arrow_value(schema: TableSchema, column: Column, value: Any) -> Any:
    """A value that people wrote, as Arrow holds it in the column. Raises UsageError if the column cannot have it."""
    try:
        converted = _python_value(column, value)
        return pa.array([converted], arrow_type(column))[0].as_py()  # through Arrow, which rejects other values
    except (ValueError, TypeError, InvalidOperation, pa.ArrowException) as error:
        raise UsageError(f"{value!r} is no value of {schema.table}'s key column {column.name}: {error}") from None


def _bit(text: str) -> bool:
    """The value of a BIT(1) from the text of a value in JSON. Raises ValueError for any other text."""
    if text not in _BITS:  # Python's `bool` would take the text "0" for True
        raise ValueError("neither 0 nor 1")
    return _BITS[text]


def _python_value(column: Column, value: Any) -> Any:
    """A value that people wrote, in Python's type for the column. Raises an error if the type cannot have the value."""
    if value is None:
        raise ValueError("a key has no NULL")
    match column.kind:
        case Kind.INT32 | Kind.INT64 | Kind.MICROS:
            if isinstance(value, bool):
                raise ValueError("not an integer")  # noqa: TRY004 - a value of JSON is wrong, no argument
            return int(str(value))  # raises ValueError for a fraction
        case Kind.UINT64 | Kind.DECIMAL:
            return Decimal(str(value))
        case Kind.BOOLEAN:
            return _bit(str(value))
        case Kind.BINARY:
            return bytes.fromhex(str(value).removeprefix("0x"))
        case Kind.DATE:
            return dt.date.fromisoformat(str(value))
        case Kind.DATETIME:
            return dt.datetime.fromisoformat(str(value))
        case Kind.TIMESTAMP:
            moment = dt.datetime.fromisoformat(str(value))
            return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        case _:
            return str(value)
