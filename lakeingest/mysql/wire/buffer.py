"""A buffer of received bytes. The bytes that are not used yet are always contiguous."""

import numpy as np

from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.events import Damaged

SENT_MAX = (1 << 30) + (1 << 16)  # the greatest max_allowed_packet, and space for headers: no packet is larger
UNPACKED_MAX = (1 << 31) - 1 - SLACK  # because offsets into the buffer have 31 bits


class Buffer:
    """The bytes `data[at:end]` were received and are not used yet.

    Who receives bytes moves `end`. Who uses bytes moves `at`. The buffer grows up to `most` bytes: SENT_MAX for bytes
    from a server, UNPACKED_MAX for the events of a compressed or prepared transaction.
    """

    def __init__(self, size: int, most: int = SENT_MAX) -> None:
        self._most = most
        self.data = np.empty(size + SLACK, np.uint8)
        self.at = self.end = 0

    @property
    def is_full(self) -> bool:
        """Whether no more bytes fit before `make_room`."""
        return self.end == len(self.data) - SLACK

    def free_space(self) -> memoryview:
        """The free space after the received bytes."""
        return memoryview(self.data)[self.end : len(self.data) - SLACK]  # type: ignore[arg-type]

    def make_room(self) -> None:
        """Move the bytes `data[at:end]` to the front. Offsets into `data` become invalid.

        If these bytes fill more than half of the buffer, the buffer is doubled, up to `most` bytes. Raises Damaged if
        they fill a buffer of `most` bytes: no packet or event is that long.
        """
        remaining = self.data[self.at : self.end]
        size = len(self.data) - SLACK
        if len(remaining) == self._most:
            raise Damaged(f"a packet or event of more than {size} bytes, which no server sends")
        if len(remaining) > size // 2 and size < self._most:  # moving alone would leave too little room
            size = min(size * 2, self._most)
            grown = np.empty(size + SLACK, np.uint8)
            grown[: len(remaining)] = remaining
            self.data = grown
        else:
            self.data[: len(remaining)] = remaining  # numpy handles the overlap
        self.at, self.end = 0, len(remaining)
