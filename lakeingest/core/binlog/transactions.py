"""The spooled transactions in binlog order: with them, low watermarks that are GTID sets are turned into places."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from lakeingest.core.binlog.position import Gtid, GtidSet, Low, Place
from lakeingest.errors import SpoolGap, StateUnreadable

Ending = tuple[GtidSet, int]  # a low that ends in a segment, and the number of the segment's transactions in the low


@dataclass(frozen=True, slots=True)
class LoggedSegment:
    """A spooled segment. `read` returns its transactions that have GTIDs, in binlog order, with their places."""

    gtids: GtidSet
    start: Place
    stop: Place
    read: Callable[[], Iterator[tuple[Gtid, Place]]]


class TransactionLog:
    """The transactions of a spool's segments, in binlog order. `before`: all transactions before the first segment.

    The memory does not grow with the number of transactions: a segment is read as a stream. A segment is read only if
    the last transaction of a low watermark is in it or directly before it, and only up to the transaction after that.
    """

    def __init__(self, segments: Iterable[LoggedSegment], before: GtidSet) -> None:
        self._before = before
        self._segments = [segment for segment in segments if segment.gtids]
        self._sets = [GtidSet()]  # of the first 0, 1, 2 ... segments
        for segment in self._segments:
            self._sets.append(self._sets[-1] | segment.gtids)
        self._counts = [gtids.count for gtids in self._sets]

    def places(self, lows: Iterable[Low], covered_from: Place) -> dict[Low, Place]:
        """For each low, the place up to which the low contains all transactions, but at least `covered_from`.

        A low that is a place already stays as it is.

        With binlog_order_commits=ON, the transactions in a low are all transactions of the binlog up to a place.

        Raises:
            StateUnreadable: a segment lacks transactions; or a low contains a transaction, but not all transactions
                before it. The server did not keep the order of commits, so that places would lose or repeat rows.
            SpoolGap: a low is a place before `covered_from`, or lacks a transaction up to `covered_from`. So the spool
                lacks changes that the split of this low may need.

        """
        places: dict[Low, Place] = {}
        endings: dict[int, list[Ending]] = {}  # by the index of the segment
        for low in lows:
            if isinstance(low, Place):
                if low < covered_from:
                    raise SpoolGap(f"the spool begins at {covered_from}, a split needs it from {low}")
                places[low] = low
                continue
            if not self._before <= low:
                raise SpoolGap(f"the spool begins after {self._before - low}, which a split needs")
            whole_segments, in_next = self._prefix(low)
            end = self._segments[whole_segments - 1].stop if whole_segments else covered_from
            places[low] = max(end, covered_from)
            if whole_segments == len(self._segments):
                continue
            # The next segment is read if the low ends in it: then the low's place is later than `end`. It is also read
            # if it begins before `covered_from`: SpoolGap is raised if the low lacks a transaction up to `covered_from`
            if in_next or self._segments[whole_segments].start < covered_from:
                endings.setdefault(whole_segments, []).append((low, in_next))
        for index, in_segment in endings.items():
            places |= _read(self._segments[index], in_segment, covered_from)
        return places

    def _prefix(self, low: GtidSet) -> tuple[int, int]:
        """The number of whole segments that `low` contains, and the number of its transactions in the next segment.

        The spool's transactions in `low` are taken for the first transactions of the spool. Raises StateUnreadable if
        that is wrong in the whole segments; `_read` checks the next segment.
        """
        # `_sets[n]` and `_counts[n]` are of the first n segments together, so [-1] is of the whole spool
        outside_low = self._sets[-1] - low
        in_low = self._counts[-1] - outside_low.count
        # the greatest number of segments that have at most `in_low` transactions together
        whole_segments = bisect_right(self._counts, in_low) - 1
        if not self._sets[whole_segments] <= low:
            raise _out_of_order(low)
        return whole_segments, in_low - self._counts[whole_segments]


def _read(segment: LoggedSegment, endings: list[Ending], covered_from: Place) -> dict[Low, Place]:
    """The places of lows that end within a segment, or before its first transaction.

    A low without a transaction of the segment is only checked, and left out of the result. The segment is read up
    to the first transaction that is not in the greatest of the lows. Raises SpoolGap or StateUnreadable as
    `TransactionLog.places` does.
    """
    places: dict[Low, Place] = {}
    outside = {low: segment.gtids - low for low, _ in endings}  # the segment's transactions that the low lacks
    needed = max(count for _, count in endings) + 1  # one more: the first transaction outside of the greatest low
    number = 0
    for number, (gtid, place) in enumerate(islice(segment.read(), needed), start=1):
        for low, count in endings:  # the low must contain exactly the first `count` transactions
            if number <= count and gtid in outside[low]:
                raise _out_of_order(low)
            if number == count:  # the last transaction in the low
                places[low] = max(place, covered_from)
            # the spool must have the changes of the first transaction that is not in the low
            if number == count + 1 and place <= covered_from:
                raise SpoolGap(f"the table was not watched before {covered_from}, a split needs {gtid}")
    if number < needed:
        raise StateUnreadable(f"the spool lacks transactions of its segment from {segment.start} to {segment.stop}")
    return places


def _out_of_order(low: GtidSet) -> StateUnreadable:
    """The error if `low` has a transaction, but not all transactions before it."""
    return StateUnreadable(f"transactions are executed out of order: binlog_order_commits was off before {low}")
