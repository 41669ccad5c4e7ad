"""Decodes row events into values by the library mysql-replication. No other module knows the library and its faults.

What the library is known to misread must raise an error here and never become a row. The library turns impossible dates
into None, returns strings as bytes and bytes as strings, and misreads long names and enum members.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pymysql.protocol import MysqlPacket
from pymysqlreplication import row_event
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from pymysqlreplication.packet import BinLogPacketWrapper

from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import SchemaChanged, UnsupportedEvent, UnsupportedValue
from lakeingest.mysql.wire.binding import bind_columns
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.events import Event, read_table_id
from lakeingest.mysql.wire.images import missing_columns, not_full_message
from lakeingest.mysql.wire.refusals import no_day
from lakeingest.mysql.wire.table_map import TableMap, read_table_map
from lakeingest.mysql.witness.values import PYTHON, require_readable

RowImage = tuple[RowKind, tuple[Any, ...]]  # the old or the new row of a change: its kind, its values in column order

# class of the library -> the row images of a change: the kind of each, and the prefix of its keys in the library's rows
_IMAGES: dict[type, tuple[tuple[RowKind, str], ...]] = {
    row_event.WriteRowsEvent: ((RowKind.INSERT, ""),),
    row_event.UpdateRowsEvent: ((RowKind.UPDATE_BEFORE, "before_"), (RowKind.UPDATE_AFTER, "after_")),
    row_event.DeleteRowsEvent: ((RowKind.DELETE, ""),),
}
_EVENTS = frozenset({row_event.TableMapEvent, *_IMAGES})
_KNOWN_MAX = 1000  # the number of different TABLE_MAP events that are remembered

# The types that a column of each kind can have in the binlog. An integer is a pair: its type, and 1 if unsigned, else 0
_INT32 = {(number, sign) for number in (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24) for sign in (0, 1)}
_TYPES: dict[Kind, frozenset[Any]] = {
    Kind.INT32: frozenset(_INT32 | {(FIELD_TYPE.LONG, 0)}),
    Kind.INT64: frozenset({(FIELD_TYPE.LONG, 1), (FIELD_TYPE.LONGLONG, 0)}),
    Kind.UINT64: frozenset({(FIELD_TYPE.LONGLONG, 1)}),
    Kind.DECIMAL: frozenset({FIELD_TYPE.NEWDECIMAL}),
    Kind.NUMERAL: frozenset({FIELD_TYPE.NEWDECIMAL}),
    Kind.FLOAT: frozenset({FIELD_TYPE.FLOAT}),
    Kind.DOUBLE: frozenset({FIELD_TYPE.DOUBLE}),
    Kind.DATE: frozenset({FIELD_TYPE.DATE}),
    Kind.DATETIME: frozenset({FIELD_TYPE.DATETIME2}),
    Kind.TIMESTAMP: frozenset({FIELD_TYPE.TIMESTAMP2}),
    Kind.STRING: frozenset({FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.BLOB, FIELD_TYPE.ENUM}),
    Kind.BINARY: frozenset({FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.BLOB}),
}


@dataclass(frozen=True, slots=True)
class _NoServer:
    """A substitute for the library's connection, so that it does not query a server for missing names."""

    charset: str = "utf8mb4"

    def _get_dbms(self) -> str:
        return "mysql"


