"""Reads XA RECOVER, the server's list of prepared transactions. On MariaDB the list tells what a read view contains.

MariaDB writes an XA COMMIT to the binlog first. Then the rows become visible, and last the transaction leaves the list.
So a transaction that has an XA COMMIT in the binlog and is not in the list is in any read view that opens later.
"""

import time
from collections.abc import Collection

import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.position import FIRST_EPOCH, FilePosition, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.copies.prepared import Xid
from lakeingest.errors import SplitUnstable
from lakeingest.mysql.binlog_reader import ended_before
from lakeingest.mysql.connection import free_server_id, query, written_position
from lakeingest.mysql.dialect import dialect

_PAUSE_SECONDS = 0.01
_PASSING_SECONDS = 0.1  # most transactions are prepared for a shorter time, and the binlog need not be read for them
_COMMIT_SECONDS = 10.0  # the longest wait for an XA COMMIT to become visible
_FORMATS = 1 << 32  # XA RECOVER may show a format id as negative; the binlog has it as an unsigned number of 32 bits


def prepared_xids(connection: pymysql.Connection) -> frozenset[Xid]:
    """The transactions in XA RECOVER: they are prepared, or being committed."""
    rows = query(connection, "XA RECOVER")
    return frozenset(
        Xid(name[: int(global_size)], name[int(global_size) :], int(format_) % _FORMATS)
        for format_, global_size, _, name in rows  # the name is the global part, then the branch
    )


def settle(
    source: Source, connection: pymysql.Connection, at: Position, prepared: Collection[Xid] = ()
) -> frozenset[Xid]:
    """Wait until new read views contain each XA COMMIT that is before the position `at` of the binlog.

    `prepared` has known transactions that were prepared before the position and had not ended there. Returns
    transactions outside `prepared` that are prepared after the wait: those whose XA PREPARE is before the position, or
    not in the binlog. The result is empty on a server whose read views lack no XA COMMIT. Raises SplitUnstable if a
    commit is not visible in time.
    """
    if not dialect(connection).is_xa_late:
        return frozenset()
    # Step 1: wait a moment, in which most transactions end
    lasting = _listed_after_wait(connection, prepared_xids(connection).difference(prepared), _PASSING_SECONDS)
    if not lasting:
        return frozenset()
    # Step 2: find in the binlog the lasting transactions that ended before the position, and wait until XA RECOVER no
    # longer lists them
    segment = Segment.after(at, written_position(connection))
    ended, not_ended = ended_before(source, segment, free_server_id(connection, source), lasting)
    if stuck := _listed_after_wait(connection, ended, _COMMIT_SECONDS):
        xid = min(stuck, key=lambda xid: (xid.global_part, xid.branch))
        name = f"X'{xid.global_part.hex()}',X'{xid.branch.hex()}',{xid.format}"
        raise SplitUnstable(
            f"XA RECOVER lists {name}, although the binlog has its XA COMMIT or XA ROLLBACK before {at.at}; if the"
            " source was killed meanwhile, end it again in the same way; then run the same command again"
        )
    return not_ended


def settled_now(source: Source, connection: pymysql.Connection, server_uuid: str) -> FilePosition:
    """Read the written position, and wait until new read views contain each XA COMMIT before it. Returns the position.

    The errors are those of `settle`.
    """
    at = written_position(connection)
    settle(source, connection, Position(server_uuid, FIRST_EPOCH, at, gtids=None))
    return at


def _listed_after_wait(connection: pymysql.Connection, xids: frozenset[Xid], seconds: float) -> frozenset[Xid]:
    """The transactions among `xids` that are still in XA RECOVER after a wait of at most `seconds`."""
    deadline = time.monotonic() + seconds
    while xids and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        xids &= prepared_xids(connection)
    return xids
