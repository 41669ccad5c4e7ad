"""Binds each column of a TABLE_MAP event to a column of the table's definition.

With binlog_row_metadata=FULL the event names its columns. With MINIMAL, and with MariaDB's NO_LOG, the event has no
names. Then the names and descriptions are those of the table's definition at the event. The number and types of
columns, and all else that the event has, must agree with the definition. The setting can change at any time, so the
content of each event decides, not the setting.
Source: MySQL manual, "Binary Logging Options and Variables", binlog_row_metadata.
"""

from dataclasses import replace

from lakeingest.core.tables.schema import GEOMETRIES, Column, TableSchema
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
# The bytes of the length before a TEXT or BLOB, by the prefix of the type's name; without a prefix there are 2 bytes
_LENGTH_BYTES = {"tiny": 1, "medium": 3, "long": 4}
_NUMERIC = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_WITH_MEMBERS = {"enum", "set"}


def bind_columns(table_map: TableMap, schema: TableSchema, where: str) -> tuple[TableMap, list[int]]:
    """The event with its columns named and described, and the indexes of the columns that are copied.

    `where` (the table and the event's position) begins messages. Raises SchemaChanged if the event has other columns
    than the schema.
    """
    if not table_map.names:
        table_map = _with_definition(table_map, schema, where)
    not_copied = {*schema.skipped, *_hidden_names(table_map, schema)}
    indexes = [index for index, name in enumerate(table_map.names) if name not in not_copied]
    if tuple(table_map.names[index] for index in indexes) != schema.source_names:
        raise SchemaChanged(
            f"{where}: its columns are {', '.join(table_map.names)}, when it was copied they were "
            f"{', '.join(schema.source_names)}; copy the table again"
        )
    return table_map, indexes


def _hidden_names(table_map: TableMap, schema: TableSchema) -> set[str]:
    """The names of the event's hidden columns, which are its last columns; empty if the last column is not hidden."""
    hidden = set[str]()
    for name, sent in zip(reversed(table_map.names), reversed(table_map.columns), strict=True):
        is_in_definition = name in {*schema.source_names, *schema.skipped}
        if is_in_definition or not is_hidden(name) or sent.type is not FieldType.LONGLONG:
            break
        hidden.add(name)
    return hidden


def _with_definition(table_map: TableMap, schema: TableSchema, where: str) -> TableMap:
    """The event with the names and descriptions of the definition.

    Raises SchemaChanged if it is not known which columns the event has, or they do not agree with the definition.
    """
    names = schema.layout[0]  # of all columns of the table, also of those that are not copied
    if not names:
        raise SchemaChanged(
            f"{where}: the binlog does not name its columns, and it is not known which of them are left out;"
            " copy the table again"
        )
    if len(names) != len(table_map.columns):
        raise SchemaChanged(
            f"{where}: it has {len(table_map.columns)} columns, when it was copied it had {len(names)};"
            " copy the table again"
        )
    copied = {column.source_name: column for column in schema.columns}
    columns = list(table_map.columns)
    for index, name in enumerate(names):
        if name in copied:
            columns[index] = _complete_column(copied[name], columns[index], table_map, where)
    return replace(table_map, names=names, columns=tuple(columns))


def _complete_column(column: Column, sent: Sent, table_map: TableMap, where: str) -> Sent:
    """The sent column, completed with sign, charset and members of the definition, as far as the event lacks them.

    Raises SchemaChanged if the sent column does not agree with the definition, or if its charset or members are not
    known exactly.
    """
    name, unsigned = column.source_type.name, column.source_type.unsigned
    agrees = _agrees_in_type(column, sent)
    if name in _NUMERIC:
        agrees = agrees and (not table_map.has_signs or sent.unsigned == unsigned)
        sent = replace(sent, unsigned=unsigned)
    elif name in _TEXTS and table_map.has_charsets:
        agrees = agrees and column.charset in {"", sent.charset}  # '': not known
    elif name in _TEXTS:
        if not column.charset:
            raise SchemaChanged(f"{where}: the charset of {column.source_name} is not known; copy the table again")
        sent = replace(sent, charset=column.charset)
    elif name in _WITH_MEMBERS:
        sent = replace(sent, charset=column.charset, members=_members(column, where))
    if not agrees:
        raise SchemaChanged(
            f"{where}: column {column.source_name} is not {column.source_type} now; copy the table again"
        )
    return sent


def _agrees_in_type(column: Column, sent: Sent) -> bool:
    """Whether the column has the sent type and, for a type with a case below, the sent digits or size."""
    source = column.source_type
    if sent.type is not _TYPES.get(source.name):
        return source.name == "vector" and sent.type in _MARIADB_VECTOR  # MariaDB sends a VECTOR as one of these
    match sent.type:
        case FieldType.DATETIME2 | FieldType.TIMESTAMP2 | FieldType.TIME2:
            return sent.digits == column.fraction
        case FieldType.BIT:
            return sent.size == (source.size + 7) // 8
        case FieldType.ENUM:
            return sent.size == (1 if len(source.members) < 1 << 8 else 2)  # numbers from 1 on, and 0 for ''
        case FieldType.SET:
            return sent.size == next(size for size in (1, 2, 3, 4, 8) if len(source.members) <= size * 8)  # a bit each
        case FieldType.BLOB:
            prefix = source.name.removesuffix("text").removesuffix("blob")
            return sent.size == _LENGTH_BYTES.get(prefix, 2)
    return True  # a type without a case needs no more


def _members(column: Column, where: str) -> tuple[str, ...]:
    """The members of an ENUM or a SET, from the definition.

    Raises SchemaChanged if their charset is not known, or if a member's text in the definition may be wrong.
    """
    if not (column.charset and column.has_exact_members):
        raise SchemaChanged(
            f"{where}: the binlog does not name the members of {column.source_name}, and the server may not show them"
            " exactly; set binlog_row_metadata=FULL, then copy the table again"
        )
    return column.members
