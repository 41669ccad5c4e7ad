"""Readers of the changelog that are at work: segments that they have not read yet are not removed meanwhile.

A reader writes how far it has read into a file of its own. One that has not touched its file for ten minutes is taken
for gone. So a reader that stands still cannot make the archive grow for ever.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeingest.core.position import Place
from lakeingest.errors import StateUnreadable

GONE_SECONDS = 600.0
TOUCH_SECONDS = 10.0


class Reader:
    """One reader at work; it tells how far it has read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._touched = 0.0

    def has_read(self, place: Place) -> None:
        """Segments up to this place may be removed; to be called again at least every few minutes."""
        if time.monotonic() - self._touched > TOUCH_SECONDS:
            self._touched = time.monotonic()
            with suppress(OSError):  # a folder that this user may only read: the reader has to keep up then
                new = self._file.with_suffix(".new")
                new.write_text(str(place))
                new.replace(self._file)


@contextmanager
def reading(spool: Path) -> Iterator[Reader]:
    """A reader that is at work within the block; it has read nothing yet."""
    file = spool / "archive" / "readers" / f"{uuid.uuid4().hex}.txt"
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    reader = Reader(file)
    reader.has_read(Place(0, 0, 0))
    try:
        yield reader
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def needed_by_readers(spool: Path) -> Place | None:
    """Up to here every reader at work has read; None where there is no reader. Files of gone readers are removed."""
    places = []
    for file in (spool / "archive" / "readers").glob("*.txt"):
        with suppress(OSError, StateUnreadable):
            if time.time() - file.stat().st_mtime > GONE_SECONDS:
                file.unlink()
            else:
                places.append(Place.parse(file.read_text()))
    return min(places, default=None)
