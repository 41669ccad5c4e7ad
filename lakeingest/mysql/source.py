"""Asks the source in SQL: for definitions, keys, settings, and the end of its binlog.

`binlog_source.BinlogSource` extends `Source` and reads the binlog as well. `Source` is apart from it, because a module
that decodes rows takes a second to import.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import pymysql
from pymysql.constants import ER

from lakeingest.config import Source as Settings
from lakeingest.core.binlog.position import FilePosition, Position, is_before
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import USUAL, Choices, TableId, TableSchema
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql import connection as connections
from lakeingest.mysql import key_space, schema_reader
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.driver import GREETING_SECONDS
from lakeingest.mysql.load import LoadMeter
from lakeingest.mysql.preflight.foreign_key_rules import parents_of
from lakeingest.mysql.preflight.foreign_keys import Unlogged, unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.rights import account_of, grant_select, has_patterns
from lakeingest.mysql.text_classes import text_classes
from lakeingest.mysql.visibility import is_hidden

_HIDDEN = {*connections.DENIED, ER.PROCACCESS_DENIED_ERROR, ER.SP_DOES_NOT_EXIST}


class Source:
    """A server, over one connection. `reopen` opens the same connection again after it broke.

    Besides the errors of their docstrings, all methods raise the driver's errors. At the end of the block of `open` or
    `named_errors`, these become the errors of `connection.connect`, which methods that open a connection raise at once.
    If the server hangs, a question that servers answer at once is given up after a minute, any other question after ten
    minutes.
    """

    CONNECT_SECONDS = GREETING_SECONDS  # the longest time in which a connection opens

    def __init__(self, settings: Settings, connection: pymysql.Connection) -> None:
        self.settings, self.connection = settings, connection

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator[Self]:
        """The source, over a connection that is open until the end of the block."""
        with connections.connect(settings) as connection:
            yield cls(settings, connection)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """The same server on another connection, for a short time. Another thread can use that connection."""
        with connections.beside(self.settings) as connection:
            yield type(self)(self.settings, connection)

    def reopen(self) -> None:
        """Connect again, after the connection broke."""
        connections.reopen(self.connection)

    def named_errors(self) -> AbstractContextManager[None]:
        """Turn the server's errors inside the block into errors of lakeingest."""
        return connections.named_errors(self.settings)

    # The end of the binlog

    def written(self) -> FilePosition:
        """The written position (`connection.written_position`)."""
        with connections.answering_soon(self.connection):
            return connections.written_position(self.connection)

    def files(self) -> dict[str, int]:
        """The size in bytes of each binlog file, oldest first; the current file grows."""
        with connections.answering_soon(self.connection):
            return connections.file_sizes(self.connection)

    def has_exact_lows(self) -> bool:
        """Whether low watermarks are exact positions of read views.

        If they are, no low watermark is before a position that was read earlier.
        """
        return dialect(self.connection).has_snapshot_position

    def reads_from_file_start(self, position: Position) -> bool:
        """Whether low watermarks are starts of binlog files.

        That is the case if the server does not report the positions of read views, and has no GTIDs. `position` is any
        position of this server: it has GTIDs if the server has GTIDs.
        """
        return position.gtids is None and not self.has_exact_lows()

    def has_low_at_file_start(self, position: Position) -> bool:
        """Whether a low watermark that is read from now on may be before the position.

        That is the case if low watermarks are starts of binlog files, while the position is in the current file.
        """
        if not self.reads_from_file_start(position):
            return False
        return not is_before(position.at, self.written().start_of_file)

    # The server

    def uuid(self) -> str:
        """The server's identity."""
        with connections.answering_soon(self.connection):
            return str(connections.query_row(self.connection, f"SELECT {dialect(self.connection).server}", 1)[0])

    @property
    def greeting(self) -> str:
        """The server's version, as its greeting has it."""
        wire: Any = self.connection  # the driver's method has no types
        return str(wire.get_server_info())

    @property
    def double_widths(self) -> tuple[int, int]:
        """The greatest lengths of a DOUBLE's text without an exponent: as a column, and as an expression."""
        return dialect(self.connection).double_widths

    def clock(self) -> int:
        """The server's time, in seconds since 1970."""
        with connections.answering_soon(self.connection):
            return connections.clock(self.connection)

    def load_meter(self, limit: Load) -> LoadMeter:
        """The meter for those parts of the load that `limit` limits."""
        return LoadMeter(self.settings, limit)

    def retention_seconds(self) -> int | None:
        """The age at which the server purges binlog files; None if it never purges them on its own."""
        with connections.answering_soon(self.connection):
            return Server.with_retention(self.connection).retention_seconds

    def shown_retention_seconds(self) -> int | None:
        """`retention_seconds`, or None if the server hides it from our user, as managed services may do."""
        try:
            return self.retention_seconds()
        except pymysql.err.Error as error:
            if error.args[0] not in _HIDDEN:
                raise
        return None

    def names_columns(self) -> bool:
        """Whether the rows that the server writes to its binlog now name their columns."""
        with connections.answering_soon(self.connection):
            (metadata,) = connections.query_row(self.connection, "SELECT @@global.binlog_row_metadata", 1)
        return str(metadata).upper() == "FULL"

    # Tables

    def tables(self) -> list[TableId]:
        """Every table that the user is allowed to see, without the server's system tables."""
        return schema_reader.list_tables(self.connection)

    @staticmethod
    def is_system(table: TableId) -> bool:
        """Whether the table is a system table of the server."""
        return schema_reader.is_system(table)

    def schema(self, table: TableId, choices: Choices = USUAL) -> TableSchema:
        """The definition of a table (`schema_reader.read_schema`)."""
        return schema_reader.read_schema(self.connection, table, choices)

    def stable_schema(self, table: TableId, choices: Choices = USUAL) -> TableSchema:
        """The definition of a table, under its metadata lock (`schema_reader.read_stable_schema`)."""
        return schema_reader.read_stable_schema(self.connection, table, choices)

    def schemas(self, tables: Mapping[TableId, Choices]) -> Mapping[TableId, TableSchema | OperatorNeeded]:
        """The definition of each table, or why it is refused (`schema_reader.read_schemas`)."""
        return schema_reader.read_schemas(self.connection, tables)

    def unlogged_keys(self, tables: Iterable[TableId], *, are_logged: bool) -> Unlogged:
        """The foreign keys that change rows of these tables outside the binlog (`foreign_keys.unlogged_keys`)."""
        return unlogged_keys(Server.with_foreign_keys(self.connection), tables, are_logged=are_logged)

    def parents(self, tables: Collection[TableId]) -> Mapping[TableId, frozenset[TableId]]:
        """The tables to which these tables refer by foreign keys, as far as the server shows the keys."""
        return parents_of(Server.with_foreign_keys(self.connection), tables)

    def is_hidden(self, table: TableId) -> bool:
        """True if the user is not allowed to read the whole table (`visibility.is_hidden`)."""
        return is_hidden(self.connection, table)

    def missing_right(self, table: TableId) -> tuple[str, str]:
        """The user's account, and the GRANT statement with which it can read the table."""
        account = account_of(self.connection)
        patterns = has_patterns(self.connection)
        return account, grant_select(account, table.database, names_are_patterns=patterns)

    def refusal_of(self, schema: TableSchema, condition: str) -> str | None:
        """The server's reason why it cannot evaluate an SQL condition on the table's rows; None if the server can."""
        try:
            connections.query(
                self.connection, f"SELECT 1 FROM {connections.table_name(schema.table)} WHERE ({condition}) LIMIT 0"
            )
        except (pymysql.err.ProgrammingError, pymysql.err.OperationalError, pymysql.err.NotSupportedError) as error:
            code, *text = error.args
            # errors from 2000 on are about the connection, not about the condition
            if isinstance(error, pymysql.err.OperationalError) and code in range(2000, 3000):
                raise
            return " ".join(map(str, text))
        return None

    # Keys

    def estimated_rows(self, schema: TableSchema, keys: KeyRange = EVERY_KEY) -> int:
        """The optimizer's estimate of the number of rows with these keys."""
        return key_space.estimated_rows(self.connection, schema, keys)

    def estimated_bytes(self, schema: TableSchema) -> int:
        """The server's estimate of the size of the rows on its disk, in bytes."""
        return key_space.estimated_bytes(self.connection, schema)

    def key_bounds(self, schema: TableSchema, keys: KeyRange) -> tuple[int, int] | None:
        """The least and the greatest key (`key_space.key_bounds`)."""
        return key_space.key_bounds(self.connection, schema, keys)

    def next_boundary(self, schema: TableSchema, lower: Key | None, rows: int, upper: Key | None = None) -> Key | None:
        """The upper key of a chunk of `rows` rows (`key_space.next_boundary`)."""
        return key_space.next_boundary(self.connection, schema, lower, rows, upper)

    def text_classes(self, collation: str, texts: Collection[str]) -> dict[str, str]:
        """The class of each text. Texts of different classes are never equal on the server (`text_classes`)."""
        return text_classes(self.connection, collation, texts)
