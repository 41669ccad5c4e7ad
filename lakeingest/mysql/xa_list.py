"""Reads the list of a server's prepared transactions (XA). On MariaDB it shows which of them a new read view contains.

MariaDB writes XA COMMIT to the binlog first. Then its rows become visible, and last the transaction leaves the list of
XA RECOVER. So a transaction that is not in the list is not prepared yet, or any read view that opens later contains it.
"""

import time
from collections.abc import Collection

import pymysql

from lakeingest.config import Source
from lakeingest.core.position import FIRST_EPOCH, FilePosition, Position
from lakeingest.core.prepared import Xid
from lakeingest.core.segments import Segment
from lakeingest.errors import SplitUnstable
from lakeingest.mysql.binlog_reader import last_before
from lakeingest.mysql.connection import free_server_id, query, written_position
from lakeingest.mysql.dialect import dialect

_PAUSE_SECONDS = 0.01
_PASSING_SECONDS = 0.1  # most transactions are prepared for a shorter time: for these the binlog is not read
_COMMIT_SECONDS = 10.0  # an XA COMMIT that takes longer is not waited for
_FORMATS = 1 << 32


def listed(connection: pymysql.Connection) -> frozenset[Xid]:
    """The transactions that are prepared or are being committed."""
    rows = query(connection, "XA RECOVER")
    return frozenset(
        Xid(name[: int(size)], name[int(size) :], int(format_) % _FORMATS) for format_, size, _, name in rows
    )


def settle(
    source: Source, connection: pymysql.Connection, at: Position, prepared: Collection[Xid] = ()
) -> frozenset[Xid]:
    """Wait until read views contain each XA COMMIT that is before the position `at` of the binlog.

    `prepared` are the known transactions that were prepared before the position and have not ended since. Returns the
    other such transactions: their XA PREPARE is before the position, or the binlog has none. Raises SplitUnstable if a
    commit is not visible in time.
    """
    if not dialect(connection).is_xa_late:
        return frozenset()
    # Step 1: most transactions end by themselves within a moment
    lasting = _still_listed(connection, listed(connection).difference(prepared), _PASSING_SECONDS)
    if not lasting:
        return frozenset()
    # Step 2: the binlog says which of the others ended before the position; those become visible, and leave the list
    segment = Segment.after(at, written_position(connection))
    ended, older = last_before(source, segment, free_server_id(connection, source), lasting)
    if stuck := _still_listed(connection, ended, _COMMIT_SECONDS):
        xid = min(stuck, key=lambda xid: (xid.global_part, xid.branch))
        name = f"X'{xid.global_part.hex()}',X'{xid.branch.hex()}',{xid.format}"
        raise SplitUnstable(
            f"XA RECOVER lists {name}, although the binlog has its XA COMMIT or XA ROLLBACK before {at.at}; if the"
            " source was killed meanwhile, end it again in the same way; then run the same command again"
        )
    return older


def settled_now(source: Source, connection: pymysql.Connection, server_uuid: str) -> FilePosition:
    """The server's written position, after read views contain each XA COMMIT before it. The errors are `settle`'s."""
    at = written_position(connection)
    settle(source, connection, Position(server_uuid, FIRST_EPOCH, at, None))
    return at


def _still_listed(connection: pymysql.Connection, xids: frozenset[Xid], seconds: float) -> frozenset[Xid]:
    """The transactions among `xids` that stay in the list for `seconds`."""
    deadline = time.monotonic() + seconds
    while xids and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        xids &= listed(connection)
    return xids
