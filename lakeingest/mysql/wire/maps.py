"""Keeps the TABLE_MAP events that were seen, with all their bytes: most transactions repeat events of earlier ones."""

import numpy as np

from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.events import Event, read_table_name
from lakeingest.mysql.wire.follow import Map, map_index

_ENTRIES = 1 << 10  # of the hash table at first
_BYTES = 1 << 16  # of the events at first
# The number of table ids at which those of earlier transactions are forgotten. A server with more tables than its table
# cache holds assigns new ids all the time, so without this limit the hash table would grow without end.
_IDS_MAX = 10_000


class Maps:
    """TABLE_MAP events: `entries` (`follow.Map`) is their hash table by table id, `data` has their bytes."""

    def __init__(self) -> None:
        self.entries = np.zeros((_ENTRIES, len(Map)), np.int64)
        self.data = np.empty(_BYTES + SLACK, np.uint8)
        self.met = set[TableId]()  # the tables of all events
        self._used = 0  # bytes of `data`
        self._count = 0  # of entries that are not free
        self._count_max = _IDS_MAX  # when so many entries are not free, those of earlier transactions are forgotten

    def meet(self, event: Event) -> TableId:
        """Add the table of a TABLE_MAP event to `met`; return the table."""
        table = read_table_name(event)
        self.met.add(table)
        return table

    def add(self, table_id: int, payload: bytes, table: int, seen: int) -> None:
        """Add a TABLE_MAP event: `payload` has its bytes without the header.

        `table` is the number of the table, −1 if the table is not copied; `seen` is the number of the transaction.
        """
        if self._count >= self._count_max:
            self._forget_earlier(seen)
        if 2 * self._count >= len(self.entries):  # at most half of the entries are used, so that a search is short
            self._rebuild(self.entries[self.entries[:, Map.SIZE] > 0], 2 * len(self.entries))
        if self._used + len(payload) + SLACK > len(self.data):
            self.data = np.concatenate([self.data, np.empty(len(self.data) + len(payload), np.uint8)])
        index = map_index(self.entries, table_id)
        if not self.entries[index, Map.SIZE]:
            self._count += 1
        self.data[self._used : self._used + len(payload)] = np.frombuffer(payload, np.uint8)
        self.entries[index] = (table_id, self._used, len(payload), table, seen)
        self._used += len(payload)

    def table(self, table_id: int, seen: int) -> int | None:
        """The number of the table with this id; −1 if the table is not copied.

        None if the transaction number `seen` has no TABLE_MAP event with this id.
        """
        entry = self.entries[map_index(self.entries, table_id)]
        is_in_transaction = entry[Map.SIZE] and entry[Map.SEEN] == seen  # an entry of size 0 is free
        return int(entry[Map.TABLE]) if is_in_transaction else None

    def _forget_earlier(self, seen: int) -> None:
        """Forget the entries of earlier transactions; `seen` is the number of the current transaction."""
        current = self.entries[(self.entries[:, Map.SIZE] > 0) & (self.entries[:, Map.SEEN] == seen)]
        current = current[np.argsort(current[:, Map.START])]
        self._used = 0
        for entry in current:  # in the order of their bytes in `data`: so no bytes are overwritten before they move
            start, size = int(entry[Map.START]), int(entry[Map.SIZE])
            self.data[self._used : self._used + size] = self.data[start : start + size]
            entry[Map.START] = self._used
            self._used += size
        # more than four times as many entries as are kept, as a power of two
        self._rebuild(current, max(_ENTRIES, 1 << (4 * len(current)).bit_length()))
        self._count_max = max(_IDS_MAX, 2 * len(current))  # so that a large transaction forgets rarely

    def _rebuild(self, entries: np.ndarray, size: int) -> None:
        """Make a hash table of `size` entries that has these entries."""
        self.entries = np.zeros((size, len(Map)), np.int64)
        self._count = len(entries)
        for entry in entries:
            self.entries[map_index(self.entries, int(entry[Map.ID]))] = entry