class RowEvents:
    """Decodes the row events of the tables in `schemas`, transaction by transaction.

    The argument `where` of the methods names the transaction in messages.
    """

    def __init__(self, schemas: Mapping[TableId, TableSchema]) -> None:
        self.schemas = schemas
        # the tables of the transaction, by table id: the library's object, and what this module knows
        self._library_tables: dict[int, Any] = {}
        self._tables: dict[int, tuple[TableSchema, TableMap]] = {}
        # of all transactions, by the bytes of the TABLE_MAP event
        self._known: dict[bytes, tuple[TableSchema, TableMap, Any]] = {}

    def add_table(self, event: Event, where: str) -> None:
        """Add the table of a TABLE_MAP event to the transaction; the table must be in `schemas`.

        Raises:
            SchemaChanged: the event has other columns than the schema.
            UnsupportedValue: the library does not read every value of the columns exactly.
            UnsupportedEvent: the library cannot read the event, or misreads it.

        """
        # maps are remembered, because small transactions repeat them, and reading a map costs more than reading a row
        if event.payload not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[event.payload] = self.read_table(event, where)
        schema, table_map, library_table = self._known[event.payload]
        self._tables[table_map.id] = schema, table_map
        self._library_tables[table_map.id] = library_table

    def read_table(self, event: Event, where: str) -> tuple[TableSchema, TableMap, Any]:
        """The schema, the description and the library's table of a TABLE_MAP event.

        Raises the errors of `add_table` if the three do not agree.
        """
        sent = read_table_map(event)
        schema = self.schemas[sent.table]
        where = f"{schema.table} {where}"
        table_map, copied_indexes = bind_columns(sent, schema, where)  # now with names, also if the event has none
        _require_readable([table_map.columns[index] for index in copied_indexes], schema, where)
        library_table = self.library_event(event, where).table_obj
        if not sent.names:
            add_descriptions(library_table, table_map)
        require_types(schema.columns, [library_table.columns[index] for index in copied_indexes], where)
        _require_names(table_map, library_table.columns, where)
        return schema, table_map, library_table

    def row_images(self, event: Event, where: str) -> tuple[TableId, Iterator[RowImage]]:
        """The table of a row event, and its row images in order; an update has the old row, then the new row.

        Raises UnsupportedEvent if a row image lacks a copied column, UnsupportedValue for a value that cannot be copied
        exactly.
        """
        schema, table_map = self._tables[read_table_id(event)]
        return schema.table, self._row_images(event, schema, table_map, f"{schema.table} {where}")

    def forget(self) -> None:
        """Forget all tables, because a table id is valid only within its transaction."""
        self._library_tables.clear()
        self._tables.clear()

    def _row_images(self, event: Event, schema: TableSchema, table_map: TableMap, where: str) -> Iterator[RowImage]:
        """Yield the row images of a row event; raises the errors of `row_images`."""
        rows = self.library_event(event, where)
        missing_names = missing_columns(event.data, table_map.names)  # only skipped columns may be missing
        if rows.number_of_columns != len(table_map.names) or not missing_names <= set(schema.skipped):
            raise UnsupportedEvent(f"{where}: {not_full_message(schema, missing_names)}")
        images = [(kind, f"{prefix}values", f"{prefix}none_sources") for kind, prefix in _IMAGES[type(rows)]]
        for row in _decoded(lambda: rows.rows, where):  # the library decodes the rows only now
            for kind, values_key, sources_key in images:
                # the sources say, for each column with None, why the library returned None
                yield kind, self.values_of(row[values_key], row[sources_key], schema, where)
        if rows.packet.read_bytes != rows.event_size:  # bytes are left, or bytes after the event were read
            raise UnsupportedEvent(f"{where}: mysql-replication misread a row event; please report it")

    def values_of(
        self, values: Mapping[str, Any], sources: Mapping[str, str], schema: TableSchema, where: str
    ) -> tuple[Any, ...]:
        """The values of a row image in the order of the schema's columns, from the library's values by name.

        Raises UnsupportedValue if one of the library's `sources` says that None stands for a lost value.
        """
        if sources:
            _require_no_lost_value(sources, schema, where)
        return tuple(values[name] for name in schema.source_names)

    def library_event(self, event: Event, where: str) -> Any:
        """The library's object for a TABLE_MAP or row event. Raises UnsupportedEvent if the library cannot read it."""
        # The real checksum was checked and cut off. Four zero bytes replace it, because the library always takes the
        # last four bytes for a checksum. The size in the header (bytes 9 to 12) counts them.
        size = (len(event.data) + 4).to_bytes(4, "little")
        packet = MysqlPacket(b"\0" + event.data[:9] + size + event.data[13:] + bytes(4), "utf8mb4")
        wrapped = _decoded(
            lambda: BinLogPacketWrapper(
                packet,
                self._library_tables,
                _NoServer(),
                mysql_version=(0, 0, 0),
                use_checksum=True,
                allowed_events=_EVENTS,
                only_tables=None,
                ignored_tables=None,
                only_schemas=None,
                ignored_schemas=None,
                freeze_schema=False,
                ignore_decode_errors=False,
                verify_checksum=False,
                optional_meta_data=True,
                enable_logging=False,
            ),
            where,
        )
        if wrapped.event is None:
            raise UnsupportedEvent(f"{where}: mysql-replication skipped a row event; please report it")
        return wrapped.event


