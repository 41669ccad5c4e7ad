"""Connections to the source, and what the server's errors mean to us."""

import random
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import CR, ER

from lakeingest.config import Source
from lakeingest.core.keys import quote
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import TableId
from lakeingest.errors import ChunkTooSlow, LakeIngestError, OperatorNeeded, PreflightFailed, SourceAway, SplitUnstable

DENIED = {
    ER.ACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    1698,  # no password for a user of the auth_socket plugin
}
_AWAY = {
    CR.CR_CONN_HOST_ERROR,
    CR.CR_CONNECTION_ERROR,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    CR.CR_UNKNOWN_HOST,
    ER.CON_COUNT_ERROR,
    ER.SERVER_SHUTDOWN,
    3169,  # the session was killed
    4031,  # it was idle for longer than the server waits
}
_DEFINITION_CHANGED = 1412
_INTERRUPTED = {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.QUERY_INTERRUPTED}
GREETING_SECONDS = 10  # to connect, and for each answer until the session is open
READ_SECONDS = 600  # for an answer: a query on a busy server, the next packet of a long result
FILE_START = 4  # the position of the first event of every binlog file
# The order and the text of values must not depend on the server's defaults. Autocommit is set here, too: the driver
# leaves it alone where the server's greeting says that it is on, which says nothing of the session. A connection may
# wait for a long merge, and the server for a slow reader.
_SESSION = (
    "SET time_zone = '+00:00', SESSION transaction_isolation = 'REPEATABLE-READ', sql_mode = '',"
    " /*!80030 SESSION show_gipk_in_create_table_and_information_schema = ON, */"
    " SESSION max_execution_time = 0, autocommit = 1, SESSION wait_timeout = 28800, SESSION net_write_timeout = 600"
)


@contextmanager
def connect(source: Source, *, stream: bool = False) -> Iterator[pymysql.Connection]:
    """An autocommitting connection with a pinned session (UTC, REPEATABLE READ, utf8mb4); closed at the end.

    Values come as text, undecoded from MySQL's own form. With `stream`, cursors do not buffer results. Errors of the
    server inside the block are raised as ours: SourceAway, SplitUnstable, OperatorNeeded.
    """
    with named_errors(source):
        connection = pymysql.connect(
            host=source.host,
            port=source.port,
            user=source.user,
            password=source.password.get_secret_value(),
            charset="utf8mb4",
            autocommit=True,
            conv={},
            connect_timeout=GREETING_SECONDS,
            cursorclass=pymysql.cursors.SSCursor if stream else pymysql.cursors.Cursor,
            defer_connect=True,
            **_tls(source),
        )
        try:
            reopen(connection)
            yield connection
        finally:
            if stream:  # close() would read an unfinished result to its end
                connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001
            else:
                connection.close()


def reopen(connection: pymysql.Connection) -> None:
    """Open a connection that is not open, or broke; its session is as `connect` promises."""
    driver: Any = connection  # which has no public way to a timeout of the greeting, nor to close what is broken
    driver._force_close()  # noqa: SLF001
    driver._read_timeout = GREETING_SECONDS  # noqa: SLF001
    connection.connect()
    driver._read_timeout = READ_SECONDS  # noqa: SLF001
    if is_mariadb(driver.get_server_info()):
        raise PreflightFailed(f"the source {driver.host}:{driver.port} is MariaDB, which is not built yet")
    query(connection, _SESSION)


def is_mariadb(greeting: str) -> bool:
    """Whether a server that greets with this version is MariaDB: it has other marks, GTIDs, events and settings."""
    return "mariadb" in greeting.lower()


def query(connection: pymysql.Connection, sql: str) -> list[tuple[Any, ...]]:
    """Run one statement; all rows, each value as MySQL's text."""
    with connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def query_dicts(connection: pymysql.Connection, sql: str) -> list[dict[str, Any]]:
    """Run one statement; all rows by lower-case column name."""
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(sql)
        return [{str(name).lower(): value for name, value in row.items()} for row in cursor.fetchall()]


