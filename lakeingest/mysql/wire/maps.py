"""Keeps the TABLE_MAP events that were seen, with all their bytes: most transactions repeat earlier ones."""

import numpy as np

from lakeingest.core.schema import TableId
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.events import Event, read_table_name
from lakeingest.mysql.wire.follow import Map, map_place

_PLACES = 1 << 10
_BYTES = 1 << 16
_IDS_MAX = 10_000  # a server with more tables than its table cache holds assigns new ids all the time


class Maps:
    """A hash table by table id (`follow.Map`), and the bytes of its entries' events."""

    def __init__(self) -> None:
        self.places = np.zeros((_PLACES, len(Map)), np.int64)
        self.data = np.empty(_BYTES + SLACK, np.uint8)
        self.met = set[TableId]()  # the tables of all events
        self._used = 0
        self._count = 0
        self._most = _IDS_MAX  # the maps of the current transaction stay, even if they are more

    def met_by(self, event: Event) -> TableId:
        """The table of a TABLE_MAP event, which is added to `met`."""
        table = read_table_name(event)
        self.met.add(table)
        return table

    def add(self, table_id: int, payload: bytes, table: int, seen: int) -> None:
        """Add a TABLE_MAP event of table number `table` (−1: it is not copied), seen in transaction number `seen`."""
        if self._count >= self._most:
            self._forget(seen)
        if 2 * self._count >= len(self.places):
            self._rebuild(self.places[self.places[:, Map.SIZE] > 0], 2 * len(self.places))
        if self._used + len(payload) + SLACK > len(self.data):
            self.data = np.concatenate([self.data, np.empty(len(self.data) + len(payload), np.uint8)])
        place = map_place(self.places, table_id)
        if not self.places[place, Map.SIZE]:
            self._count += 1
        self.data[self._used : self._used + len(payload)] = np.frombuffer(payload, np.uint8)
        self.places[place] = (table_id, self._used, len(payload), table, seen)
        self._used += len(payload)

    def table(self, table_id: int, seen: int) -> int | None:
        """The number of the table with this id, −1 if it is not copied; None if the transaction has no event of it."""
        entry = self.places[map_place(self.places, table_id)]
        return int(entry[Map.TABLE]) if entry[Map.SIZE] and entry[Map.SEEN] == seen else None

    def _forget(self, seen: int) -> None:
        """Forget all maps but those of the current transaction."""
        current = self.places[(self.places[:, Map.SIZE] > 0) & (self.places[:, Map.SEEN] == seen)]
        current = current[np.argsort(current[:, Map.START])]
        self._used = 0
        for entry in current:  # in order of their bytes, which move to the front over forgotten bytes
            start, size = int(entry[Map.START]), int(entry[Map.SIZE])
            self.data[self._used : self._used + size] = self.data[start : start + size]
            entry[Map.START] = self._used
            self._used += size
        self._rebuild(current, max(_PLACES, 1 << (4 * len(current)).bit_length()))
        self._most = max(_IDS_MAX, 2 * len(current))

    def _rebuild(self, entries: np.ndarray, size: int) -> None:
        self.places = np.zeros((size, len(Map)), np.int64)
        self._count = len(entries)
        for entry in entries:
            self.places[map_place(self.places, int(entry[Map.ID]))] = entry
