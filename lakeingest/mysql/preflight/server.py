"""Preflight of the server: the conditions for exact copies, one function each. A check asks for all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pymysql

from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError, OperatorNeeded
from lakeingest.mysql.connection import binary_log_status, query, query_dicts, server_of
from lakeingest.mysql.dialect import MARIADB, Dialect, copies_xa, dialect, version_of
from lakeingest.mysql.preflight.service import AURORA, Service, service_of

DAY_SECONDS = 86_400
# The variables that `retention_seconds` and `service` read
RETENTION_VARIABLES = (
    "aurora_version",
    "basedir",
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "version",
    "version_comment",
)
NATIVE_FOREIGN_KEYS = "innodb_native_foreign_keys"  # whether foreign keys are InnoDB's, whose changes are not logged
LEAST_PACKET = 64 << 10  # bytes: enough for boundaries of the longest keys; the servers' default is 16 MiB or more


@dataclass(frozen=True, slots=True)
class Server:
    """A server whose conditions are checked: its variables by lower-case name, and the tables to be copied."""

    connection: pymysql.Connection
    variables: Mapping[str, str]
    tables: tuple[TableId, ...]

    @classmethod
    def of(cls, connection: pymysql.Connection, tables: Iterable[TableId] = ()) -> Self:
        """The server of a connection, with its current variables."""
        return cls(connection, _variables(connection, "SHOW GLOBAL VARIABLES"), tuple(tables))

    @classmethod
    def with_retention(cls, connection: pymysql.Connection) -> Self:
        """The server of a connection, with only RETENTION_VARIABLES, because a server has hundreds of variables."""
        return cls(connection, _variables(connection, _some(RETENTION_VARIABLES)), ())

    @classmethod
    def with_foreign_keys(cls, connection: pymysql.Connection) -> Self:
        """The server of a connection, with only the variable on which foreign keys depend."""
        return cls(connection, _variables(connection, _some((NATIVE_FOREIGN_KEYS,))), ())

    def with_tables(self, tables: Iterable[TableId]) -> Self:
        """The same server, with these tables to be copied."""
        return replace(self, tables=tuple(tables))

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers of the server's version."""
        return version_of(self.variables["version"])

    @property
    def dialect(self) -> Dialect:
        """The dialect of the server."""
        return dialect(self.connection)

    @property
    def service(self) -> Service:
        """The managed service that the server belongs to; OWN without one."""
        return service_of(self.variables)

    @property
    def retention_seconds(self) -> int | None:
        """The age at which the server purges binlog files; None if it never purges them on its own."""
        if self.service.by_procedure:  # it purges files by its own setting, whatever the variables say
            rows = query_dicts(self.connection, "CALL mysql.rds_show_configuration")
            settings = {str(row["name"]): row["value"] for row in rows}
            return round(float(settings.get("binlog retention hours") or 0) * 3600)
        if not self.is_on("binlog_expire_logs_auto_purge", "ON"):
            return None
        seconds = int(self.variables.get("binlog_expire_logs_seconds", "0"))
        days = float(self.variables.get("expire_logs_days", "0"))  # before 8.4
        age_seconds = seconds or round(days * DAY_SECONDS)
        keeps_all = age_seconds == 0 and self.service.zero_keeps
        return None if keeps_all else age_seconds

    def is_on(self, name: str, default: str = "OFF") -> bool:
        """Whether a boolean variable is on. If the server does not have the variable, `default` is its value."""
        return self.variables.get(name, default).upper() in {"ON", "1", "YES"}


def _some(names: Iterable[str]) -> str:
    """The statement that shows the global variables of these names."""
    listed = ", ".join(f"'{name}'" for name in names)
    return f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})"


def _variables(connection: pymysql.Connection, statement: str) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in query(connection, statement)}


Finding = str | None  # the fault and its fix; None if the condition is met
Condition = Callable[[Server], Finding]  # its docstring says when there is a finding


def ask(server: Server, conditions: Mapping[str, Condition]) -> tuple[Checked, ...]:
    """The result of each condition. A condition that cannot be checked counts as not met."""
    return tuple(Checked(name, _finding(name, condition, server)) for name, condition in conditions.items())


def _finding(name: str, condition: Condition, server: Server) -> Finding:
    """The finding of the condition; if the condition cannot be checked, a finding that says so."""
    try:
        return condition(server)
    except (LakeIngestError, pymysql.err.Error) as error:
        return f"{name} cannot be checked: {error.args[-1]}"  # [-1]: the text; before it, the driver has a number


