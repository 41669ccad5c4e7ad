"""A large file of an object store as an open file: each read is a request for a part."""

import io
import os
from collections.abc import Callable


class Ranges(io.RawIOBase):
    """A file that is open to read. A read raises FileNotFoundError if the file was removed meanwhile.

    `part` requests the bytes from one offset up to another, and `size` is the size of the file in bytes.
    """

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._part, self._size, self._at = part, size, 0

    def readable(self) -> bool:
        """True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """True: the file can be read from any offset."""
        return True

    def tell(self) -> int:
        """The offset at which the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set and return the offset at which the next read begins."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes: at most `size`, and fewer at the end of the file."""
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        contents = self._part(self._at, end)
        self._at = end
        return contents
