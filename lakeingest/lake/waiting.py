"""Files of a table that no kept commit needs and a query may still read: their removal waits in the state folder.

<state>/waiting/<database>.<table>/
  began.json     the time since when all removals are stored in this folder
  <name>.json    a removal: since when it waits, and of what; made after the last use of the files by a commit

A removal is stored durably before anything is deleted, and its document goes when everything is deleted. So an
interrupted removal is done again. If the folder is lost, `maintain` finds the files, but deletes them only when every
query that began before the loss has ended.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from lakeingest.config import History
from lakeingest.core.file_names import file_name
from lakeingest.core.moment import Moment
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.files.local import Local

BEGAN = "began.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal that waits since a moment. `of` is the document that its format has stored."""

    file: File
    since: Moment
    of: Mapping[str, Any]

    def drop(self) -> None:
        """Forget the removal: it is done."""
        self.file.delete()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The removals of one table. `readers` is the longest time that a query may last."""

    folder: File
    readers: timedelta

    def add(self, name: str, of: Mapping[str, Any]) -> None:
        """Store a removal under a name that sorts after the older ones; nothing where it is stored already.

        It waits from now on, so the last use of its files must be over.
        """
        self.begin()
        (self.folder / f"{name}.json").create({"since": self._now().to_json(), **of})

    def begin(self) -> None:
        """Note that all removals are stored here from now on, unless the folder says so since an earlier time."""
        if not (self.folder / BEGAN).exists():
            self._begin_again()

    def has(self, suffix: str) -> bool:
        """Whether a removal is stored whose name ends with `suffix`."""
        return any(file.stem.endswith(suffix) for file in self._files())

    def due(self, most: int | None = None) -> Iterator[Removal]:
        """The oldest removals that have waited for long enough, `most` at most."""
        now: Moment | None = None
        for file in self._files()[:most]:
            now = now or self._now()
            removal = self._read(file)
            if removal is None:
                continue
            if removal.since.is_ahead_of(now):  # a clock was wrong: it waits from now on, not for years
                file.put_document({**removal.of, "since": now.to_json()})
                continue
            if now.seconds_since(removal.since) < self.readers.total_seconds():
                return
            yield removal

    def all(self) -> list[Removal]:
        """All removals, whether they are due or not."""
        return [removal for file in self._files() if (removal := self._read(file)) is not None]

    def is_whole(self) -> bool:
        """Whether the folder names everything that a query may still read: it is as old as the longest query.

        A folder that is missing, because it was lost or nothing was removed yet, is made, and is whole from some time
        on.
        """
        if not self.readers:
            return True
        now, began = self._now(), self._began()
        if began is None or began.is_ahead_of(now):
            self._begin_again()
            return False
        return now.seconds_since(began) >= self.readers.total_seconds()

    def _began(self) -> Moment | None:
        """The time since when the folder has all removals; None where it does not say."""
        try:
            return Moment.from_json(files.document(self.folder / BEGAN)["since"])
        except (FileNotFoundError, *DAMAGED):
            return None

    def _begin_again(self) -> None:
        """Note that removals from before now may be missing."""
        self.folder.make_folder()
        (self.folder / BEGAN).put_document({"since": self._now().to_json()})

    def _files(self) -> list[File]:
        return [file for file in self.folder.listed("*.json") if file.name != BEGAN]

    def _read(self, file: File) -> Removal | None:
        """A removal; None for a damaged one, which is lost, or one that another run has just done."""
        try:
            doc = files.document(file)
            return Removal(file, Moment.from_json(doc["since"]), doc)
        except FileNotFoundError:
            return None
        except DAMAGED:
            self._begin_again()
            file.delete()
            return None

    def _now(self) -> Moment:
        """The time by the store's clock, or by this machine's clocks."""
        wall = self.folder.now()
        boot = _boot() if isinstance(self.folder, Local) else None
        return Moment(wall, "", wall) if boot is None else Moment(wall, boot, time.clock_gettime(time.CLOCK_BOOTTIME))


def waiting_of(folder: File, table: TableId, history: History) -> Waiting:
    """The removals of a table. `folder` has those of all tables."""
    return Waiting(folder / file_name(str(table)), history.readers)


def _boot() -> str | None:
    """The id of the machine's current boot; None where the machine does not tell."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return None
