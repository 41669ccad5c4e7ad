"""Preflight: the conditions without which the result could be wrong, each a function; all are reported together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pymysql

from lakeingest.core.position import GtidSet
from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError, PreflightFailed
from lakeingest.mysql.connection import binary_log_status, literal, query, query_dicts

_OLDEST = (8, 0, 22)
_LOGGED_CASCADES = (9, 6)  # since then child rows of a cascade are in the binlog


@dataclass(frozen=True, slots=True)
class Server:
    """What the conditions look at: the server's variables by lower-case name, and the tables to be copied."""

    connection: pymysql.Connection
    variables: dict[str, str]
    tables: tuple[TableId, ...]

    @property
    def version(self) -> tuple[int, ...]:
        """The version's numbers."""
        numbers = self.variables["version"].split("-")[0].split(".")
        return tuple(int(part) for part in numbers if part.isdigit())

    def is_on(self, name: str, default: str = "OFF") -> bool:
        """Whether a switch is on."""
        return self.variables.get(name, default).upper() in {"ON", "1", "YES"}


Finding = str | None  # what is wrong and its fix, or None
Condition = Callable[[Server], Finding]


def check_source(connection: pymysql.Connection, tables: Iterable[TableId]) -> None:
    """Raise PreflightFailed with every condition that is not met."""
    rows = query(connection, "SHOW GLOBAL VARIABLES")
    server = Server(connection, {str(name).lower(): str(value) for name, value in rows}, tuple(tables))
    findings = [finding for condition in CONDITIONS if (finding := _ask(condition, server))]
    if findings:
        raise PreflightFailed(f"the source is not ready: {'; '.join(findings)}")


def _ask(condition: Condition, server: Server) -> Finding:
    try:
        return condition(server)
    except (LakeIngestError, pymysql.err.Error) as error:
        return f"{condition.__name__.replace('_', ' ')}: {error.args[-1]}"


def version(server: Server) -> Finding:
    """Full row metadata came with 8.0.1, CAST AS DOUBLE with 8.0.17, SHOW REPLICAS with 8.0.22."""
    if server.version >= _OLDEST:
        return None
    return f"its version {server.variables['version']} is older than {'.'.join(map(str, _OLDEST))}"


def binlog(server: Server) -> Finding:
    """There is a binlog that we may ask for, and it leaves nothing out."""
    if not server.is_on("log_bin"):
        return "log_bin is OFF; start the server with it"
    status = binary_log_status(server.connection)
    left_out = [name for name in ("binlog_do_db", "binlog_ignore_db") if status.get(name)]
    return f"{' and '.join(left_out)} leave changes out of the binlog; remove them" if left_out else None


def row_format(server: Server) -> Finding:
    """Changes are logged as whole rows with their names, uncompressed."""
    wanted = {
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "binlog_row_value_options": "",
        "binlog_transaction_compression": "OFF",
    }
    found = {name: server.variables.get(name, value).upper() for name, value in wanted.items()}
    wrong = [
        f"{name} is '{found[name]}'; SET GLOBAL {name} = '{value}'"
        for name, value in wanted.items()
        if found[name] != value
    ]
    return "; ".join(wrong) or None


def commit_order(server: Server) -> Finding:
    """Transactions become visible in binlog order."""
    if server.is_on("binlog_order_commits", "ON"):
        return None
    return "binlog_order_commits is OFF; SET GLOBAL binlog_order_commits = ON"


def gtids(server: Server) -> Finding:
    """GTIDs are on, or off with a binlog that survives a crash; a mixture cannot be judged."""
    mode = server.variables.get("gtid_mode", "OFF").upper()
    if mode == "OFF":
        if server.variables.get("sync_binlog") == "1":
            return None
        return "gtid_mode is OFF and sync_binlog is not 1; SET GLOBAL sync_binlog = 1, or switch GTIDs on"
    if mode != "ON":
        return f"gtid_mode is {mode}; finish the change to ON or OFF"
    if GtidSet.parse(server.variables["gtid_executed"]).tagged:
        return "it has executed tagged GTIDs, which are not built yet"
    return None


def replica(server: Server) -> Finding:
    """A replica logs what it applies, in the order of its source."""
    if not query_dicts(server.connection, "SHOW REPLICA STATUS"):
        return None
    wrong = [
        f"{name} is OFF"
        for name in ("log_replica_updates", "replica_preserve_commit_order")
        if not server.is_on(name, server.variables.get(name.replace("replica", "slave"), "OFF"))
    ]
    return f"it is a replica and {' and '.join(wrong)}; switch on" if wrong else None


def prepared_xa(server: Server) -> Finding:
    """No XA transaction is prepared: its rows are in the binlog already, but not in the table."""
    try:
        pending = query(server.connection, "XA RECOVER")
    except pymysql.err.Error:  # needs XA_RECOVER_ADMIN; the stream stops at the XA COMMIT
        return None
    return f"{len(pending)} XA transactions are prepared; XA is not built yet: end them first" if pending else None


def engines(server: Server) -> Finding:
    """Only InnoDB has read views."""
    rows = query(
        server.connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES"
        f" WHERE ENGINE <> 'InnoDB' AND (TABLE_SCHEMA, TABLE_NAME) IN ({_pairs(server.tables)})",
    )
    named = ", ".join(f"{database}.{name} ({engine})" for database, name, engine in rows)
    return f"not InnoDB: {named}; convert or exclude them" if named else None


def cascades(server: Server) -> Finding:
    """Rows that a foreign key changes are in the binlog."""
    if server.version >= _LOGGED_CASCADES and not server.is_on("innodb_native_foreign_keys"):
        return None
    rows = query(
        server.connection,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS"
        f" WHERE (CONSTRAINT_SCHEMA, TABLE_NAME) IN ({_pairs(server.tables)})"
        " AND (UPDATE_RULE IN ('CASCADE', 'SET NULL') OR DELETE_RULE IN ('CASCADE', 'SET NULL'))",
    )
    named = ", ".join(sorted({f"{database}.{name}" for database, name in rows}))
    return f"foreign keys change rows of {named} outside the binlog; exclude these tables" if named else None


def _pairs(tables: tuple[TableId, ...]) -> str:
    pairs = (f"({literal(table.database)}, {literal(table.name)})" for table in tables)
    return ", ".join(pairs) or "('', '')"


CONDITIONS: tuple[Condition, ...] = (
    version,
    binlog,
    row_format,
    commit_order,
    gtids,
    replica,
    prepared_xa,
    engines,
    cascades,
)
