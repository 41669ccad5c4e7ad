"""Preflight of `source.replica`: whether the replica's tables have the rows of the source at a known position."""

from collections.abc import Mapping

from lakeingest.config import Source
from lakeingest.core.tables.condition import Checked
from lakeingest.errors import LakeIngestError, OperatorNeeded
from lakeingest.mysql.connection import connect, query_dicts
from lakeingest.mysql.dialect import MARIADB
from lakeingest.mysql.preflight.server import Condition, Finding, Server, ask, session, version
from lakeingest.mysql.preflight.service import AURORA
from lakeingest.mysql.preflight.tables import engines
from lakeingest.mysql.replica import NO_GTIDS, require_no_more

_NEVER_COPIED = "mysql.", "innodb_memcache."  # databases that replicas of managed services ignore


def replica_conditions(source: Source, server: Server) -> tuple[Checked, ...]:
    """The results of the conditions on the replica of `server`; () if rows are read from the server itself."""
    if source.replica is None:
        return ()
    if not _has_gtids(server):
        return (Checked("GTIDs for the replica", NO_GTIDS),)
    try:
        with connect(source.of_rows) as connection:
            return ask(Server.of(connection, server.tables), _conditions(source, server))
    except LakeIngestError as error:
        return (Checked("connection to the replica", str(error)),)


def _conditions(source: Source, primary: Server) -> Mapping[str, Condition]:
    """The conditions on a replica by their names; `primary` is the replica's primary."""

    def another_server(replica: Server) -> Finding:
        """A finding if the replica is the primary itself."""
        if replica.variables.get("server_uuid") != primary.variables["server_uuid"]:
            return None
        return "source.replica leads to the source itself; name its replica, or remove source.replica"

    def no_more(replica: Server) -> Finding:
        """A finding if the replica has executed transactions that the primary has not executed."""
        try:
            require_no_more(source, primary.connection, replica.connection)
        except OperatorNeeded as error:
            return str(error)
        return None

    return {
        "version of the replica": version,
        "session variables on the replica": session,
        "GTIDs of the replica": _gtids,
        "replica is another server": another_server,
        "transactions of the replica": no_more,
        "filters of the replica": _filters,
        "InnoDB on the replica": engines,
    }


def _has_gtids(server: Server) -> bool:
    """Whether the server has GTIDs of MySQL."""
    return server.dialect is not MARIADB and server.variables.get("gtid_mode", "").upper() == "ON"


def _gtids(replica: Server) -> Finding:
    """A finding if the replica has no GTIDs, because they tell the transactions that its rows contain."""
    if replica.service is AURORA and replica.is_on("innodb_read_only"):
        return "source.replica is a reader of an Aurora cluster, which applies no binlog; remove source.replica"
    return None if _has_gtids(replica) else "the replica has no GTIDs of MySQL; set gtid_mode = ON there"


def _filters(replica: Server) -> Finding:
    """A finding if the replica has filters, which leave out changes of transactions that are in `gtid_executed`."""
    filters: list[str] = []
    for status in query_dicts(replica.connection, "SHOW REPLICA STATUS"):
        entries_of = {name: str(value or "") for name, value in status.items() if name.startswith("replicate_")}
        filters += (name for name, entries in entries_of.items() if not _is_harmless(name, entries))
    return f"the replica leaves changes out by {', '.join(sorted(filters))}; remove the filters" if filters else None


def _is_harmless(name: str, entries: str) -> bool:
    """Whether a filter has no entries, or leaves out only tables that are never copied."""
    if name in {"replicate_ignore_table", "replicate_wild_ignore_table"}:
        return all(entry.startswith(_NEVER_COPIED) for entry in entries.split(",") if entry)
    return not entries
