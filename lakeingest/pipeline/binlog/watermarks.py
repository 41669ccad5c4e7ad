"""Watermarks of a wave: the position from which its chunks may count, and the greatest one up to which they have read.

XA transactions that were committed before the first one can be seen.
"""

from lakeingest.config import Source
from lakeingest.core.history import History
from lakeingest.core.position import FilePosition, GtidSet, Position
from lakeingest.core.prepared import Pending
from lakeingest.mysql.xa_list import settle
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges


def settled_position(edges: Edges, binlog: BinlogRun) -> FilePosition:
    """The spool's position, once read views that are opened from now on have every XA COMMIT before it.

    The errors are those of `settle`.
    """
    position, pending = binlog.spool.position, binlog.spool.pending or Pending()
    older = binlog.older_xids.get(position.epoch, frozenset()) - pending.ended
    found = settle(edges.config.source, edges.connection, position, pending.prepared.keys() | older)
    binlog.older_xids = {position.epoch: older | found}
    return position.at


def read_up_to(source: Source, binlog: BinlogRun, high: FilePosition) -> Position:
    """The greatest high watermark of a wave, as a position that can be proven later."""
    position = binlog.spool.position
    gtids = None if position.gtids is None else GtidSet()  # they are in the low watermarks
    began = binlog.second_of(high.file, source)
    return Position(position.server_uuid, position.epoch, high, gtids, History(began))
