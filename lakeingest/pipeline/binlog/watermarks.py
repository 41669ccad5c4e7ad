"""The position from which chunks may count: XA transactions that were committed before it can be seen."""

from lakeingest.core.position import FilePosition
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
