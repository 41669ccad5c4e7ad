"""Little binlogs as a spool holds them: cut into segments, of which a test sees which are read, and how far."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from lakeingest.core.binlog.position import Gtid, GtidSet, Place
from lakeingest.core.binlog.transactions import LoggedSegment, TransactionLog

NOTHING = GtidSet()
Transactions = Sequence[tuple[Gtid, Place]]


def log_of(
    transactions: Transactions,
    before: GtidSet = NOTHING,
    cuts: Iterable[int] = (),
    taken: list[tuple[int, Gtid]] | None = None,
) -> TransactionLog:
    """The log of segments that are cut after so many transactions; `taken` gets what is read, with its segment."""
    ends = [0, *cuts, len(transactions)]
    segments = (
        segment(number, transactions, begin, end, [] if taken is None else taken)
        for number, (begin, end) in enumerate(pairwise(ends))
    )
    return TransactionLog(segments, before)


def segment(
    number: int, transactions: Transactions, begin: int, end: int, taken: list[tuple[int, Gtid]]
) -> LoggedSegment:
    """One segment; it starts and stops where a transaction ends, the first just before its own."""

    def edge(count: int) -> Place:
        if count:
            return transactions[count - 1][1]
        first = transactions[0][1] if transactions else Place(0, 1, 1)
        return Place(first.epoch, first.file, first.pos - 1)

    def read() -> Iterator[tuple[Gtid, Place]]:
        for gtid, place in transactions[begin:end]:
            taken.append((number, gtid))
            yield gtid, place

    gtids = GtidSet.of_gtids(gtid for gtid, _ in transactions[begin:end])
    return LoggedSegment(gtids, edge(begin), edge(end), read)
