"""Readers of the changelog that are at work: segments that they have not read yet are not removed meanwhile.

A reader writes how far it has read into a file of its own. If it has not touched this file for ten minutes, it counts
as gone. So a reader that stands still cannot make the archive grow for ever.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakeingest.core.position import Place
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File

GONE_SECONDS = 600.0
TOUCH_SECONDS = 10.0


class Reader:
    """A reader at work; it says how far it has read."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._touched = 0.0

    def has_read(self, place: Place) -> None:
        """Allow segments up to this place to be removed. To be called again at least every few minutes."""
        if time.monotonic() - self._touched > TOUCH_SECONDS:
            self._touched = time.monotonic()
            with _allowed():
                new = self._file.with_suffix(".new")
                new.write(str(place).encode())
                new.move_to(self._file)


@contextmanager
def reading(spool: File) -> Iterator[Reader]:
    """A reader that is at work within the block, and has read nothing yet."""
    file = spool / "archive" / "readers" / f"{uuid.uuid4().hex}.txt"
    with _allowed():
        file.parent.make_folder()
    reader = Reader(file)
    reader.has_read(Place(0, 0, 0))
    try:
        yield reader
    finally:
        with _allowed():
            file.delete()


def needed_by_readers(spool: File) -> Place | None:
    """The place up to which all readers at work have read; None without a reader. Removes the files of gone readers."""
    places = []
    at_work = (spool / "archive" / "readers").listed("*.txt")
    now = spool.now() if at_work else 0.0
    for file in at_work:
        with _allowed():
            if abs(now - file.changed()) > GONE_SECONDS:  # a clock may have been set back since
                file.delete()
            else:
                places.append(Place.parse(file.read().decode()))
    return min(places, default=None)


def _allowed() -> suppress:
    """Ignore a failure of the block.

    A reader that may not write into the folder has to keep up: nothing waits for it.
    """
    return suppress(OSError, LakeIngestError)