def version(server: Server) -> Finding:
    """A finding if the server's version lacks features that lakeingest needs."""
    if server.version >= server.dialect.oldest:
        return None
    oldest = ".".join(map(str, server.dialect.oldest))
    return f"its version {server.variables['version']} is older than {oldest}; upgrade, or copy from a newer replica"


def galera(server: Server) -> Finding:
    """A finding if the server is a node of Galera, where commits can get lost and each node has its own binlog."""
    # the provider is checked as well, because Percona's servers do not show wsrep_on among global variables
    provider = server.variables.get("wsrep_provider", "none")
    if not server.is_on("wsrep_on") and provider in {"", "none"}:
        return None
    shown = "wsrep_on is ON" if server.is_on("wsrep_on") else f"wsrep_provider is {provider}"
    return (
        f"{shown}: it is a node of Galera, which may lose transactions after their commit, and whose nodes have binlogs"
        " of their own; copy from an asynchronous replica of the cluster"
    )


def binlog(server: Server) -> Finding:
    """A finding if the server does not write a binlog of all databases."""
    if not server.is_on("log_bin"):
        return f"log_bin is OFF; {server.service.log}"
    status = binary_log_status(server.connection)
    filters = [name for name in ("binlog_do_db", "binlog_ignore_db") if status.get(name)]
    return f"{' and '.join(filters)} leave changes out of the binlog; remove them" if filters else None


def setting(name: str, required: str) -> Condition:
    """The condition that a variable has the required value. It is also met if the server does not have the variable."""

    def finding(server: Server) -> Finding:
        """A finding if the variable has another value."""
        value = server.variables.get(name, required).upper()
        return None if value == required else f"{name} is '{value}'; {server.service.fix(name, required)}"

    return finding


def session(server: Server) -> Finding:
    """A finding if the session has lost a pinned value, or if max_allowed_packet is too low.

    max_allowed_packet is not a pinned value, because a session cannot set it.
    """
    try:
        server_of(server.connection)  # raises an error if a pinned value was lost
    except OperatorNeeded as error:
        return str(error)
    packet_bytes = int(server.variables["max_allowed_packet"])
    if packet_bytes >= LEAST_PACKET:
        return None
    return (
        f"max_allowed_packet is {packet_bytes}, too low for the statements that read rows by their keys;"
        f" {server.service.fix('max_allowed_packet', str(64 << 20))}"
    )


def commit_order(server: Server) -> Finding:
    """A finding if transactions do not become visible in binlog order."""
    if server.is_on("binlog_order_commits", "ON"):
        return None
    return f"binlog_order_commits is OFF; {server.service.fix('binlog_order_commits', 'ON')}"


def gtids(server: Server) -> Finding:
    """A finding if GTIDs are in a mode between ON and OFF."""
    mode = _gtid_mode(server)
    return None if mode in {"ON", "OFF"} else f"gtid_mode is {mode}; finish the change to ON or OFF"


def synced_binlog(server: Server) -> Finding:
    """A finding if a crash may lose a part of the binlog without a trace, because sync_binlog is not 1.

    The GTIDs of MySQL tell such a loss. Those of MariaDB do not.
    """
    gtids_tell_loss = _gtid_mode(server) != "OFF"
    if gtids_tell_loss or server.variables.get("sync_binlog") == "1":
        return None
    or_gtids = ", or switch GTIDs on" if "gtid_mode" in server.variables else ""
    why = "a crash of the server may lose transactions that are copied already, and nothing would tell it"
    without = "" if server.dialect is MARIADB else " without GTIDs"
    return f"sync_binlog is not 1: {why}{without}; {server.service.fix('sync_binlog', '1')}{or_gtids}"


def _gtid_mode(server: Server) -> str:
    """The value of gtid_mode; OFF on MariaDB, which does not have the variable."""
    return server.variables.get("gtid_mode", "OFF").upper()


def replica(server: Server) -> Finding:
    """A finding if the server is a replica that does not log its primary's transactions, or not in their order."""
    if not query_dicts(server.connection, "SHOW REPLICA STATUS"):
        return None
    # MariaDB has no variable for the order, because it always preserves the order
    for_order = () if server.dialect is MARIADB else ("replica_preserve_commit_order",)
    replica_settings = ("log_replica_updates", *for_order)

    def is_on_by_either_name(name: str) -> bool:
        old_name = name.replace("replica", "slave")
        return server.is_on(name, server.variables.get(old_name, "OFF"))

    variables_off = [f"{name} is OFF" for name in replica_settings if not is_on_by_either_name(name)]
    return f"it is a replica and {' and '.join(variables_off)}; switch on" if variables_off else None


