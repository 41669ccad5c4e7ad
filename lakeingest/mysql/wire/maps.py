"""The TABLE_MAP events that were seen, byte by byte: most transactions repeat those of the ones before."""

import numpy as np

from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.follow import Map, map_place

_PLACES = 1 << 10
_BYTES = 1 << 16
_IDS_MAX = 10_000  # a server gives out new ids all the time where it has more tables than it keeps open


class Maps:
    """A hash table by table id (`follow.Map`), and the bytes that its entries name."""

    def __init__(self) -> None:
        self.places = np.zeros((_PLACES, len(Map)), np.int64)
        self.data = np.empty(_BYTES + SLACK, np.uint8)
        self._used = 0
        self._count = 0
        self._most = _IDS_MAX  # a transaction may name more, which are not forgotten before its end

    def add(self, table_id: int, payload: bytes, table: int, seen: int) -> None:
        """Remember a TABLE_MAP event of the table with that number (−1: it is not copied), seen in a transaction."""
        if self._count >= self._most:
            self._forget(seen)
        if 2 * self._count >= len(self.places):
            self._rebuild(self.places[self.places[:, Map.SIZE] > 0], 2 * len(self.places))
        if self._used + len(payload) + SLACK > len(self.data):
            self.data = np.concatenate([self.data, np.empty(len(self.data) + len(payload), np.uint8)])
        place = map_place(self.places, table_id)
        self._count += not self.places[place, Map.SIZE]
        self.data[self._used : self._used + len(payload)] = np.frombuffer(payload, np.uint8)
        self.places[place] = (table_id, self._used, len(payload), table, seen)
        self._used += len(payload)

    def table(self, table_id: int, seen: int) -> int | None:
        """The number of the table of that id, −1 if it is not copied; None if no event of the transaction named it."""
        entry = self.places[map_place(self.places, table_id)]
        return int(entry[Map.TABLE]) if entry[Map.SIZE] and entry[Map.SEEN] == seen else None

    def _forget(self, seen: int) -> None:
        """Keep only what the transaction itself has seen."""
        kept = self.places[(self.places[:, Map.SIZE] > 0) & (self.places[:, Map.SEEN] == seen)]
        kept = kept[np.argsort(kept[:, Map.START])]
        self._used = 0
        for entry in kept:  # each moves to the front, over what is forgotten
            start, size = int(entry[Map.START]), int(entry[Map.SIZE])
            self.data[self._used : self._used + size] = self.data[start : start + size]
            entry[Map.START] = self._used
            self._used += size
        self._rebuild(kept, max(_PLACES, 1 << (4 * len(kept)).bit_length()))
        self._most = max(_IDS_MAX, 2 * len(kept))

    def _rebuild(self, kept: np.ndarray, size: int) -> None:
        self.places = np.zeros((size, len(Map)), np.int64)
        self._count = len(kept)
        for entry in kept:
            self.places[map_place(self.places, int(entry[Map.ID]))] = entry