def _decoded(decode: Callable[[], Any], where: str) -> Any:
    """The result of `decode`, which calls the library. Errors become UnsupportedValue or UnsupportedEvent."""
    try:
        return decode()
    except ValueError as error:  # for example for bytes that are not valid in the column's charset
        raise UnsupportedValue(
            f"{where}: a value cannot be decoded ({error}); correct the row, then copy the table again"
        ) from error
    except Exception as error:
        raise UnsupportedEvent(
            f"{where}: mysql-replication cannot decode an event ({type(error).__name__}: {error}); leave the "
            "table out with tables.exclude"
        ) from error


def _require_readable(columns: Iterable[Sent], schema: TableSchema, where: str) -> None:
    """Raise UnsupportedValue if the library does not read every column exactly."""
    for column, sent in zip(schema.columns, columns, strict=True):
        try:
            # only strings have a charset; "ascii" is one that the library reads
            require_readable(column, sent.charset if column.kind is Kind.STRING else "ascii")
        except UnsupportedValue as error:
            raise UnsupportedValue(f"{where}: {error}") from error


def require_types(columns: Sequence[Column], library_columns: Sequence[Any], where: str) -> None:
    """Raise SchemaChanged if the library's columns do not have the types of the definition's `columns`."""
    for column, read in zip(columns, library_columns, strict=True):
        digits = (column.precision, column.scale)
        type_with_sign = (read.type, int(read.unsigned))  # as `_TYPES` has integers; it has other types alone
        has_type = read.type in _TYPES[column.kind] or type_with_sign in _TYPES[column.kind]
        is_decimal = PYTHON[column.kind] is Decimal
        if not has_type or (is_decimal and (read.precision, read.decimals) != digits):
            raise SchemaChanged(
                f"{where}: column {column.source_name} is not {column.source_type}; copy the table again"
            )


def add_descriptions(table: Any, table_map: TableMap) -> None:
    """Give the library's table the names and descriptions of columns, which its TABLE_MAP event does not have."""
    for column, name, sent in zip(table.columns, table_map.names, table_map.columns, strict=True):
        column.name, column.unsigned = name, sent.unsigned
        column.character_set_name = sent.charset
        if sent.type is FieldType.ENUM:
            column.enum_values = ["", *sent.members]
    table.column_name_flag = True


def _require_names(table_map: TableMap, columns: list[Any], where: str) -> None:
    """Raise UnsupportedEvent if the library has misread the names of columns or the members of enums."""
    names = tuple(read.name for read in columns)
    # [1:], because the library puts '' before the members
    members = tuple(tuple(read.enum_values[1:]) for read in columns if read.type == FIELD_TYPE.ENUM)
    expected = tuple(sent.members for sent in table_map.columns if sent.type is FieldType.ENUM)
    if (names, members) != (table_map.names, expected):
        raise UnsupportedEvent(
            f"{where}: mysql-replication misreads names and enum members of more than 127 bytes; leave "
            "the table out with tables.exclude"
        )


def _require_no_lost_value(sources: Mapping[str, str], schema: TableSchema, where: str) -> None:
    """Raise UnsupportedValue if the library returned None for a value that is not NULL: for an impossible date.

    `sources` says, by column, why the library returned None.
    """
    for column in schema.columns:
        if sources.get(column.source_name, NONE_SOURCE.NULL) != NONE_SOURCE.NULL:  # no entry: the value is not None
            raise UnsupportedValue(f"{where}: {no_day(column, 'a zero or partial date')}")
