"""Which type of MySQL or MariaDB is which kind of column, and how a value is read that the copy hides or casts."""

from collections.abc import Mapping
from dataclasses import replace

from lakeingest.core.tables.column_choice import HASHED
from lakeingest.core.tables.schema import GEOMETRIES, INTEGERS, Column, Kind, SourceType

# Kinds whose values a lake stores as those of another kind, in tables that do not show which of the two they were
STORED_AS: Mapping[Kind, Kind] = {
    **dict.fromkeys((Kind.TIME, Kind.NUMERAL, Kind.JSON, Kind.UUID, Kind.ADDRESS, Kind.MOMENT), Kind.STRING),
    Kind.MICROS: Kind.INT64,
}
_DIGITS_MAX = 38  # the most digits of a decimal in Arrow, in Iceberg and in Hudi
_KINDS: dict[str, Kind] = {
    "tinyint": Kind.INT32,
    "smallint": Kind.INT32,
    "mediumint": Kind.INT32,
    "int": Kind.INT32,
    "bigint": Kind.INT64,
    "decimal": Kind.DECIMAL,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "year": Kind.INT32,
    "date": Kind.DATE,
    "datetime": Kind.DATETIME,
    "timestamp": Kind.TIMESTAMP,
    "time": Kind.TIME,
    "char": Kind.STRING,
    "varchar": Kind.STRING,
    "tinytext": Kind.STRING,
    "text": Kind.STRING,
    "mediumtext": Kind.STRING,
    "longtext": Kind.STRING,
    "enum": Kind.STRING,
    "set": Kind.STRING,
    "json": Kind.JSON,
    "bit": Kind.BINARY,
    "binary": Kind.BINARY,
    "varbinary": Kind.BINARY,
    "tinyblob": Kind.BINARY,
    "blob": Kind.BINARY,
    "mediumblob": Kind.BINARY,
    "longblob": Kind.BINARY,
    **dict.fromkeys(GEOMETRIES, Kind.BINARY),
    "vector": Kind.VECTOR,
    "uuid": Kind.UUID,
    "inet6": Kind.ADDRESS,
    "inet4": Kind.ADDRESS,
}
_UNSIGNED: dict[str, Kind] = {"int": Kind.INT64, "bigint": Kind.UINT64}

# Kinds whose values have one exact text, or are bytes, each with the kind in which the values are read to be hashed.
# Dates, also those with a time of day, are read as texts, because a text can have a zero date
_HASHED_AS: Mapping[Kind, Kind] = {
    **{kind: kind for kind in (Kind.INT32, Kind.INT64, Kind.UINT64, Kind.DECIMAL, Kind.NUMERAL, Kind.STRING)},
    **{kind: kind for kind in (Kind.JSON, Kind.UUID, Kind.ADDRESS, Kind.TIME, Kind.BINARY)},
    **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP), Kind.MOMENT),
}


def usual_kind(type_: SourceType, precision: int) -> Kind | None:
    """The kind of a type without any choice of the user; None for an unknown type. `precision`: that of a decimal."""
    if type_.name == "bit" and type_.size == 1:
        return Kind.BOOLEAN
    if type_.name == "decimal" and precision > _DIGITS_MAX:
        return Kind.NUMERAL
    usual = _KINDS.get(type_.name)
    return _UNSIGNED.get(type_.name, usual) if type_.unsigned else usual


def kind_to_hash(type_: SourceType, precision: int) -> Kind | None:
    """The kind in which values of this type are read to be hashed.

    None for an unknown type, and for floats, bits, geometries and vectors: they have no exact text.
    """
    kind = usual_kind(type_, precision)
    has_no_text = type_.name == "bit" or type_.name in GEOMETRIES
    return None if kind is None or has_no_text else _HASHED_AS.get(kind)


def is_cast_number(column: Column) -> bool:
    """Whether the copy has a number as a text or as a wider integer only by the user's choice (`core.tables.casts`)."""
    usual = usual_kind(column.source_type, column.precision)
    is_text = column.kind is Kind.NUMERAL and usual in {*INTEGERS, Kind.DECIMAL}
    return is_text or (column.kind is Kind.INT64 and usual is Kind.INT32)


def as_read(column: Column) -> Column:
    """The column with the kind in which its values are decoded, before they are hidden, or cast from an integer.

    A hidden column loses its `choice`. Casts of other kinds need no second step: the decoder reads their values in the
    kind that the copy has.
    """
    if not column.is_hidden:
        usual = usual_kind(column.source_type, column.precision)
        is_cast_integer = is_cast_number(column) and usual in INTEGERS
        return replace(column, kind=usual) if usual is not None and is_cast_integer else column
    kind = kind_to_hash(column.source_type, column.precision) if column.choice == HASHED else column.kind
    assert kind is not None  # noqa: S101 - the definition was refused otherwise
    return replace(column, kind=kind, choice="")