def prepared_xa(server: Server) -> Finding:
    """A finding if XA transactions are prepared now, on a server whose XA transactions cannot be copied."""
    if copies_xa(server.connection):
        return None
    try:
        pending = query(server.connection, "XA RECOVER")
    except pymysql.err.Error:  # the user lacks the privilege; the reader of the binlog will refuse the XA COMMIT
        return None
    why = "on this server they cannot be copied exactly: end them first"
    return f"{len(pending)} XA transactions are prepared; {why}" if pending else None


def aurora_writer(server: Server) -> Finding:
    """A finding if the server is a reader of an Aurora cluster, because readers have no binlog."""
    if server.service is not AURORA or not server.is_on("innodb_read_only"):
        return None
    return "innodb_read_only is ON: it is a reader of the Aurora cluster, without a binlog; use the cluster's endpoint"


def retention(server: Server, copy_seconds: float) -> Finding:
    """A finding if the server keeps its binlog for less than a copy takes (`copy_seconds`), or for less than a day.

    The day is for a run that is late.
    """
    try:
        retained_seconds = server.retention_seconds
    except pymysql.err.Error as error:
        return (
            f"{server.service.name} does not show how long it keeps binlog files: {error.args[-1]}; GRANT EXECUTE ON"
            " PROCEDURE mysql.rds_show_configuration to the user, or have an administrator call it: 24 hours or more"
        )
    least_seconds = max(DAY_SECONDS, round(copy_seconds))
    if retained_seconds is None or retained_seconds >= least_seconds:
        return None
    after = f"after {retained_seconds / 3600:,.1f} hours" if retained_seconds else "as soon as it can"
    return (
        f"the server purges binlog files {after}, the copy may take"
        f" {copy_seconds / 3600:,.1f} hours and a run may"
        f" be a day late; {server.service.keep(least_seconds)}"
    )


def binlog_in_files(server: Server) -> Finding:
    """A finding if the binlog is not in files.

    Since 12.3 MariaDB can keep it in InnoDB, where it has no file names and positions.
    """
    storage = server.variables.get("binlog_storage_engine", "")
    if not storage:
        return None
    return f"binlog_storage_engine is {storage}: a binlog in InnoDB cannot be read; leave the variable out, and restart"


def service(server: Server) -> Checked:
    """A warning if a copy from the source's service is not proven to be exact."""
    return Checked("service of the source", server.service.unproven, fatal=False)


def row_metadata(server: Server) -> Checked:
    """A note if rows in the binlog do not name their columns, because then DDL outside the binlog is found later."""
    metadata = server.variables.get("binlog_row_metadata", "NO_LOG").upper()
    note = None
    if metadata != "FULL":
        note = (
            f"binlog_row_metadata is {metadata}: DDL that the binlog lacks (sql_log_bin = 0) is found at the end of a"
            f" run, not at the rows after it; for that, {server.service.fix('binlog_row_metadata', 'FULL')}"
        )
    return Checked("names of columns in the binlog", note, fatal=False)


def has_gtids(server: Server) -> Checked:
    """A note if the server writes no GTIDs. Without GTIDs copies are exact, but no failover is possible."""
    note = None
    if _gtid_mode(server) == "OFF" and server.dialect is not MARIADB:  # MariaDB always writes its own
        note = (
            "gtid_mode is OFF: copies are exact, but no run can go on after a failover, and first copies apply the"
            " current binlog file from its beginning; switch GTIDs on if you need more"
        )
    return Checked("GTIDs", note, fatal=False)


CONDITIONS: dict[str, Condition] = {
    "server version": version,
    "no Galera": galera,
    "no Aurora reader": aurora_writer,
    "session variables": session,
    "binary log": binlog,
    "binlog in files": binlog_in_files,
    "binlog_format": setting("binlog_format", "ROW"),
    "binlog_row_image": setting("binlog_row_image", "FULL"),
    "binlog_row_value_options": setting("binlog_row_value_options", ""),
    "binlog_order_commits": commit_order,
    "log_bin_compress": setting("log_bin_compress", "OFF"),
    "encrypt_binlog": setting("encrypt_binlog", "OFF"),
    "gtid_mode": gtids,
    "sync_binlog": synced_binlog,
    "replica settings": replica,
    "prepared XA": prepared_xa,
}
