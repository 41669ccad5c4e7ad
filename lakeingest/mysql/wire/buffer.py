"""Bytes as they arrive: those that were not used yet stand in one piece."""

import numpy as np

from lakeingest.mysql.wire.compiled import SLACK

_MOST = (1 << 31) - 1 - SLACK  # places in it are numbers of 31 bits


class Buffer:
    """`data[at:end]` has arrived and was not used yet. Whoever uses bytes moves `at`."""

    def __init__(self, size: int) -> None:
        self.data = np.empty(size + SLACK, np.uint8)
        self.at = self.end = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more can arrive before `make_room`."""
        return self.end == len(self.data) - SLACK

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self.data)[self.end : len(self.data) - SLACK]  # type: ignore[arg-type]

    def make_room(self) -> None:
        """Move what was not used to the front, and double the size if that is all there is.

        Places in `data` are no longer what they were. ValueError when it would have more than 2 GiB.
        """
        unused = self.data[self.at : self.end]
        size = len(self.data) - SLACK
        if len(unused) > size // 2:
            if size == _MOST:
                raise ValueError("one packet or event has more than 2 GiB")
            size = min(size * 2, _MOST)
            grown = np.empty(size + SLACK, np.uint8)
            grown[: len(unused)] = unused
            self.data = grown
        else:
            self.data[: len(unused)] = unused  # numpy copes with the overlap
        self.at, self.end = 0, len(unused)
