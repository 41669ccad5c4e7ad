"""Readers of the changelog that are at work: a run does not remove segments that such a reader has not read yet.

A reader writes into a file of its own how far it has read. A reader whose file is older than ten minutes counts as
ended. So a reader that hangs cannot make the archive grow without end.
"""

import math
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakeingest.core.binlog.position import Place
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File

GONE_SECONDS = 600.0  # a reader counts as ended if its file is older
TOUCH_SECONDS = 10.0  # a reader writes its file at most once in this time


class Reader:
    """A reader that is at work, and its file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._touched = -math.inf  # never

    def has_read(self, place: Place) -> None:
        """Note that the reader has read all changes up to this place, so that segments up to there can be removed.

        A call within TOUCH_SECONDS of the last noted one does nothing. A reader that does not call this for
        GONE_SECONDS counts as ended.
        """
        if time.monotonic() - self._touched > TOUCH_SECONDS:
            self._touched = time.monotonic()
            with _ignored_failure():
                new = self._file.with_suffix(".new")
                new.write(str(place).encode())
                new.move_to(self._file)


@contextmanager
def reading(spool: File) -> Iterator[Reader]:
    """A reader that is at work within the block, and has read nothing yet. The reader's file is removed afterwards."""
    file = spool / "archive" / "readers" / f"{uuid.uuid4().hex}.txt"
    with _ignored_failure():
        file.parent.make_folder()
    reader = Reader(file)
    reader.has_read(Place(0, 0, 0))  # makes the file
    try:
        yield reader
    finally:
        with _ignored_failure():
            file.delete()


def needed_by_readers(spool: File) -> Place | None:
    """The place up to which all readers at work have read; None if nobody reads. Removes files of ended readers.

    A reader whose file cannot be read does not count.
    """
    places = []
    at_work = (spool / "archive" / "readers").listed("*.txt")
    now = spool.now() if at_work else 0.0
    for file in at_work:
        with _ignored_failure():
            # `abs`: if the clock was set back, a file of an ended reader can be from the future
            if abs(now - file.changed()) > GONE_SECONDS:
                file.delete()
            else:
                places.append(Place.parse(file.read().decode()))
    return min(places, default=None)


def _ignored_failure() -> suppress:
    """Ignore a failure of the block: a reader can work without a right to write into the folder.

    Such a reader has to be fast, because segments that it has not read yet can be removed.
    """
    return suppress(OSError, LakeIngestError)