def literal(text: str) -> str:
    """A string literal; NO_BACKSLASH_ESCAPES is not in our sql_mode."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def table_name(table: TableId) -> str:
    """A table's name in SQL."""
    return f"{quote(table.database)}.{quote(table.name)}"


def written_position(connection: pymysql.Connection) -> FilePosition:
    """The end of the binlog as written: it contains every transaction that any read view opened before can see."""
    row = binary_log_status(connection)
    return FilePosition(str(row["file"]), int(row["position"]))


def binary_log_status(connection: pymysql.Connection) -> dict[str, Any]:
    """`SHOW BINARY LOG STATUS`, or its name before 8.2; OperatorNeeded where there is no binlog."""
    try:
        rows = query_dicts(connection, "SHOW BINARY LOG STATUS")
    except pymysql.err.ProgrammingError:
        rows = query_dicts(connection, "SHOW MASTER STATUS")
    if not rows:
        raise OperatorNeeded("the source writes no binary log; start it with log_bin")
    return rows[0]


def file_sizes(connection: pymysql.Connection) -> dict[str, int]:
    """The bytes of each binlog file of the source, oldest first; those of the current one grow."""
    return {str(row["log_name"]): int(row["file_size"]) for row in query_dicts(connection, "SHOW BINARY LOGS")}


def free_server_id(connection: pymysql.Connection, source: Source) -> int:
    """A replication server id of the configured range that no replica uses now."""
    taken = {int(row["server_id"]) for row in query_dicts(connection, "SHOW REPLICAS")}
    taken |= {int(query(connection, "SELECT @@server_id")[0][0])}
    ids = source.server_id_range
    for _ in range(1000):
        chosen = random.choice(ids)  # noqa: S311 - spread, not secrecy
        if chosen not in taken:
            return chosen
    raise OperatorNeeded(f"source.server_ids {source.server_ids}: all are taken by replicas; widen the range")


@contextmanager
def named_errors(source: Source) -> Iterator[None]:
    """Raise the server's errors as ours, one line that names the server."""
    try:
        yield
    except pymysql.err.Error as error:  # a broken socket too is one of these
        raise _named(error, source) from error


def _named(error: Exception, source: Source) -> LakeIngestError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    where = f"{source.host}:{source.port}"
    if isinstance(getattr(error, "original_exception", error), ssl.SSLCertVerificationError):
        return OperatorNeeded(f"the source {where} shows a certificate that source.tls does not trust: {text}")
    if code in _AWAY or isinstance(error, pymysql.err.InterfaceError):
        return SourceAway(f"the source {where} is away: {text}; run the same command again when it is back")
    if code in DENIED:
        return OperatorNeeded(
            f"the source {where} refuses user {source.user}: {text}; "
            "it needs SELECT, REPLICATION SLAVE and REPLICATION CLIENT"
        )
    if code == ER.QUERY_TIMEOUT:
        return ChunkTooSlow(
            f"a chunk takes too long to read from {where}: {text}; set a smaller chunk_rows, or see what slows it down"
        )
    if code in _INTERRUPTED:
        return SplitUnstable(f"the source {where} interrupted a query: {text}; run the same command again")
    if code == _DEFINITION_CHANGED:
        return SplitUnstable(f"a table changed while it was read: {text}; run the same command again")
    return OperatorNeeded(f"the source {where} answers: {text} (error {code})")


def _tls(source: Source) -> dict[str, Any]:
    """PyMySQL's arguments for the TLS mode."""
    mode = source.tls_mode
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred":
        return {}
    try:
        context = ssl.create_default_context(cafile=source.tls.ca)
    except OSError as error:
        raise OperatorNeeded(f"source.tls.ca {source.tls.ca} cannot be read: {error.strerror or error}") from error
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}
