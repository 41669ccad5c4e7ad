"""The spooled transactions in binlog order: with them, low watermarks that are GTID sets are turned into places."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from lakeingest.core.position import Gtid, GtidSet, Low, Place
from lakeingest.errors import SpoolGap, StateUnreadable

Ending = tuple[GtidSet, int]  # a low that ends within a segment, and how many of the segment's transactions it contains


@dataclass(frozen=True, slots=True)
class LoggedSegment:
    """A spooled segment. `read` returns its transactions that have GTIDs, in binlog order, with their places."""

    gtids: GtidSet
    start: Place
    stop: Place
    read: Callable[[], Iterator[tuple[Gtid, Place]]]


class TransactionLog:
    """The transactions of a spool's segments, in binlog order. `before`: all transactions before the first segment.

    The memory does not grow with the number of transactions. A segment is read only if a low ends within it, as a
    stream, and only up to that end.
    """

    def __init__(self, segments: Iterable[LoggedSegment], before: GtidSet) -> None:
        self._before = before
        self._segments = [segment for segment in segments if segment.gtids]
        self._sets = [GtidSet()]  # of the first 0, 1, 2 ... segments
        for segment in self._segments:
            self._sets.append(self._sets[-1] | segment.gtids)
        self._counts = [gtids.count for gtids in self._sets]

    def places(self, lows: Iterable[Low], covered_from: Place) -> dict[Low, Place]:
        """For each low, the place up to which it contains all transactions, but at least `covered_from`.

        With binlog_order_commits=ON, the transactions in a low are all transactions of the binlog up to a place.

        Raises:
            StateUnreadable: a low contains a transaction, but not all transactions before it. The server did not keep
                the order of commits, so that places would lose or repeat rows.
            SpoolGap: a low does not contain a transaction at or before `covered_from`, and the spool does not have the
                changes of that transaction.

        """
        places: dict[Low, Place] = {}
        endings: dict[int, list[Ending]] = {}
        for low in lows:
            if isinstance(low, Place):
                if low < covered_from:
                    raise SpoolGap(f"the spool begins at {covered_from}, a split needs it from {low}")
                places[low] = low
                continue
            if not self._before <= low:
                raise SpoolGap(f"the spool begins after {self._before - low}, which a split needs")
            whole, rest = self._prefix(low)
            places[low] = max(self._segments[whole - 1].stop, covered_from) if whole else covered_from
            # no need to read the next segment if it has no transaction of the low, and begins after `covered_from`
            if whole < len(self._segments) and (rest or self._segments[whole].start < covered_from):
                endings.setdefault(whole, []).append((low, rest))
        for index, lows_within in endings.items():
            places |= _read(self._segments[index], lows_within, covered_from)
        return places

    def _prefix(self, low: GtidSet) -> tuple[int, int]:
        """The number of whole segments that `low` contains, and the number of its transactions in the next segment.

        Both numbers assume that `low` contains the first n of the spool's transactions. Raises StateUnreadable if `low`
        does not contain all transactions of these whole segments. `_read` checks the next segment.
        """
        inside = self._counts[-1] - (self._sets[-1] - low).count
        whole = bisect_right(self._counts, inside) - 1
        if not self._sets[whole] <= low:
            raise _out_of_order(low)
        return whole, inside - self._counts[whole]


def _read(segment: LoggedSegment, endings: list[Ending], covered_from: Place) -> dict[Low, Place]:
    """The places of lows that end within a segment, or before its first transaction.

    The segment is read up to the first transaction that is not in the greatest of the lows. Raises SpoolGap or
    StateUnreadable as `TransactionLog.places` does.
    """
    places: dict[Low, Place] = {}
    outside = {low: segment.gtids - low for low, _ in endings}
    needed = max(count for _, count in endings) + 1  # the last is the first transaction outside of the greatest low
    seen = 0
    for gtid, place in islice(segment.read(), needed):
        for low, count in endings:
            if seen < count and gtid in outside[low]:
                raise _out_of_order(low)
            # the spool must have the changes of the first transaction that is not in the low
            if seen == count and place <= covered_from:
                raise SpoolGap(f"the table was not watched before {covered_from}, a split needs {gtid}")
            if seen == count - 1:
                places[low] = max(place, covered_from)
        seen += 1
    if seen < needed:
        raise StateUnreadable(f"the spool lacks transactions of its segment from {segment.start} to {segment.stop}")
    return places


def _out_of_order(low: GtidSet) -> StateUnreadable:
    return StateUnreadable(f"transactions are executed out of order: binlog_order_commits was off before {low}")
