"""The archive: segments that no merge needs any more, for readers of the changelog.

spool/archive/id.json                     the name of this changelog: another one begins when the spool is opened anew
spool/archive/<start>-<stop>.<level>.json manifests; the files that they name stay in spool/data
spool/archive/readers/…                   readers that are at work

A run never reads the archive back, so that opening a run takes no longer. A run that follows makes a segment a second:
64 neighbours of one level are put together into one segment of the next level, with one file for each table.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool import reread_files
from lakeingest.spool.joined import JOIN, LAST_LEVEL, file_names, joined
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.readers import needed_by_readers
from lakeingest.state import store

LARGE_BYTES = 8 << 20  # a segment of more bytes is of the last level at once


@dataclass(frozen=True, slots=True)
class Archived:
    """A manifest of the archive by its file's name alone."""

    file: File
    start: Place
    stop: Place
    level: int

    @classmethod
    def of(cls, file: File) -> "Archived":
        """What the name says."""
        places, level, _ = file.name.rsplit(".", 2)
        start, _, stop = places.partition("-")
        return cls(file, Place.parse(start), Place.parse(stop), int(level))

    def read(self) -> Manifest:
        """The manifest; FileNotFoundError where it was removed meanwhile, StateUnreadable where it is damaged."""
        try:
            return Manifest.from_json(store.read(self.file))
        except DAMAGED as error:
            raise StateUnreadable(f"{self.file}, which the changelog needs, cannot be read: {error}") from error


def listed(spool: File) -> list[Archived]:
    """All manifests of the archive, in order; of those with one start the largest first."""
    found = (Archived.of(file) for file in (spool / "archive").listed("*-*.*.json"))
    return sorted(found, key=lambda one: (one.start, [-part for part in _parts(one.stop)]))


def names(spool: File) -> set[str]:
    """What the archive's manifests name, relative to the spool's folder."""
    return {name for one in listed(spool) for name in file_names(one.read())}


def name_of(spool: File) -> str:
    """The name of this changelog; '' for a spool of a version that gave it none."""
    try:
        return str(store.read(spool / "archive" / "id.json")["id"])
    except (OSError, *DAMAGED):
        return ""


def named(spool: File) -> str:
    """The name of this changelog, which it gets now if it has none."""
    if name := name_of(spool):
        return name
    clear(spool)  # the spool is of an earlier version, or was being opened when the process ended
    begin(spool)
    return name_of(spool)


def clear(spool: File) -> None:
    """Remove the name of the changelog first, then the archive, the oldest segment first, and rows read again."""
    folder = spool / "archive"
    store.make_folder(folder)
    with store.storage_errors(folder):
        (folder / "id.json").delete()
        _remove(spool, listed(spool))
    reread_files.clear(spool)


def empty(spool: File) -> None:
    """Remove all segments, the oldest first. The changelog goes on under its name, with what the spool has."""
    with store.storage_errors(spool / "archive"):
        _remove(spool, listed(spool))


def begin(spool: File) -> None:
    """Give the changelog a new name: the spool and the archive are what belongs to it."""
    store.replace(spool / "archive" / "id.json", {"id": uuid.uuid4().hex[:8]})


def keep(spool: File, epoch: int, segments: Iterable[tuple[File, Manifest]], kept_for: timedelta) -> None:
    """Take segments out of the spool into the archive, and remove what nobody needs there.

    That are segments which were spooled more than `kept_for` ago, and which no reader at work has still to read. In an
    object store the time counts from when they came into the archive. What lies before a gap is removed as well. A
    crash leaves each segment in the spool's folder, in the archive, or in both; it is finished by the next call.
    """
    folder = spool / "archive"
    named(spool)
    read_up_to = needed_by_readers(spool)
    wanted = bool(kept_for) or read_up_to is not None
    with store.storage_errors(folder):
        for manifest, segment in segments:
            if wanted:
                level = LAST_LEVEL if _bytes(spool, segment) > LARGE_BYTES else 0
                manifest.move_to(_file(folder, segment, epoch, level))
                folder.sync()  # before the spool's folder is synced, which has lost the name
            else:
                manifest.delete()
                _unlink(spool, segment)
        archived = listed(spool)
        _remove(spool, _due(archived, kept_for, time.time(), read_up_to))
        levels = [one.level for one in archived]
        if any(levels.count(level) >= JOIN for level in range(LAST_LEVEL)):
            _join(spool, epoch)


def _due(archived: Sequence[Archived], kept_for: timedelta, now: float, read_up_to: Place | None) -> list[Archived]:
    """What nobody needs: the oldest ones, those that a larger one replaces, and all before a gap."""
    due, chain = [], list[Archived]()
    for one in archived:
        if chain and one.stop <= chain[-1].stop:
            due.append(one)
        else:
            chain.append(one)
    connected = list[Archived]()
    for one in reversed(chain):
        if connected and one.stop != connected[-1].start:
            break
        connected.append(one)
    due += chain[: len(chain) - len(connected)]
    for one in reversed(connected):
        unread = read_up_to is not None and one.stop > read_up_to
        if unread or now - one.file.changed() < kept_for.total_seconds():
            break
        due.append(one)
    return due


def _join(spool: File, epoch: int) -> None:
    """Put neighbours of one level together, where there are enough of that level."""
    for level in range(LAST_LEVEL):
        archived = [(one, one.read()) for one in listed(spool)]
        if sum(one.level == level for one, _ in archived) < JOIN:
            continue
        for (is_such, *_), group in groupby(archived, key=lambda pair: _kind(pair[0], pair[1], level)):
            if is_such:
                _put_together(spool, epoch, list(group), level + 1)


def _kind(one: Archived, manifest: Manifest, level: int) -> tuple[bool, bool, list[TableId]]:
    """Neighbours of one kind are put together: of this level, with the same tables; DDL is of a kind of its own."""
    return one.level == level, bool(manifest.alterations), sorted(manifest.tables)


def _put_together(spool: File, epoch: int, group: Sequence[tuple[Archived, Manifest]], level: int) -> None:
    """One segment of the next level instead of these: its files first, then its manifest, then the others go."""
    whole = joined(spool, [manifest for _, manifest in group]) if len(group) > 1 else None
    if whole is None:
        for one, manifest in group:
            one.file.move_to(_file(spool / "archive", manifest, epoch, level))
        return
    file = _file(spool / "archive", whole, epoch, LAST_LEVEL if _bytes(spool, whole) > LARGE_BYTES else level)
    youngest = max(one.file.changed() for one, _ in group)
    store.create(file, whole.to_json())
    file.set_changed(youngest)
    _remove(spool, [one for one, _ in group])


def _bytes(spool: File, segment: Manifest) -> int:
    return files.total(spool / name for name in file_names(segment))


def _file(folder: File, segment: Manifest, epoch: int, level: int) -> File:
    return folder / f"{segment.start.place(epoch)}-{segment.stop.place(epoch)}.{level}.json"


def _remove(spool: File, archived: Sequence[Archived]) -> None:
    """Delete manifests, in order, then the files that they name. So no manifest names a missing file."""
    gone = []
    for one in archived:
        gone.append(one.read())
        one.file.delete()
    if gone:
        (spool / "archive").sync()
    for segment in gone:
        _unlink(spool, segment)


def _unlink(spool: File, segment: Manifest) -> None:
    for name in file_names(segment):
        (spool / name).delete()


def _parts(place: Place) -> tuple[int, int, int]:
    return place.epoch, place.file, place.pos
