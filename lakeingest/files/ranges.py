"""A large file of an object store as an open file: each read is a request for a part."""

import io
import os
from collections.abc import Callable


class Ranges(io.RawIOBase):
    """An open file to read; FileNotFoundError from a read when it is removed meanwhile.

    `part` requests the bytes from one place up to another.
    """

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._part, self._size, self._at = part, size, 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from any place."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Let the next read begin there."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, as many as are wanted and there."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        found = self._part(self._at, end)
        self._at = end
        return found
