"""Finds out, from row images in the binlog, whether the server logs generated columns.

Some versions of MariaDB leave all generated columns, stored or not, out of the row images of UPDATE, DELETE, REPLACE
and INSERT … ON DUPLICATE KEY UPDATE, even with binlog_row_image = FULL. The row images of a plain INSERT have these
columns. No variable tells whether a server leaves them out, and a trial would have to write to a table.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pymysql

from lakeingest.config import Source
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError
from lakeingest.mysql.binlog_reader import dump_events
from lakeingest.mysql.connection import connect, free_server_id, query, query_row, start_of_newest
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.schema_reader import GENERATED
from lakeingest.mysql.wire.collations import UnknownCharset
from lakeingest.mysql.wire.events import Damaged, Event, Type, has_checksums, read_table_id, read_table_name
from lakeingest.mysql.wire.images import LEAVE_OUT, missing_columns

BYTES = 32 << 20  # how much of the binlog is read: its last files, or the beginning of the newest file if it is larger
_VERSION = struct.Struct("<19x2x50s")  # of a FORMAT_DESCRIPTION event: the version that wrote the file
_INSERTS = frozenset({Type.WRITE_ROWS_V1, Type.WRITE_ROWS})
_CHANGES = _INSERTS | {Type.UPDATE_ROWS_V1, Type.DELETE_ROWS_V1, Type.UPDATE_ROWS, Type.DELETE_ROWS}


@dataclass(frozen=True)
class GeneratedColumns:
    """Checks whether the server of `connection` logs generated columns. The binlog is read once, for all checks."""

    source: Source
    connection: pymysql.Connection

    def checked(self, schemas: Iterable[TableSchema]) -> Checked:
        """The condition that row images in the binlog have the generated columns which are to be copied.

        If no row image shows whether this holds, the result is only a warning, because a run stops at the first row
        image without such a column.
        """
        name = "generated columns"
        affected = [schema for schema in schemas if schema.generated]
        if not affected or dialect(self.connection) is not MARIADB:  # only MariaDB leaves columns out
            return Checked(name, None)
        listed = "; ".join(
            f"{schema.table}: {', '.join(schema.column(name).source_name for name in schema.generated)}"
            for schema in affected
        )
        try:
            is_logged = self.is_logged
        except (LakeIngestError, pymysql.err.Error, Damaged) as error:
            return Checked(name, f"whether the server logs generated columns cannot be checked: {error.args[-1]}")
        if is_logged is None:
            unseen = "no UPDATE or DELETE in the binlog shows yet whether this server logs generated columns"
            stops = "a run stops at the first row image without them; to prevent that,"
            return Checked(name, f"{unseen} ({listed}); {stops} {LEAVE_OUT}", fatal=False)
        if is_logged:
            return Checked(name, None)
        return Checked(name, f"the server does not log generated columns of UPDATE and DELETE ({listed}); {LEAVE_OUT}")

    @cached_property
    def is_logged(self) -> bool | None:
        """What the function `is_logged` returns. It is called once."""
        return is_logged(self.source, self.connection)


def is_logged(source: Source, connection: pymysql.Connection) -> bool | None:
    """Whether the row images of UPDATE and DELETE have generated columns; None if no image in the binlog shows it.

    Files that another version of the server has written are left out. The result is False if one image lacks exactly
    the generated columns of its table. An image of INSERT with all columns proves nothing, because a plain INSERT
    always has them.
    """
    generated, layouts = _generated(connection)
    (version,) = query_row(connection, "SELECT @@version", 1)
    answer: bool | None = None
    # tables with generated columns, by table id: all columns, and the generated columns
    known: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}
    bytes_read = 0
    checksums = True
    is_of_version = False  # whether the present version of the server has written the file
    with connect(source) as fresh:
        for raw in dump_events(fresh, start_of_newest(connection, BYTES), free_server_id(connection, source)):
            event = Event.parse(raw, checksums=checksums)
            bytes_read += event.size
            if event.type == Type.FORMAT_DESCRIPTION:
                checksums = has_checksums(raw)
                # the event has at most 50 bytes of the version
                is_of_version = _VERSION.unpack_from(raw)[0].rstrip(b"\0") == str(version).encode()[:50]
            elif event.type == Type.TABLE_MAP:
                table_id, table = read_table_id(event), read_table_name(event)
                known.pop(table_id, None)  # the id may have been another table's
                if table in generated and is_of_version and (names := _names(event, layouts[table])):
                    known[table_id] = names, generated[table]
            elif event.type in _CHANGES and read_table_id(event) in known:
                names, generated_names = known[read_table_id(event)]
                missing_names = missing_columns(event.data, names)
                if missing_names and missing_names == generated_names:
                    return False
                if not missing_names and event.type not in _INSERTS:
                    answer = True  # unless a later image lacks its generated columns
            if bytes_read > BYTES:
                break
    return answer


def _generated(
    connection: pymysql.Connection,
) -> tuple[Mapping[TableId, frozenset[str]], Mapping[TableId, tuple[str, ...]]]:
    """Two mappings by table: its generated columns, and all its columns in order.

    They have all tables with generated columns, except tables that the user cannot see.
    """
    generated: dict[TableId, set[str]] = {}
    layouts: dict[TableId, list[str]] = {}
    sql = (
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, EXTRA FROM information_schema.COLUMNS ORDER BY ORDINAL_POSITION"
    )
    for database, table, column, extra in query(connection, sql):
        name = TableId(database, table)
        layouts.setdefault(name, []).append(column)
        if any(kind in str(extra).upper() for kind in GENERATED):
            generated.setdefault(name, set()).add(column)
    return (
        {name: frozenset(columns) for name, columns in generated.items()},
        {name: tuple(layouts[name]) for name in generated},
    )


def _names(event: Event, layout: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the columns in a TABLE_MAP event.

    If the event has no names, the result is `layout`, the table's present columns; or empty, if the event has another
    number of columns than `layout`. The result is also empty if the event cannot be read.
    """
    from lakeingest.mysql.wire.table_map import read_table_map  # here: it imports all decoders, and few servers need it

    try:
        table_map = read_table_map(event, is_mariadb=True)
    except (Damaged, UnknownCharset):  # for example for a type that is not supported yet
        return ()
    if table_map.names:
        return table_map.names
    return layout if len(layout) == len(table_map.columns) else ()
