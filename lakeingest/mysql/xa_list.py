"""The list of prepared transactions (XA) of a server, and what it says about read views. For MariaDB.

MariaDB writes XA COMMIT to the binlog first. Then its rows become visible, and last the transaction leaves the list of
XA RECOVER. So what is not in the list was not prepared yet, or can be seen by any read view that is opened after it.
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
    """The transactions that are prepared, and those that are being committed."""
    found = query(connection, "XA RECOVER")
    return frozenset(
        Xid(name[: int(size)], name[int(size) :], int(format_) % _FORMATS) for format_, size, _, name in found
    )


def settle(source: Source, connection: pymysql.Connection, at: Position, known: Collection[Xid] = ()) -> frozenset[Xid]:
    """Wait until read views contain each XA COMMIT that is before a position of the binlog.

    `known` have not ended since they were prepared before the position. Returns others of which that was found out:
    their XA PREPARE is before the position, or not in the binlog. SplitUnstable if a commit is not visible in time.
    """
    if not dialect(connection).is_xa_late:
        return frozenset()
    left = _still_listed(connection, listed(connection).difference(known), _PASSING_SECONDS)
    if not left:
        return frozenset()
    segment = Segment.after(at, written_position(connection))
    ended, older = last_before(source, segment, free_server_id(connection, source), left)
    if stuck := _still_listed(connection, ended, _COMMIT_SECONDS):
        xid = min(stuck, key=lambda one: (one.global_part, one.branch))
        name = f"X'{xid.global_part.hex()}',X'{xid.branch.hex()}',{xid.format}"
        raise SplitUnstable(
            f"XA RECOVER lists {name}, although the binlog has its XA COMMIT or XA ROLLBACK before {at.at}; if the"
            " source was killed meanwhile, end it again in the same way; then run the same command again"
        )
    return older


def settled_now(source: Source, connection: pymysql.Connection, server_uuid: str) -> FilePosition:
    """The written position of this server, once read views contain each XA COMMIT before it; errors as `settle`."""
    at = written_position(connection)
    settle(source, connection, Position(server_uuid, FIRST_EPOCH, at, None))
    return at


def _still_listed(connection: pymysql.Connection, xids: frozenset[Xid], seconds: float) -> frozenset[Xid]:
    """Of these, those that stay in the list for so long."""
    deadline = time.monotonic() + seconds
    while xids and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        xids &= listed(connection)
    return xids
