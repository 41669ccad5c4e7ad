"""The statements, variables and facts in which MySQL and MariaDB differ. The server's greeting chooses among them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pymysql

_LOG_STATUS_RENAMED = (8, 2)
# The XOR of 8 of the 16 bytes of `hash`, from byte {} on: MariaDB's BIT_XOR takes only integers
_XOR_OF_HALF = "LPAD(HEX(BIT_XOR(CAST(CONV(HEX(SUBSTR(hash, {}, 8)), 16, 10) AS UNSIGNED))), 16, '0')"
_ANY = 1000  # more characters than the text of any DOUBLE has: the length has no limit


@dataclass(frozen=True, slots=True)
class Dialect:
    """The statements and facts of a server.

    `server`: the SQL expression of the server's id.
    `state`: the query for the id, gtid_mode, binlog_order_commits and gtid_executed.
    `log_status`, `replicas`: statements whose results have the same columns on every server.
    `capped_select`: the beginning of a SELECT with a time limit.
    `rights`: the privileges that are needed besides SELECT, each with a statement that is denied without the privilege.
    `more_rights`: needed privileges that no statement checks.
    `hides_rules`: information_schema shows no REFERENTIAL_CONSTRAINTS to a user who has only SELECT on the table.
    `has_snapshot_position`: the server reports the exact position of a read view in the binlog.
    `oldest`: the first version that can be a source.
    `xa_since`: the first version whose XA transactions can be copied.
    `is_xa_late`: a read view may lack an XA COMMIT that is before the view's position in the binlog. XA RECOVER, which
    needs no right, lists the transaction until new views contain it.
    `logs_cascades`: the first version that can log changes by foreign keys; None if no version can.
    `double_widths`: the greatest lengths of a DOUBLE's text without an exponent: as a column, and as an expression.
    `weight`: the SQL expression for a text's sort weight; {} stands for the text. On MariaDB the weight leaves out
    accents and case, because their weights depend on spaces at the end.
    `xor`: the SQL expression for the hexadecimal digits of the XOR of all values of `hash`, which have 16 bytes.
    `computes_once`: what a subquery ends with so that its expressions are computed once for each row.
    """

    server: str
    state: str
    log_status: str
    replicas: str
    capped_select: str
    rights: Mapping[str, str]
    more_rights: tuple[str, ...]
    hides_rules: bool
    has_snapshot_position: bool
    oldest: tuple[int, ...]
    xa_since: tuple[int, ...]
    is_xa_late: bool
    logs_cascades: tuple[int, ...] | None
    double_widths: tuple[int, int]
    weight: str
    xor: str
    computes_once: str


MYSQL = Dialect(
    server="@@server_uuid",
    state="SELECT @@server_uuid, @@global.gtid_mode, @@global.binlog_order_commits, @@global.gtid_executed",
    log_status="SHOW BINARY LOG STATUS",
    replicas="SHOW REPLICAS",
    capped_select="SELECT /*+ MAX_EXECUTION_TIME({milliseconds}) */",
    rights={"REPLICATION CLIENT": "SHOW REPLICA STATUS", "REPLICATION SLAVE": "SHOW REPLICAS"},
    more_rights=(),
    hides_rules=False,
    has_snapshot_position=False,
    oldest=(8, 0, 22),  # full row metadata came with 8.0.1, CAST AS DOUBLE with 8.0.17, SHOW REPLICAS with 8.0.22
    logs_cascades=(9, 6),
    xa_since=(8, 0, 30),  # XA COMMIT and the binlog became one step
    is_xa_late=False,
    double_widths=(24, 22),
    weight="WEIGHT_STRING({})",
    xor="HEX(BIT_XOR(hash))",
    computes_once="",  # `xor` has the hash only once, so a temporary table would only take time
)

MARIADB = Dialect(
    server="@@server_uid",
    # constants in place of the GTIDs: they cannot be watermarks, because they are assigned when a commit is written
    state="SELECT @@server_uid, 'OFF', 'ON', ''",
    log_status="SHOW MASTER STATUS",
    replicas="SHOW REPLICA HOSTS",
    capped_select="SET STATEMENT max_statement_time = {seconds} FOR SELECT",
    rights={"BINLOG MONITOR": "SHOW MASTER STATUS", "REPLICA MONITOR": "SHOW REPLICA STATUS"},
    more_rights=("REPLICATION SLAVE",),
    hides_rules=True,
    has_snapshot_position=True,
    oldest=(10, 11, 9),  # the first version with server_uid
    logs_cascades=None,
    xa_since=(),  # all versions that can be a source
    is_xa_late=True,  # it writes XA COMMIT to the binlog first (measured, and read in its source)
    double_widths=(_ANY, _ANY),
    weight="WEIGHT_STRING({} LEVEL 1)",
    xor=f"CONCAT({', '.join(_XOR_OF_HALF.format(first) for first in (1, 9))})",
    computes_once=" LIMIT 18446744073709551615",  # no limit, but it makes a temporary table: `xor` has the hash twice
)


def dialect(connection: pymysql.Connection) -> Dialect:
    """The dialect of the connection's server."""
    wire: Any = connection  # the driver's method has no types
    return dialect_of(str(wire.get_server_info()))


def dialect_of(greeting: str) -> Dialect:
    """The dialect of a server with this version in its greeting."""
    if "mariadb" in greeting.lower():
        return MARIADB
    if version_of(greeting) >= _LOG_STATUS_RENAMED:
        return MYSQL
    return replace(MYSQL, log_status=MARIADB.log_status)  # the old name, which MariaDB has kept


def copies_xa(connection: pymysql.Connection) -> bool:
    """Whether XA transactions of the connection's server can be copied."""
    wire: Any = connection  # the driver's method has no types
    greeting = str(wire.get_server_info())
    return version_of(greeting) >= dialect_of(greeting).xa_since


def can_log_cascades(connection: pymysql.Connection) -> bool:
    """Whether the server's version can log changes by foreign keys. Whether it logs them also depends on a variable."""
    wire: Any = connection  # the driver's method has no types
    greeting = str(wire.get_server_info())
    since = dialect_of(greeting).logs_cascades
    return since is not None and version_of(greeting) >= since


def version_of(greeting: str) -> tuple[int, ...]:
    """The numbers of a version, without the suffix of a distribution. Parts that are not numbers are left out."""
    parts = greeting.split("-", maxsplit=1)[0].split(".")
    return tuple(int(part) for part in parts if re.fullmatch("[0-9]{1,9}", part))
