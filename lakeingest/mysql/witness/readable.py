"""Decodes row events without the columns that the library mysql-replication misreads, instead of refusing their table.

A column that is left out is named in `unread`, with the reason.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE

from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.mysql.wire.binding import bind_columns
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.events import Cursor, Event
from lakeingest.mysql.wire.table_map import TableMap, read_table_map
from lakeingest.mysql.witness.gaps import gap_of_column
from lakeingest.mysql.witness.row_events import RowEvents, add_descriptions, require_types

LOST: Final = "a value that the library lost"  # stands for a value that is neither NULL nor in the library's range

_HEADER_BYTES, _POST_HEADER_BYTES = 19, 8  # of a TABLE_MAP event; its post-header has the table's id and flags
_KNOWN_FIELDS = 12  # the last field of the optional metadata that the library knows
# Types that the library does not know → a type with the same description and the same form of values
_SAME_FORM = {FieldType.VECTOR: FieldType.BLOB, FieldType.VAR_STRING: FieldType.VARCHAR}
_TEXTS = {FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.BLOB}
_DOCUMENTS = {FIELD_TYPE.JSON, FIELD_TYPE.GEOMETRY}


class ReadableRows(RowEvents):
    """Decodes the row events of the tables in `schemas`: only the columns that the library reads exactly.

    `unread` has the other columns, by table, each with the reason. A row image has the values of the columns that are
    read, in the order of the schema. `is_mariadb`: the events are MariaDB's, whose descriptions the library misreads.
    """

    def __init__(self, schemas: Mapping[TableId, TableSchema]) -> None:
        super().__init__(schemas)
        self.is_mariadb = False
        self.unread: defaultdict[TableId, dict[str, str]] = defaultdict(dict)

    def read_table(self, event: Event, where: str) -> tuple[TableSchema, TableMap, Any]:
        """As in `RowEvents`. Also add the columns that are left out to `unread`."""
        sent = read_table_map(event, is_mariadb=self.is_mariadb)
        schema = self.schemas[sent.table]
        where = f"{schema.table} {where}"
        table_map, copied_indexes = bind_columns(sent, schema, where)
        table = self.library_event(_understood(event, described=not self.is_mariadb), where).table_obj
        if self.is_mariadb or not sent.names:
            add_descriptions(table, table_map)
        read = []  # the columns that are compared, as the definition and the library have them
        copied = dict(zip(copied_indexes, schema.columns, strict=True))
        for index, sent_column in enumerate(table_map.columns):
            library_column, column = table.columns[index], copied.get(index)
            library_column.name = table_map.names[index]
            gap = ""
            if column is not None:  # else the column is not copied
                gap = gap_of_column(column, sent_column.charset) or _gap_of_members(sent_column, library_column)
            if column is not None and not gap:
                read.append((column, library_column))
                continue
            _pass_over(library_column)
            if column is not None:
                self.unread[schema.table][column.name] = gap
        require_types([column for column, _ in read], [library_column for _, library_column in read], where)
        return schema, table_map, table

    def values_of(
        self,
        values: Mapping[str, Any],
        sources: Mapping[str, str],
        schema: TableSchema,
        where: str,  # noqa: ARG002 - of the parent class
    ) -> tuple[Any, ...]:
        """The values of the columns that are read. LOST stands for a value that the library lost."""
        unread = self.unread.get(schema.table, {})
        lost_names = {name for name, source in sources.items() if source != NONE_SOURCE.NULL}
        return tuple(
            LOST if column.source_name in lost_names else values[column.source_name]
            for column in schema.columns
            if column.name not in unread
        )


def _understood(event: Event, *, described: bool) -> Event:
    """The TABLE_MAP event, with types of the same form in place of types that the library does not know.

    If `described`, the optional metadata that the library knows are kept; else none are kept.
    """
    data = event.data
    body = Cursor(data, _HEADER_BYTES + _POST_HEADER_BYTES)
    for _ in range(2):  # the names of database and table, each with a NUL
        body.take(body.number(1) + 1)
    count = body.packed()
    types_at = len(data) - body.left
    types = bytes(_SAME_FORM.get(type_, type_) for type_ in body.take(count))  # type: ignore[call-overload]
    body.take(body.packed())  # the descriptions of the types
    body.take((count + 7) // 8)  # which columns may be NULL
    parts = [data[:types_at], types, data[types_at + count : len(data) - body.left]]
    while described and body.left:
        begin = len(data) - body.left
        field = body.number(1)
        body.take(body.packed())
        if field <= _KNOWN_FIELDS:
            parts.append(data[begin : len(data) - body.left])
    return Event.from_data(b"".join(parts))


def _gap_of_members(sent: Sent, library_column: Any) -> str:
    """Why the library does not read an ENUM of these members exactly; '' if it does."""
    # the library puts '' before the members; it misreads members of more than 127 bytes
    is_misread = sent.type is FieldType.ENUM and tuple(library_column.enum_values[1:]) != sent.members
    return "members of more than 127 bytes" if is_misread else ""


def _pass_over(library_column: Any) -> None:
    """Let the library pass over the values of a column without an attempt to understand them."""
    if library_column.type in _DOCUMENTS:
        library_column.type = FIELD_TYPE.BLOB  # which is one of `_TEXTS`
    if library_column.type in _TEXTS:
        library_column.character_set_name = "binary"
    elif library_column.type == FIELD_TYPE.DATE:  # a number of three bytes, which may be no day
        library_column.type = FIELD_TYPE.INT24
