"""What MySQL and MariaDB call the same things, and where they differ: one table, chosen by a server's greeting."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pymysql

_LOG_STATUS_RENAMED = (8, 2)
_ANY = 1000  # characters: more than any DOUBLE has


@dataclass(frozen=True, slots=True)
class Dialect:
    """A server's words for what we ask of it.

    `session` sets what `connection.connect` promises. `server` is the expression of who it is, `state` the question
    for that, gtid_mode, whether commits are in binlog order, and what is executed. `log_status` and the others of
    `SHOW` have the same columns everywhere. `capped_select` begins a SELECT that is given up after a while. `rights`
    are privileges beside SELECT, each with a statement that is denied without it.

    `shows_snapshots`: the status of a read view tells the exact place in the binlog that it stands at. `oldest` is the
    first version that can be a source, `logs_cascades` the first that may write what foreign keys change to its binlog.
    `double_widths`: how long the text of a DOUBLE is at most without an exponent, of a column and of an expression.
    """

    session: str
    server: str
    state: str
    log_status: str
    replicas: str
    capped_select: str
    rights: Mapping[str, str]
    shows_snapshots: bool
    oldest: tuple[int, ...]
    logs_cascades: tuple[int, ...] | None
    double_widths: tuple[int, int]


# The order and the text of values must not depend on the server's defaults. Autocommit is set here, too: the driver
# leaves it alone where the server's greeting says that it is on, which says nothing of the session. A connection may
# wait for a long merge, and the server for a slow reader.
_SESSION = (
    "SET time_zone = '+00:00', sql_mode = '', autocommit = 1,"
    " SESSION wait_timeout = 28800, SESSION net_write_timeout = 600,"
)

MYSQL = Dialect(
    # statistics expire, or the server answers of a table's size from a copy of up to a day ago
    session=f"{_SESSION} /*!80000 SESSION information_schema_stats_expiry = 0, */"
    " /*!80030 SESSION show_gipk_in_create_table_and_information_schema = ON, */"
    " SESSION transaction_isolation = 'REPEATABLE-READ', SESSION max_execution_time = 0",
    server="@@server_uuid",
    state="SELECT @@server_uuid, @@global.gtid_mode, @@global.binlog_order_commits, @@global.gtid_executed",
    log_status="SHOW BINARY LOG STATUS",
    replicas="SHOW REPLICAS",
    capped_select="SELECT /*+ MAX_EXECUTION_TIME({milliseconds}) */",
    rights={"REPLICATION CLIENT": "SHOW REPLICA STATUS", "REPLICATION SLAVE": "SHOW REPLICAS"},
    shows_snapshots=False,
    oldest=(8, 0, 22),  # full row metadata came with 8.0.1, CAST AS DOUBLE with 8.0.17, SHOW REPLICAS with 8.0.22
    logs_cascades=(9, 6),
    double_widths=(24, 22),
)

MARIADB = Dialect(
    session=f"{_SESSION} SESSION tx_isolation = 'REPEATABLE-READ', SESSION max_statement_time = 0",
    server="@@server_uid",
    state="SELECT @@server_uid, 'OFF', 'ON', ''",  # its GTIDs are no marks: they are taken when a commit is written
    log_status="SHOW MASTER STATUS",
    replicas="SHOW REPLICA HOSTS",
    capped_select="SET STATEMENT max_statement_time = {seconds} FOR SELECT",
    # and REPLICATION SLAVE, of which no statement tells
    rights={"BINLOG MONITOR": "SHOW MASTER STATUS", "REPLICA MONITOR": "SHOW REPLICA STATUS"},
    shows_snapshots=True,
    oldest=(10, 11, 9),  # since then a server says who it is
    logs_cascades=None,
    double_widths=(_ANY, _ANY),
)


def dialect(connection: pymysql.Connection) -> Dialect:
    """The words of the server at the other end."""
    wire: Any = connection  # the driver's own way is not typed
    return dialect_of(str(wire.get_server_info()))


def dialect_of(greeting: str) -> Dialect:
    """The words of a server that greets with this version."""
    if "mariadb" in greeting.lower():
        return MARIADB
    return MYSQL if version_of(greeting) >= _LOG_STATUS_RENAMED else replace(MYSQL, log_status=MARIADB.log_status)


def version_of(greeting: str) -> tuple[int, ...]:
    """The version's numbers, without what a distribution adds to them."""
    return tuple(int(part) for part in greeting.split("-", maxsplit=1)[0].split(".") if part.isdigit())
