"""Connections to the source. Errors of the source become errors of lakeingest."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import CR, ER

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, file_start
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import (
    ChunkTooSlow,
    LakeIngestError,
    OperatorNeeded,
    ProtocolBroken,
    SchemaChanged,
    Scope,
    SourceAway,
    SplitUnstable,
)
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.driver import GREETING_SECONDS, Driver
from lakeingest.mysql.packets import ANSWER_SECONDS, READ_SECONDS, Surprise, surprises
from lakeingest.mysql.session import pinned_columns, pins_of, require_pinned, setting

DENIED = {
    ER.ACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    1698,  # a user of the auth_socket plugin has no password
}
KILLED = {3169, 1927}  # a session was killed: MySQL's code and MariaDB's
_AWAY = {
    CR.CR_CONN_HOST_ERROR,
    CR.CR_CONNECTION_ERROR,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    CR.CR_UNKNOWN_HOST,
    ER.CON_COUNT_ERROR,
    ER.SERVER_SHUTDOWN,
    *KILLED,
    4031,  # the connection was idle for too long
}
_DEFINITION_CHANGED = 1412
_GONE = {ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR, ER.BAD_DB_ERROR}  # DDL dropped or renamed an object of the query
_TOO_SLOW = {ER.QUERY_TIMEOUT, 1969}  # MySQL's code and MariaDB's
_INTERRUPTED = {ER.LOCK_DEADLOCK, ER.QUERY_INTERRUPTED}
_RAISE = "; raise {} with SET GLOBAL, or where the service has its settings"
_LIMITS = {  # what to do if a statement reaches a limit of the server that a session cannot change
    ER.NET_PACKET_TOO_LARGE: _RAISE.format("max_allowed_packet"),
    4082: _RAISE.format("connection_memory_limit"),
    4081: _RAISE.format("global_connection_memory_limit"),
}
OPEN_VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_BESIDE = threading.Lock()  # so that a process has one connection of `beside` at a time


@contextmanager
def connect(source: Source, *, stream: bool = False) -> Iterator[pymysql.Connection]:
    """An autocommitting connection with a pinned session (`mysql.session`), closed at the end of the block.

    Values are the server's text, not converted. With `stream`, cursors do not buffer results. The server's errors
    inside the block become errors of lakeingest.

    Raises:
        SourceAway: the server cannot be reached, or the connection breaks.
        SplitUnstable: the server interrupted a query, or a table was locked, or it changed while it was read.
        SchemaChanged: a table or a column does not exist any more.
        ChunkTooSlow: a query reached its time limit.
        ProtocolBroken: the answers are not those of a server, or sessions are mixed.
        OperatorNeeded: the server refuses the user, the user lacks a right, or the server reports another error.

    """
    with named_errors(source):
        connection = Driver(
            source,
            charset="utf8mb4",
            autocommit=None,  # the session's pins set it; the driver cannot, because `conv` is empty
            conv={},  # no converters, so that values stay the server's text
            connect_timeout=GREETING_SECONDS,
            cursorclass=pymysql.cursors.SSCursor if stream else pymysql.cursors.Cursor,
            defer_connect=True,
        )
        try:
            reopen(connection)
            yield connection
        finally:
            if stream:  # close() would read an unfinished result to its end
                connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001
            else:
                connection.close()


@contextmanager
def beside(source: Source) -> Iterator[pymysql.Connection]:
    """A connection as from `connect`, for a short time beside the run's main connection.

    A process has one connection of `beside` at a time: a second caller waits until the first connection is closed. So
    within the block, the same thread must not open another one: it would wait for ever.
    """
    with _BESIDE, connect(source) as connection:
        yield connection


def reopen(connection: pymysql.Connection) -> None:
    """Open a closed or broken connection again, with the pinned session of `connect`."""
    driver: Any = connection  # the driver has no public way to close a broken connection
    driver._force_close()  # noqa: SLF001
    connection.connect()
    query(connection, setting(pins_of(driver.get_server_info())))
    driver.opened(READ_SECONDS)


@contextmanager
def answering_soon(connection: pymysql.Connection) -> Iterator[None]:
    """Inside the block, the server has ANSWER_SECONDS for each response: for questions that it answers at once.

    So a server that hangs is noticed soon. Outside the block it has READ_SECONDS, because a query may take long.
    """
    driver: Any = connection
    driver.opened(ANSWER_SECONDS)  # the session is open already: this only sets the seconds
    try:
        yield
    finally:
        driver.opened(READ_SECONDS)


def server_of(connection: pymysql.Connection) -> str:
    """The id of the connection's server. Raises OperatorNeeded if the session has lost a pinned value."""
    driver: Any = connection  # the method has no types
    pins = pins_of(driver.get_server_info())
    pinned = pinned_columns(pins)
    uuid, *values = query_row(connection, f"SELECT {', '.join([dialect(connection).server, *pinned])}", 1 + len(pinned))
    require_pinned(pins, values)
    return str(uuid)


