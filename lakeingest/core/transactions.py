"""The spooled transactions in binlog order: what a low watermark, a GTID set, is resolved against."""

from bisect import bisect_left
from collections.abc import Iterable

from lakeingest.core.position import Gtid, GtidSet, Low, Place, Source
from lakeingest.errors import SpoolGap, StateUnreadable


class TransactionLog:
    """The transactions of a spool after `start`, in binlog order; `before` is what was executed where it begins."""

    def __init__(self, transactions: Iterable[tuple[Gtid, Place]], before: GtidSet) -> None:
        self._before = before
        self._gtids: list[Gtid] = []
        self._places: list[Place] = []
        self._by_source: dict[Source, list[tuple[int, int]]] = {}
        for index, (gtid, place) in enumerate(transactions):
            self._gtids.append(gtid)
            self._places.append(place)
            self._by_source.setdefault((gtid.uuid, gtid.tag), []).append((gtid.number, index))
        for numbered in self._by_source.values():
            numbered.sort()

    def place_of(self, low: Low, covered_from: Place) -> Place:
        """The place up to which the transactions are in `low`; `covered_from` when none after it is.

        With binlog_order_commits=ON those in `low` are a prefix. A hole means that order was given up, and judging by
        place would lose or repeat rows: StateUnreadable. SpoolGap when `low` lacks a transaction at or before
        `covered_from`, so that changes which it needs are not in the spool.
        """
        if isinstance(low, Place):
            if low < covered_from:
                raise SpoolGap(f"the spool begins at {covered_from}, a split needs it from {low}")
            return low
        if not self._before <= low:
            raise SpoolGap(f"the spool begins after {self._before - low}, which a split needs")
        indices = self._indices(low)
        inside = len(indices)
        if max(indices, default=-1) != inside - 1:
            raise StateUnreadable(f"transactions are executed out of order: binlog_order_commits was off before {low}")
        if inside < len(self._places) and self._places[inside] <= covered_from:
            raise SpoolGap(f"the table was not watched before {covered_from}, a split needs {self._gtids[inside]}")
        return max(self._places[inside - 1], covered_from) if inside else covered_from

    def _indices(self, low: GtidSet) -> list[int]:
        """Where in binlog order the transactions of `low` stand, unsorted."""
        found: list[int] = []
        for source, intervals in low.members:
            numbered = self._by_source.get(source, [])
            for first, last in intervals:
                begin, end = bisect_left(numbered, (first, 0)), bisect_left(numbered, (last + 1, 0))
                found += [index for _, index in numbered[begin:end]]
        return found
