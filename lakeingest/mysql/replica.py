"""Waits for a replica that a chunk's rows are read from. The chunk's watermarks and the binlog are the primary's.

The read view contains low, because the chunk waits until the replica has executed low. High contains the view, because
a transaction is in the primary's binlog before a replica can apply it, and high is read after the view opens. The
changes between low and high are complete rows. So these changes turn the view into the table as of high, whatever the
order in which the replica has applied them. Without the wait, the view of a replica that lags would lack changes before
low, and no merge applies changes before low.

The rows of a transaction that only the replica has would stay in the copy. So a replica with such a transaction is
refused.
"""

import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.position import GtidSet, Low
from lakeingest.errors import OperatorNeeded, SourceAway
from lakeingest.mysql.connection import literal, named_errors, query_row

LAG_SECONDS = 60  # the longest wait of a chunk: a replica that lags by more would hold up every chunk
# A replica may have a transaction that its primary has written and not committed, because a semi-synchronous primary
# waits for other replicas: usually for 10 seconds at most.
COMMIT_SECONDS = 20
NO_GTIDS = (
    "source.replica needs a MySQL source with GTIDs, which tell what a replica contains; set gtid_mode = ON, or remove"
    " source.replica"
)


def catch_up(replica: pymysql.Connection, low: Low | None) -> None:
    """Wait until the replica has executed all transactions of the low watermark.

    Raises SourceAway if the replica still lags after `LAG_SECONDS`, OperatorNeeded if low has no GTIDs.
    """
    if not isinstance(low, GtidSet):
        raise OperatorNeeded(NO_GTIDS)
    if not _has_executed(replica, low, LAG_SECONDS):  # waits
        missing = low - executed(replica)
        raise SourceAway(
            f"the replica {replica.host}:{replica.port} lags: after {LAG_SECONDS} seconds it lacks {missing.count}"
            " transactions of its source; see SHOW REPLICA STATUS there, and run the same command again"
        )


def require_no_more(source: Source, primary: pymysql.Connection, replica: pymysql.Connection) -> None:
    """Raise OperatorNeeded if the replica has executed transactions that its primary, `source`, has not executed.

    The primary has COMMIT_SECONDS to execute them.
    """
    applied = executed(replica)
    with named_errors(source):
        if _has_executed(primary, applied, COMMIT_SECONDS):  # waits
            return
        only_on_replica = applied - executed(primary)
    raise OperatorNeeded(
        f"the replica {replica.host}:{replica.port} has transactions that its source lacks: {only_on_replica}; set up"
        " the replica again, and set super_read_only = ON there"
    )


def executed(connection: pymysql.Connection) -> GtidSet:
    """The server's `gtid_executed`, which only MySQL has."""
    return GtidSet.parse(query_row(connection, "SELECT @@global.gtid_executed", 1)[0])


def _has_executed(connection: pymysql.Connection, gtids: GtidSet, seconds: int) -> bool:
    """Whether the server has executed all these transactions. Waits for them for `seconds` at most."""
    (is_late,) = query_row(connection, f"SELECT WAIT_FOR_EXECUTED_GTID_SET({literal(str(gtids))}, {seconds})", 1)
    return not int(is_late)
