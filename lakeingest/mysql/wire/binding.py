"""Binding: which column of a table's definition each column of a TABLE_MAP event is.

With binlog_row_metadata=FULL the event names its columns. With MINIMAL, and with NO_LOG of MariaDB, it does not: then
the definition at that place of the binlog says what each column is, and the number and types of the columns, and all
that the event does say of them, must agree with it. The setting may change at any time, so each event decides.
Source: MySQL manual, "Binary Logging Options and Variables", binlog_row_metadata.
"""

from dataclasses import replace

from lakeingest.core.schema import GEOMETRIES, Column, TableSchema
from lakeingest.errors import SchemaChanged
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.hidden_columns import is_hidden
from lakeingest.mysql.wire.table_map import TableMap

_TYPES = {
    "tinyint": FieldType.TINY,
    "smallint": FieldType.SHORT,
    "mediumint": FieldType.INT24,
    "int": FieldType.LONG,
    "bigint": FieldType.LONGLONG,
    "decimal": FieldType.NEWDECIMAL,
    "float": FieldType.FLOAT,
    "double": FieldType.DOUBLE,
    "year": FieldType.YEAR,
    "date": FieldType.DATE,
    "datetime": FieldType.DATETIME2,
    "timestamp": FieldType.TIMESTAMP2,
    "time": FieldType.TIME2,
    "char": FieldType.STRING,
    "varchar": FieldType.VARCHAR,
    "enum": FieldType.ENUM,
    "set": FieldType.SET,
    "json": FieldType.JSON,
    "bit": FieldType.BIT,
    "binary": FieldType.STRING,
    "varbinary": FieldType.VARCHAR,
    "vector": FieldType.VECTOR,
    "uuid": FieldType.STRING,
    "inet6": FieldType.STRING,
    "inet4": FieldType.STRING,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), FieldType.BLOB),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), FieldType.BLOB),
    **dict.fromkeys(GEOMETRIES, FieldType.GEOMETRY),
}
_MARIADB_VECTOR = {FieldType.VARCHAR, FieldType.VAR_STRING}
_LENGTH_BYTES = {"tiny": 1, "medium": 3, "long": 4}  # of the length before a TEXT or a BLOB, by how its type begins
_SIGNED = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_WITH_MEMBERS = {"enum", "set"}


def bound(found: TableMap, schema: TableSchema, where: str) -> tuple[TableMap, list[int]]:
    """The event with its columns named and described, and the places of those that are copied.

    SchemaChanged when they are not those of the schema; `where` is for the message.
    """
    if not found.names:
        found = _named(found, schema, where)
    left_out = {*schema.skipped, *_hidden(found, schema)}
    places = [place for place, name in enumerate(found.names) if name not in left_out]
    if tuple(found.names[place] for place in places) != schema.names:
        raise SchemaChanged(
            f"{where}: its columns are {', '.join(found.names)}, when it was copied they were "
            f"{', '.join(schema.names)}; copy the table again"
        )
    return found, places


def _hidden(found: TableMap, schema: TableSchema) -> set[str]:
    """The hidden columns of the event: they stand behind all others."""
    hidden = set[str]()
    for name, sent in zip(reversed(found.names), reversed(found.columns), strict=True):
        if name in {*schema.names, *schema.skipped} or not is_hidden(name) or sent.type is not FieldType.LONGLONG:
            break
        hidden.add(name)
    return hidden


def _named(found: TableMap, schema: TableSchema, where: str) -> TableMap:
    """The event as the definition completes it."""
    names = schema.layout[0]
    if not names:
        raise SchemaChanged(
            f"{where}: the binlog does not name its columns, and where those stand that are left out is not known;"
            " copy the table again"
        )
    if len(names) != len(found.columns):
        raise SchemaChanged(
            f"{where}: it has {len(found.columns)} columns, when it was copied it had {len(names)};"
            " copy the table again"
        )
    by_name = {column.name: column for column in schema.columns}
    columns = list(found.columns)
    for place, name in enumerate(names):
        if name in by_name:
            columns[place] = _described(by_name[name], columns[place], found, where)
    return replace(found, names=names, columns=tuple(columns))


def _described(column: Column, sent: Sent, found: TableMap, where: str) -> Sent:
    """The column as its definition completes it; SchemaChanged where the two do not agree."""
    name, unsigned = column.source_type.name, column.source_type.unsigned
    agrees = _is_of_type(column, sent)
    if name in _SIGNED:
        agrees = agrees and (not found.has_signs or sent.unsigned == unsigned)
        sent = replace(sent, unsigned=unsigned)
    elif name in _TEXTS:
        if not found.has_charsets and not column.charset:
            raise SchemaChanged(f"{where}: the charset of {column.name} is not known; copy the table again")
        agrees = agrees and (not found.has_charsets or column.charset in {"", sent.charset})
        sent = sent if found.has_charsets else replace(sent, charset=column.charset)
    elif name in _WITH_MEMBERS:
        sent = replace(sent, charset=column.charset, members=_members(column, where))
    if not agrees:
        raise SchemaChanged(f"{where}: column {column.name} is not {column.source_type} now; copy the table again")
    return sent


def _is_of_type(column: Column, sent: Sent) -> bool:
    """Whether the column's type is sent so, as far as its size can tell."""
    source = column.source_type
    if sent.type is not _TYPES.get(source.name):
        return source.name == "vector" and sent.type in _MARIADB_VECTOR
    match sent.type:
        case FieldType.DATETIME2 | FieldType.TIMESTAMP2 | FieldType.TIME2:
            return sent.digits == column.fraction
        case FieldType.BIT:
            return sent.size == (source.size + 7) // 8
        case FieldType.ENUM:
            return sent.size == (1 if len(source.members) < 1 << 8 else 2)
        case FieldType.SET:
            return sent.size == next(size for size in (1, 2, 3, 4, 8) if len(source.members) <= size * 8)
        case FieldType.BLOB:
            begins = source.name.removesuffix("text").removesuffix("blob")
            return sent.size == _LENGTH_BYTES.get(begins, 2)
    return True


def _members(column: Column, where: str) -> tuple[str, ...]:
    """The members of an ENUM or a SET; SchemaChanged where the server may have shown one of them with another text."""
    if not (column.charset and column.has_true_members):
        raise SchemaChanged(
            f"{where}: the binlog does not name the members of {column.name}, and the server may not show them exactly;"
            " set binlog_row_metadata=FULL, then copy the table again"
        )
    return column.members