def query(connection: pymysql.Connection, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement; return all rows, each value as the server's text, None for NULL."""
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute(sql)
        _require_result(cursor, sql)
        return list(cursor.fetchall())


def query_named(connection: pymysql.Connection, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run a statement; return the lower-case names of the columns, and all rows."""
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute(sql)
        _require_result(cursor, sql)
        return tuple(str(column[0]).lower() for column in cursor.description or ()), list(cursor.fetchall())


def query_dicts(connection: pymysql.Connection, sql: str) -> list[dict[str, Any]]:
    """Run a statement; return all rows as dicts by lower-case column name."""
    names, rows = query_named(connection, sql)
    return [dict(zip(names, row, strict=True)) for row in rows]


def query_row(connection: pymysql.Connection, sql: str, columns: int) -> tuple[Any, ...]:
    """Run a statement; return its one row of `columns` values. Raises Surprise if the result has another shape."""
    rows = query(connection, sql)
    if len(rows) != 1 or len(rows[0]) != columns:
        raise Surprise(f"{len(rows)} rows where one of {columns} columns was asked for")
    return rows[0]


@surprises("an answer to a question")
def create_statement(connection: pymysql.Connection, table: TableId) -> str:
    """The text of SHOW CREATE TABLE. Bytes that are not UTF-8, as in MariaDB's binary defaults, become surrogates."""
    connection.use_unicode = False  # so that the driver returns bytes
    try:
        text = query(connection, f"SHOW CREATE TABLE {table_name(table)}")[0][1]  # the first column is the table's name
    finally:
        connection.use_unicode = True
    return bytes(text).decode(errors="surrogateescape")


def _require_result(cursor: Any, sql: str) -> None:
    """Raise Surprise if the server answers a SELECT or SHOW without a result."""
    if cursor.description is None and sql.startswith(("SELECT", "SHOW")):
        raise Surprise("no result to a question")


def literal(text: str) -> str:
    """A string literal in SQL. Backslashes are escaped, because our sql_mode is without NO_BACKSLASH_ESCAPES."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def table_name(table: TableId) -> str:
    """A table's name in SQL."""
    return f"{quote(table.database)}.{quote(table.name)}"


@surprises("an answer to a question")
def written_position(connection: pymysql.Connection) -> FilePosition:
    """The written position: it contains every transaction that is in a read view which is open already.

    On MariaDB it is the position of a read view that is opened now: the end of the finished commits. So on MariaDB the
    connection must have no open transaction.
    """
    if not dialect(connection).has_snapshot_position:  # MySQL
        row = binary_log_status(connection)
        return FilePosition(str(row["file"]), int(row["position"]))
    query(connection, OPEN_VIEW)
    try:
        return snapshot_position(connection)
    finally:
        query(connection, "COMMIT")


@surprises("an answer to a question")
def snapshot_position(connection: pymysql.Connection) -> FilePosition:
    """The exact position of the connection's read view in the binlog, which only MariaDB reports."""
    status = {str(name).lower(): value for name, value in query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
    return FilePosition(str(status["binlog_snapshot_file"]), int(status["binlog_snapshot_position"]))


def binary_log_status(connection: pymysql.Connection) -> dict[str, Any]:
    """The binlog's status, as the server shows it. Raises OperatorNeeded if the server writes no binlog."""
    rows = query_dicts(connection, dialect(connection).log_status)
    if not rows:
        raise OperatorNeeded("the source writes no binary log; start it with log_bin")
    return rows[0]


@surprises("an answer to a question")
def clock(connection: pymysql.Connection) -> int:
    """The server's time, in seconds since 1970."""
    return int(query_row(connection, "SELECT UNIX_TIMESTAMP()", 1)[0])


@surprises("an answer to a question")
def file_sizes(connection: pymysql.Connection) -> dict[str, int]:
    """The size in bytes of each binlog file of the source, oldest first; the current file grows."""
    return {str(row["log_name"]): int(row["file_size"]) for row in query_dicts(connection, "SHOW BINARY LOGS")}


@surprises("an answer to a question")
def start_of_newest(connection: pymysql.Connection, most: int) -> FilePosition:
    """The start of the oldest binlog file that has, together with all later files, at most `most` bytes.

    If even the newest file is larger, the result is the start of the newest file.
    """
    sizes = file_sizes(connection)
    newest, *older = reversed(sizes)
    oldest_that_fits, bytes_left = newest, most - sizes[newest]
    for file in older:
        bytes_left -= sizes[file]
        if bytes_left < 0:
            break
        oldest_that_fits = file
    return file_start(oldest_that_fits)


def source_of(connection: pymysql.Connection) -> Source:
    """The source to which `connect` has opened this connection. Raises TypeError for any other connection."""
    if not isinstance(connection, Driver):
        raise TypeError("not a connection of `connect`")
    return connection.source


@surprises("an answer to a question")
def free_server_id(connection: pymysql.Connection, source: Source, *others: int) -> int:
    """A server id of the configured range that no replica uses now, as far as the user can see replicas.

    The id is not in `others` either: these are ids of our own readers, which the server does not list. Raises
    OperatorNeeded if no free id is found.
    """
    taken = {int(query_row(connection, "SELECT @@global.server_id", 1)[0]), *others}
    try:
        taken |= {int(row["server_id"]) for row in query_dicts(connection, dialect(connection).replicas)}
    except pymysql.err.OperationalError as error:
        if error.args[0] not in DENIED:  # MariaDB reports replicas only with REPLICATION MASTER ADMIN
            raise
    ids = source.server_id_range
    for _ in range(1000):  # tries at random, because the range may be too large to list
        chosen = random.choice(ids)  # noqa: S311 - so that readers rarely choose the same id, not for secrecy
        if chosen not in taken:
            return chosen
    raise OperatorNeeded(f"source.server_ids {source.server_ids}: all are taken by replicas; widen the range")


@contextmanager
def named_errors(source: Source) -> Iterator[None]:
    """Turn the server's errors inside the block into errors of lakeingest, whose message names the server."""
    try:
        yield
    except pymysql.err.Error as error:  # the driver raises it for a broken socket, too
        raise _source_error(error, source) from error


def _source_error(error: Exception, source: Source) -> LakeIngestError:
    """The lakeingest error for an error of the driver or the server; its message names the server and the way out."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    where = f"{source.host}:{source.port}"
    # an InternalError without a code is a Surprise, or the driver's own error for a packet out of order
    if code == CR.CR_COMMANDS_OUT_OF_SYNC or (isinstance(error, pymysql.err.InternalError) and not code):
        return ProtocolBroken(
            f"what answers at {where} sends {text}: correct source.host and source.port, or find out what is between"
        )
    if code in _AWAY or isinstance(error, pymysql.err.InterfaceError):
        return SourceAway(f"the source {where} is away: {text}; run the same command again when it is back")
    if code == ER.ACCESS_DENIED_ERROR:
        has_password = source.password is not None and source.password.get_secret_value()
        fix = (
            "correct source.user and source.password, or the account's host in the server"
            if has_password
            else "no password was given; set MYSQL_PASSWORD or source.password"
        )
        return OperatorNeeded(f"the source {where} refuses user {source.user}: {text}; {fix}")
    if code in DENIED:
        denied = OperatorNeeded(
            f"the source {where} refuses user {source.user}: {text}; "
            "it needs SELECT, REPLICATION SLAVE and REPLICATION CLIENT; on MariaDB, BINLOG MONITOR and REPLICA MONITOR"
        )
        is_of_table = code in {ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR}
        denied.scope = Scope.TABLE if is_of_table else Scope.PIPELINE
        return denied
    if code in _TOO_SLOW:
        return ChunkTooSlow(
            f"a chunk takes too long to read from {where}: {text}; set a smaller chunk_rows, or find out"
            " what slows it down"
        )
    if code == ER.LOCK_WAIT_TIMEOUT:
        return SplitUnstable(f"other sessions of {where} keep a table locked, as DDL does; run the same command again")
    if code in _INTERRUPTED:
        return SplitUnstable(f"the source {where} interrupted a query: {text}; run the same command again")
    if code == _DEFINITION_CHANGED:
        return SplitUnstable(f"a table changed while it was read: {text}; run the same command again")
    if code in _GONE:
        return SchemaChanged(
            f"the source {where} has no such table or column: {text}; if DDL changed it, run the same command again"
        )
    return OperatorNeeded(f"the source {where} reports an error: {text} (error {code}){_LIMITS.get(code, '')}")
