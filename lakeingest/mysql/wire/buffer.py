"""A buffer of received bytes: the unused bytes are always contiguous."""

import numpy as np

from lakeingest.mysql.wire.compiled import SLACK

_SIZE_MAX = (1 << 31) - 1 - SLACK  # offsets into the buffer have 31 bits


class Buffer:
    """`data[at:end]` was received and is not used yet. The code that uses bytes moves `at`."""

    def __init__(self, size: int) -> None:
        self.data = np.empty(size + SLACK, np.uint8)
        self.at = self.end = 0

    @property
    def is_full(self) -> bool:
        """Whether no more bytes fit before `make_room`."""
        return self.end == len(self.data) - SLACK

    def room(self) -> memoryview:
        """The free space after the received bytes."""
        return memoryview(self.data)[self.end : len(self.data) - SLACK]  # type: ignore[arg-type]

    def make_room(self) -> None:
        """Move the unused bytes to the front, or double the size if they fill more than half of it.

        Offsets into `data` become invalid. ValueError when the buffer would have more than 2 GiB.
        """
        unused = self.data[self.at : self.end]
        size = len(self.data) - SLACK
        if len(unused) > size // 2:
            if size == _SIZE_MAX:
                raise ValueError("one packet or event has more than 2 GiB")
            size = min(size * 2, _SIZE_MAX)
            grown = np.empty(size + SLACK, np.uint8)
            grown[: len(unused)] = unused
            self.data = grown
        else:
            self.data[: len(unused)] = unused  # numpy handles the overlap
        self.at, self.end = 0, len(unused)
