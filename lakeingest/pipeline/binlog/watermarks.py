"""Watermarks of a wave: a settled position before the wave, and the greatest high watermark of its chunks.

The read views of the chunks contain each XA COMMIT before the settled position.
"""

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.copies.prepared import Pending
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges


def settled_position(edges: Edges, binlog: BinlogRun) -> FilePosition:
    """Wait until the spool's position is settled, and return it. Raises the errors of `mysql.xa_list.settle`."""
    position, pending = binlog.spool.position, binlog.spool.pending or Pending()
    known_older = binlog.older_xids.get(position.epoch, frozenset()) - pending.ended
    newly_seen = edges.source.settle(position, pending.prepared.keys() | known_older)
    binlog.older_xids = {position.epoch: known_older | newly_seen}  # those of earlier epochs are not needed any more
    return position.at


def position_of_high(edges: Edges, binlog: BinlogRun, high: FilePosition) -> Position:
    """The position of `high`, the greatest high watermark of a wave.

    Its history has the second in which the server began the file of `high`. This second can be compared later.
    """
    position = binlog.spool.position
    gtids = None if position.gtids is None else GtidSet()  # empty, because the low watermarks have the GTIDs
    began = binlog.second_of(edges.source, high.file)
    return Position(position.server_uuid, position.epoch, high, gtids, History(began))
