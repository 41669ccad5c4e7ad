"""Reads TABLE_MAP events: the table whose rows follow, and the types of its columns.

Source: MySQL's source documentation, "Table_map_event" (metadata of types; optional metadata fields).
"""

import enum
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.wire import charsets
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.events import Cursor, Damaged, Event, read_table_name
from lakeingest.mysql.wire.values import Values


class _Field(enum.IntEnum):
    """The optional metadata fields that the decoder reads."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_MEMBERS = 5
    ENUM_MEMBERS = 6
    MEMBERS_DEFAULT_CHARSET = 10
    MEMBERS_COLUMN_CHARSET = 11


_NUMERIC = {
    FieldType.TINY,
    FieldType.SHORT,
    FieldType.INT24,
    FieldType.LONG,
    FieldType.LONGLONG,
    FieldType.FLOAT,
    FieldType.DOUBLE,
    FieldType.NEWDECIMAL,
    FieldType.YEAR,
}
_CHARACTER = {FieldType.STRING, FieldType.VAR_STRING, FieldType.VARCHAR, FieldType.BLOB, FieldType.VECTOR}
# Further types that have a charset in the events of MariaDB
_OF_MARIADB = {FieldType.GEOMETRY, FieldType.BLOB_COMPRESSED, FieldType.VARCHAR_COMPRESSED}
_WITH_MEMBERS = {FieldType.ENUM, FieldType.SET}
_ONE_BYTE_MAX = 255
_LENGTHS = frozenset(range(1, 5))  # the possible sizes of the length before a value
# type → the possible sizes in bytes of its values, or of the lengths before its values
_SIZES = {
    **dict.fromkeys((FieldType.BLOB, FieldType.JSON, FieldType.GEOMETRY, FieldType.VECTOR), _LENGTHS),
    FieldType.BLOB_COMPRESSED: _LENGTHS,
    FieldType.ENUM: frozenset({1, 2}),
    FieldType.SET: frozenset({1, 2, 3, 4, 8}),
    FieldType.BIT: frozenset(range(1, 9)),
}
_PRECISION_MAX, _FRACTION_MAX = 65, 6


@dataclass(frozen=True, slots=True)
class TableMap:
    """The content of a TABLE_MAP event. Without binlog_row_metadata=FULL, `names` and all members are empty.

    `has_signs`: the event says which numbers are unsigned. `has_charsets`: the event has the charset of each text. The
    event has the charsets of ENUM and SET only with binlog_row_metadata=FULL.
    """

    id: int
    table: TableId
    names: tuple[str, ...]
    columns: tuple[Sent, ...]
    has_signs: bool = True
    has_charsets: bool = True


def read_table_map(event: Event, *, is_mariadb: bool = False) -> TableMap:
    """Read a TABLE_MAP event.

    With `is_mariadb`, the event has charsets of geometries, too, and each TIMESTAMP gets `fraction_counts`. Raises
    Damaged if the event is cut, or has an unknown type or impossible metadata; UnknownCharset for an unknown charset.
    """
    body = event.body
    table_id = body.number(6)
    body.take(2)  # flags
    body.take(body.number(1) + 1)  # the database's name and a NUL
    body.take(body.number(1) + 1)  # the table's name and a NUL
    column_count = body.packed()
    types = body.take(column_count)
    metadata = Cursor(body.take(body.packed()))
    columns = [_checked(_read_column(type_, metadata)) for type_ in types]
    if is_mariadb:
        columns = [
            replace(column, fraction_counts=True) if column.type is FieldType.TIMESTAMP2 else column
            for column in columns
        ]
    body.take((column_count + 7) // 8)  # which columns may be NULL
    fields: dict[int, bytes] = {}  # the optional metadata
    while body.left:
        field = body.number(1)
        fields[field] = body.take(body.packed())
    names = _read_names(Cursor(fields.get(_Field.COLUMN_NAME, b"")))
    if len(names) not in {0, column_count}:
        raise Damaged(f"a TABLE_MAP event with {len(names)} names for {column_count} columns")
    has_signs = _Field.SIGNEDNESS in fields
    has_charsets = not fields.keys().isdisjoint((_Field.DEFAULT_CHARSET, _Field.COLUMN_CHARSET))
    # an event with names has all metadata: the next three functions raise Damaged if the metadata they read are missing
    if names or has_signs:
        _set_signs(columns, fields)
    if names or has_charsets:
        character = _CHARACTER | _OF_MARIADB if is_mariadb else _CHARACTER
        _set_charsets(columns, character, fields.get(_Field.DEFAULT_CHARSET), fields.get(_Field.COLUMN_CHARSET))
    if names:
        _add_members(columns, fields)
    table = read_table_name(event)
    return TableMap(table_id, table, names, tuple(columns), has_signs=has_signs, has_charsets=has_charsets)


def _read_column(type_: int, metadata: Cursor) -> Sent:
    """The description of a column, from its type and the next metadata. Raises Damaged for a type that is not known."""
    try:
        field_type = FieldType(type_)
    except ValueError as error:
        raise Damaged(f"a column of the unknown type {type_}") from error
    match field_type:
        case FieldType.FLOAT | FieldType.DOUBLE:
            metadata.take(1)  # the size of a value, which the type tells, too
            return Sent(field_type)
        case FieldType.BLOB | FieldType.JSON | FieldType.GEOMETRY | FieldType.VECTOR | FieldType.BLOB_COMPRESSED:
            return Sent(field_type, size=metadata.number(1))
        case FieldType.VARCHAR | FieldType.VAR_STRING | FieldType.VARCHAR_COMPRESSED:
            return Sent(field_type, size=_length_bytes(metadata.number(2)))
        case FieldType.NEWDECIMAL:
            return Sent(field_type, precision=metadata.number(1), scale=metadata.number(1))
        case FieldType.STRING:
            first, second = metadata.number(1), metadata.number(1)
            if first in _WITH_MEMBERS:  # the server gives an ENUM or a SET the type STRING, and its own type here
                return Sent(FieldType(first), size=second)
            # two bits of the first byte (0x30) are the highest bits of the greatest length, inverted
            return Sent(field_type, size=_length_bytes((((first & 0x30) ^ 0x30) << 4) | second))
        case FieldType.BIT:
            more_bits, whole_bytes = metadata.number(1), metadata.number(1)
            return Sent(field_type, size=whole_bytes + 1 if more_bits else whole_bytes)
        case FieldType.DATETIME2 | FieldType.TIMESTAMP2 | FieldType.TIME2:
            return Sent(field_type, digits=metadata.number(1))
        case FieldType.TIMESTAMP | FieldType.DATETIME | FieldType.TIME:
            raise Damaged(f"a column of type {field_type.name} in its form before MySQL 5.6")
        case _:
            return Sent(field_type)


def _checked(sent: Sent) -> Sent:
    """The same column. Raises Damaged for an impossible size or number of digits: walk and readers rely on both."""
    sizes = _SIZES.get(sent.type)
    precision_min = 1 if sent.type is FieldType.NEWDECIMAL else 0  # every other type has the precision 0
    has_size = sizes is None or sent.size in sizes
    has_precision = precision_min <= sent.precision <= _PRECISION_MAX and sent.scale <= sent.precision
    if not has_size or not has_precision or sent.digits > _FRACTION_MAX:
        raise Damaged(f"a column of type {sent.type.name} with an impossible size or number of digits")
    return sent


def _length_bytes(value_bytes_max: int) -> int:
    """The number of bytes of the length before a value that has at most so many bytes."""
    return 1 if value_bytes_max <= _ONE_BYTE_MAX else 2


def _set_signs(columns: list[Sent], fields: Mapping[int, bytes]) -> None:
    """Set `unsigned` of the columns of numbers. Raises Damaged if the event lacks the sign of a column."""
    signs = fields.get(_Field.SIGNEDNESS, b"")  # a bit for each column of numbers, the highest bit of a byte first
    numeric_indexes = [i for i, column in enumerate(columns) if column.type in _NUMERIC]
    for order, i in enumerate(numeric_indexes):
        if order // 8 >= len(signs):
            raise Damaged("a TABLE_MAP event that does not say which numbers are unsigned")
        columns[i] = replace(columns[i], unsigned=bool(signs[order // 8] & (0x80 >> order % 8)))


def _set_charsets(columns: list[Sent], types: Container[FieldType], default: bytes | None, each: bytes | None) -> None:
    """Set the charset of the columns of these `types`; for `default` and `each` see `_read_collations`."""
    indexes = [i for i, column in enumerate(columns) if column.type in types]
    for i, collation in zip(indexes, _read_collations(len(indexes), default, each), strict=True):
        columns[i] = replace(columns[i], charset=charsets.charset_of(collation))


def _add_members(columns: list[Sent], fields: Mapping[int, bytes]) -> None:
    """Set the charset and the members of each ENUM and SET. Raises Damaged if a field is cut or missing."""
    default, each = fields.get(_Field.MEMBERS_DEFAULT_CHARSET), fields.get(_Field.MEMBERS_COLUMN_CHARSET)
    _set_charsets(columns, _WITH_MEMBERS, default, each)
    for type_, field in ((FieldType.ENUM, _Field.ENUM_MEMBERS), (FieldType.SET, _Field.SET_MEMBERS)):
        members = Cursor(fields.get(field, b""))
        for i, column in enumerate(columns):
            if column.type is type_:
                member_count = members.packed()
                raw = [members.take(members.packed()) for _ in range(member_count)]
                columns[i] = replace(column, members=_decode_members(raw, column.charset))


def _read_collations(count: int, default: bytes | None, each: bytes | None) -> list[int]:
    """The ids of the collations of `count` columns, in order.

    `default` and `each` are the contents of metadata fields. `default` has one collation for all columns, then the
    columns with another collation. If `default` is None, `each` has the collation of each column.
    Raises Damaged for a field that is cut or missing.
    """
    if default is not None:
        body = Cursor(default)
        collations = [body.packed()] * count
        while body.left:
            order, collation = body.packed(), body.packed()  # `order`: the column's index, from 0 to `count` - 1
            if order >= count:
                raise Damaged("a TABLE_MAP event with a charset for a column that does not exist")
            collations[order] = collation
        return collations
    body = Cursor(each or b"")
    return [body.packed() for _ in range(count)]


def _decode_members(raw: Sequence[bytes], charset: str) -> tuple[str, ...]:
    """The members of an ENUM or SET as texts. Raises Damaged for a member that is no text."""
    if charset == "binary":  # the column is left out, so only the number of its members counts
        return tuple(member.decode("latin-1") for member in raw)
    try:
        return tuple(charsets.texts(Values.of(raw), charset).to_pylist())
    except charsets.UnknownCharset:  # a ValueError, too, but no damage
        raise
    except ValueError as error:
        raise Damaged(f"a member that is not text: {error}") from error


def _read_names(body: Cursor) -> tuple[str, ...]:
    names = []
    while body.left:
        names.append(body.text(body.packed()))
    return tuple(names)
