"""TABLE_MAP events: the table whose rows follow, and the types of its columns.

Source: MySQL's source documentation, "Table_map_event" (metadata of types; optional metadata fields).
"""

import enum
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import SchemaChanged, UnsupportedEvent
from lakeingest.mysql.wire import charsets
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.events import Cursor, Damaged, Event, read_table_name
from lakeingest.mysql.wire.values import Values


class _Field(enum.IntEnum):
    """The optional metadata that the decoder reads."""

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
_WITH_MEMBERS = {FieldType.ENUM, FieldType.SET}
_ONE_BYTE_MAX = 255
_LENGTHS = frozenset(range(1, 5))
# type → the possible sizes of its values, or of the lengths before them
_SIZES = {
    **dict.fromkeys((FieldType.BLOB, FieldType.JSON, FieldType.GEOMETRY, FieldType.VECTOR), _LENGTHS),
    FieldType.ENUM: frozenset({1, 2}),
    FieldType.SET: frozenset({1, 2, 3, 4, 8}),
    FieldType.BIT: frozenset(range(1, 9)),
}
_PRECISION_MAX, _FRACTION_MAX = 65, 6


@dataclass(frozen=True, slots=True)
class TableMap:
    """The content of a TABLE_MAP event. Without FULL metadata `names` is empty, and the members of types unknown.

    Not `described`: signs and charsets are unknown, too (NO_LOG of MariaDB).
    """

    id: int
    table: TableId
    names: tuple[str, ...]
    columns: tuple[Sent, ...]
    described: bool = True


