"""Removals of files that wait in the state folder: no commit needs the files, but a query may still read them.

<state>/waiting/<database>.<table>/
  began.json     the time since which all removals are stored in this folder
  <name>.json    a removal: its files, and the time since which they wait

A removal is stored durably before any of its files is deleted. Its document is deleted last. So an interrupted removal
is repeated. If the folder is lost, `maintain` finds the files, but deletes them only when every query that began before
the loss has ended: `began.json` says when the folder was made again.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakeingest.config import History
from lakeingest.core.figures.moment import Moment
from lakeingest.core.file_names import file_name
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local

BEGAN = "began.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal that waits since the moment `since`. `of` is its document, in which the lake format names the files."""

    file: File
    since: Moment
    of: Mapping[str, Any]

    def drop(self) -> None:
        """Delete the document of the removal, after its files were deleted."""
        self.file.delete()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The removals of one table. `longest_query` is the longest time that a query may last."""

    folder: File
    longest_query: timedelta

    def add(self, name: str, of: Mapping[str, Any]) -> None:
        """Store a removal with the document `of`, unless one with this name exists. `name` must sort after older names.

        The removal waits from now on. Callers know that no commit needs its files any more.
        """
        self.begin()
        (self.folder / f"{name}.json").create({"since": self._now().to_json(), **of})

    def begin(self) -> None:
        """Note that all removals are stored here from now on, unless such a note exists already."""
        if not (self.folder / BEGAN).exists():
            self._begin_now()

    def has(self, suffix: str) -> bool:
        """Whether a removal is stored whose name ends with `suffix`."""
        return any(file.stem.endswith(suffix) for file in self._files())

    def due(self, most: int | None = None) -> Iterator[Removal]:
        """The removals that have waited for long enough, the oldest first.

        Only the `most` oldest removals are checked; None: all of them. One whose time is ahead of the clock waits anew.
        """
        now: Moment | None = None
        for file in self._files()[:most]:
            now = now or self._now()  # only if there is a removal, because a store needs requests to tell the time
            removal = self._read(file)
            if removal is None:
                continue
            if removal.since.is_ahead_of(now):  # a clock was wrong: the removal waits from now on, not for years
                file.put_document({**removal.of, "since": now.to_json()})
                continue
            if now.seconds_since(removal.since) < self.longest_query.total_seconds():
                return  # the removals after this one are younger
            yield removal

    def all(self) -> list[Removal]:
        """All removals, whether they are due or not. Damaged ones are left out, and deleted."""
        removals = [self._read(file) for file in self._files()]
        return [removal for removal in removals if removal is not None]

    def check_whole(self) -> bool:
        """Whether the folder has every removal whose files a query may still read; also True if removals do not wait.

        The folder's note, `began.json`, says since when removals are stored here: earlier removals may be missing. Once
        the note is older than the longest query, no query can read their files any more. If the note is missing,
        because the folder was lost or nothing was removed yet, or if its time is ahead of the clock, the note is made
        anew, and False is returned.
        """
        if not self.longest_query:  # removals do not wait
            return True
        now, began = self._now(), self._began()
        if began is None or began.is_ahead_of(now):  # ahead: a clock was wrong, so the note proves nothing
            self._begin_now()
            return False
        return now.seconds_since(began) >= self.longest_query.total_seconds()

    def _began(self) -> Moment | None:
        """The time since which all removals are stored in the folder; None if no readable note says it."""
        try:
            return Moment.from_json(files.document(self.folder / BEGAN)["since"])
        except (FileNotFoundError, *DAMAGED):
            return None

    def _begin_now(self) -> None:
        """Note that removals are stored here from now on, and that older ones may be missing."""
        self.folder.make_folder()
        (self.folder / BEGAN).put_document({"since": self._now().to_json()})

    def _files(self) -> list[File]:
        """The documents of all removals, the oldest first."""
        return [file for file in self.folder.listed("*.json") if file.name != BEGAN]

    def _read(self, file: File) -> Removal | None:
        """The removal in a file; None if the file was just deleted, or is damaged.

        A damaged file is deleted. Its removal is lost, so the note is made again: older removals may be missing.
        """
        try:
            doc = files.document(file)
            return Removal(file, Moment.from_json(doc["since"]), doc)
        except FileNotFoundError:
            return None
        except DAMAGED:
            self._begin_now()  # first: if a crash follows, the damaged file is found again
            file.delete()
            return None

    def _now(self) -> Moment:
        """The time by the store's clock; for a local folder, also the time by the clock that runs since the boot."""
        wall = self.folder.now()
        boot = _boot() if isinstance(self.folder, Local) else None
        if boot is None:  # there is only one clock, whose time is in both fields
            return Moment(wall, "", wall)
        return Moment(wall, boot, time.clock_gettime(time.CLOCK_BOOTTIME))


def waiting_of(folder: File, table: TableId, history: History) -> Waiting:
    """The removals of a table that wait. `folder` is the folder of the removals of all tables."""
    return Waiting(folder / file_name(str(table)), history.readers)


def _boot() -> str | None:
    """The id of the machine's current boot; None if the machine does not say it."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return None
