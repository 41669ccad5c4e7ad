"""The transactions of the spool, with the GTID of each and the place where it ends, from the segments' files."""

from collections.abc import Iterator
from functools import partial

from lakeingest.core.binlog.position import Gtid, GtidSet, Place
from lakeingest.core.binlog.transactions import LoggedSegment, TransactionLog
from lakeingest.files.file import File
from lakeingest.spool.errors import opened_file
from lakeingest.spool.spool import Spool

BATCH_ROWS = 4_096  # transactions that are Python objects at the same time
_COLUMNS = ["uuid", "tag", "number", "epoch", "file", "pos"]


def log_of(spool: Spool) -> TransactionLog:
    """All spooled transactions that have GTIDs. A segment's file is read only when its transactions are needed."""
    epoch = spool.opened.epoch
    segments = (
        LoggedSegment(
            segment.gtids,
            segment.start.place(epoch),
            segment.stop.place(epoch),
            partial(_read, spool.folder / segment.transactions),
        )
        for segment in spool.segments
    )
    return TransactionLog(segments, spool.opened.gtids or GtidSet())


def _read(path: File) -> Iterator[tuple[Gtid, Place]]:
    """Yield the GTID and the place of each transaction in a file, without transactions that have no GTID."""
    with opened_file(path) as opened:
        for batch in opened.iter_batches(BATCH_ROWS, columns=_COLUMNS):
            columns = batch.to_pydict()
            for server, tag, number, epoch, file, pos in zip(*(columns[name] for name in _COLUMNS), strict=True):
                if server is not None:
                    yield Gtid(server, number, tag or ""), Place(epoch, file, pos)