def read_table_map(event: Event, *, is_mariadb: bool = False) -> TableMap:
    """Read a TABLE_MAP event. Damaged when it is cut, and for an unknown type or charset.

    With `is_mariadb`, geometries have a charset too.
    """
    body = event.body
    table_id = body.number(6)
    body.take(2)
    body.take(body.number(1) + 1)
    body.take(body.number(1) + 1)
    count = body.packed()
    types = body.take(count)
    metadata = Cursor(body.take(body.packed()))
    columns = [_validated(_column(type_, metadata)) for type_ in types]
    body.take((count + 7) // 8)
    fields: dict[int, bytes] = {}
    while body.left:
        field = body.number(1)
        fields[field] = body.take(body.packed())
    names = _names(Cursor(fields.get(_Field.COLUMN_NAME, b"")))
    if len(names) not in {0, count}:
        raise Damaged(f"a TABLE_MAP event with {len(names)} names for {count} columns")
    character = _CHARACTER | {FieldType.GEOMETRY} if is_mariadb else _CHARACTER
    described = bool(names) or _is_described(columns, fields, character)
    if described:
        columns = _described(columns, fields, character)
    if names:
        columns = _with_members(columns, fields)
    return TableMap(table_id, read_table_name(event), names, tuple(columns), described)


def as_defined(found: TableMap, schema: TableSchema, where: str) -> TableMap:
    """The same with the names and members that the event lacks without FULL metadata, from the table's definition.

    SchemaChanged when it has another number of columns; UnsupportedEvent when signs and charsets are unknown, or the
    place of the columns that are not copied; `where` is for the messages.
    """
    if found.names:
        return found
    if not found.described:
        raise UnsupportedEvent(f"{where}: no row metadata; set binlog_row_metadata=FULL, then copy the table again")
    if schema.skipped and not schema.layout:
        raise UnsupportedEvent(
            f"{where}: row metadata not FULL, and the order of its columns is not known; set binlog_row_metadata=FULL,"
            " then copy the table again"
        )
    names = schema.layout or schema.names
    if len(names) != len(found.columns):
        raise SchemaChanged(
            f"{where}: it has {len(found.columns)} columns, when it was copied they were {', '.join(names)}; copy the"
            " table again"
        )
    members = {column.name: column.members for column in schema.columns}
    columns = tuple(
        replace(sent, members=members[name]) if members.get(name) and sent.type in _WITH_MEMBERS else sent
        for name, sent in zip(names, found.columns, strict=True)
    )
    return replace(found, names=names, columns=columns)


def copied_places(found: TableMap, schema: TableSchema, where: str) -> list[int]:
    """The places of the columns that are copied.

    SchemaChanged when its names are not those of the schema; `where` is for the message.
    """
    places = [place for place, name in enumerate(found.names) if name not in schema.skipped]
    if tuple(found.names[place] for place in places) != schema.names:
        raise SchemaChanged(
            f"{where}: its columns are {', '.join(found.names)}, when it was copied they were "
            f"{', '.join(schema.names)}; copy the table again"
        )
    return places


def _column(type_: int, metadata: Cursor) -> Sent:
    """A column by its type and the metadata of its type."""
    try:
        found = FieldType(type_)
    except ValueError as error:
        raise Damaged(f"a column of the unknown type {type_}") from error
    match found:
        case FieldType.FLOAT | FieldType.DOUBLE:
            metadata.take(1)
            return Sent(found)
        case FieldType.BLOB | FieldType.JSON | FieldType.GEOMETRY | FieldType.VECTOR:
            return Sent(found, size=metadata.number(1))
        case FieldType.VARCHAR | FieldType.VAR_STRING:
            return Sent(found, size=_length_bytes(metadata.number(2)))
        case FieldType.NEWDECIMAL:
            return Sent(found, precision=metadata.number(1), scale=metadata.number(1))
        case FieldType.STRING:
            first, second = metadata.number(1), metadata.number(1)
            if first in _WITH_MEMBERS:
                return Sent(FieldType(first), size=second)
            # two more bits of the length are stored inverted in the type
            return Sent(found, size=_length_bytes((first & 0x30 ^ 0x30) << 4 | second))
        case FieldType.BIT:
            bits, size = metadata.number(1), metadata.number(1)
            return Sent(found, size=size + 1 if bits else size)
        case FieldType.DATETIME2 | FieldType.TIMESTAMP2 | FieldType.TIME2:
            return Sent(found, digits=metadata.number(1))
        case FieldType.TIMESTAMP | FieldType.DATETIME | FieldType.TIME:
            raise Damaged(f"a column of type {found.name} in its form before MySQL 5.6")
        case _:
            return Sent(found)


def _validated(sent: Sent) -> Sent:
    """The column; Damaged for impossible sizes and digits: the walk and the readers rely on them."""
    sizes = _SIZES.get(sent.type)
    least = int(sent.type is FieldType.NEWDECIMAL)
    if (
        (sizes is not None and sent.size not in sizes)
        or sent.digits > _FRACTION_MAX
        or not max(least, sent.scale) <= sent.precision <= _PRECISION_MAX
    ):
        raise Damaged(f"a column of type {sent.type.name} with an impossible size or number of digits")
    return sent


def _length_bytes(most: int) -> int:
    return 1 if most <= _ONE_BYTE_MAX else 2


def _is_described(columns: Sequence[Sent], fields: Container[int], character: Container[FieldType]) -> bool:
    """Whether the event has the signs and charsets of all columns that have one."""
    types = {column.type for column in columns}
    lacks_signs = not types.isdisjoint(_NUMERIC) and _Field.SIGNEDNESS not in fields
    has_charsets = _Field.DEFAULT_CHARSET in fields or _Field.COLUMN_CHARSET in fields
    return not lacks_signs and (has_charsets or not any(type_ in character for type_ in types))


def _described(columns: Sequence[Sent], fields: dict[int, bytes], character: Container[FieldType]) -> list[Sent]:
    """The columns with their signs and charsets; `character` are the types that have charsets."""
    described = list(columns)
    numeric = [i for i, column in enumerate(columns) if column.type in _NUMERIC]
    signs = fields.get(_Field.SIGNEDNESS, b"")
    for order, i in enumerate(numeric):
        if order // 8 >= len(signs):
            raise Damaged("a TABLE_MAP event that does not say which numbers are unsigned")
        described[i] = replace(described[i], unsigned=bool(signs[order // 8] & 0x80 >> order % 8))
    default, each = fields.get(_Field.DEFAULT_CHARSET), fields.get(_Field.COLUMN_CHARSET)
    return _with_charsets(described, character, default, each)


def _with_members(columns: Sequence[Sent], fields: dict[int, bytes]) -> list[Sent]:
    """The columns with the members of ENUM and SET."""
    default, each = fields.get(_Field.MEMBERS_DEFAULT_CHARSET), fields.get(_Field.MEMBERS_COLUMN_CHARSET)
    described = _with_charsets(columns, _WITH_MEMBERS, default, each)
    for type_, field in ((FieldType.ENUM, _Field.ENUM_MEMBERS), (FieldType.SET, _Field.SET_MEMBERS)):
        members = Cursor(fields.get(field, b""))
        for i, column in enumerate(columns):
            if column.type is type_:
                count = members.packed()
                raw = [members.take(members.packed()) for _ in range(count)]
                described[i] = replace(described[i], members=_decoded(raw, described[i].charset))
    return described


def _with_charsets(
    columns: Sequence[Sent], types: Container[FieldType], default: bytes | None, each: bytes | None
) -> list[Sent]:
    """The columns, those of these types with their charsets."""
    described = list(columns)
    found = [i for i, column in enumerate(columns) if column.type in types]
    for i, collation in zip(found, _collations(len(found), default, each), strict=True):
        described[i] = replace(described[i], charset=charsets.charset_of(collation))
    return described


def _collations(count: int, default: bytes | None, each: bytes | None) -> list[int]:
    """The collation of each character column."""
    if default is not None:
        body = Cursor(default)
        collations = [body.packed()] * count
        while body.left:
            order, collation = body.packed(), body.packed()
            if order >= count:
                raise Damaged("a TABLE_MAP event with a charset for a column that does not exist")
            collations[order] = collation
        return collations
    body = Cursor(each or b"")
    return [body.packed() for _ in range(count)]


def _decoded(raw: Sequence[bytes], charset: str) -> tuple[str, ...]:
    try:
        return tuple(charsets.texts(Values.of(raw), charset).to_pylist())
    except charsets.UnknownCharset:
        raise
    except ValueError as error:
        raise Damaged(f"a member that is not text: {error}") from error


def _names(body: Cursor) -> tuple[str, ...]:
    found = []
    while body.left:
        found.append(body.text(body.packed()))
    return tuple(found)
