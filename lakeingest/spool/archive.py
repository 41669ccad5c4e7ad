"""The archive: segments that no merge needs any more, for readers of the changelog.

spool/archive/id.json                     the name of this changelog; a spool that is opened anew gets a new name
spool/archive/<start>-<stop>.<level>.json the manifests; their data files stay in spool/data
spool/archive/readers/…                   readers that are at work

A run does not read the archive to open the spool, so a large archive does not slow it down. A run that follows the
source makes one segment in each second. So 64 neighbours of one level are joined into one segment of the next level,
with one file for each table.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool import reread_files
from lakeingest.spool.joined import JOIN, LAST_LEVEL, file_names, join_segments
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.readers import needed_by_readers
from lakeingest.state import store

LARGE_BYTES = 8 << 20  # a segment of more bytes goes to the last level at once, and is never joined


@dataclass(frozen=True, slots=True)
class Archived:
    """A manifest of the archive, with what the name of its file says. `read` reads the rest."""

    file: File
    start: Place
    stop: Place
    level: int

    @classmethod
    def of(cls, file: File) -> "Archived":
        """Start, stop and level from the file's name."""
        places, level, _ = file.name.rsplit(".", 2)
        start, _, stop = places.partition("-")
        return cls(file, Place.parse(start), Place.parse(stop), int(level))

    def read(self) -> Manifest:
        """The manifest. Raises FileNotFoundError if a run has removed it, StateUnreadable if it is damaged."""
        try:
            return Manifest.from_json(store.read(self.file))
        except DAMAGED as error:
            raise StateUnreadable(f"{self.file}, which the changelog needs, cannot be read: {error}") from error


def all_archived(spool: File) -> list[Archived]:
    """All manifests of the archive in the order of their starts; of those with the same start, the longest first."""
    segments = (Archived.of(file) for file in (spool / "archive").listed("*-*.*.json"))
    return sorted(segments, key=lambda segment: (segment.start, [-part for part in _parts(segment.stop)]))


def named_files(spool: File) -> set[str]:
    """The files that the archive's manifests name, relative to the spool's folder. Raises as `Archived.read`."""
    return {name for segment in all_archived(spool) for name in file_names(segment.read())}


def name_of(spool: File) -> str:
    """The name of this changelog; '' if the name cannot be read, or is missing."""
    return store.read_or(spool / "archive" / "id.json", lambda doc: str(doc["id"]), "")


def ensure_name(spool: File) -> str:
    """The name of this changelog. A changelog without a name gets one now; its archive and reread rows are removed."""
    if name := name_of(spool):
        return name
    clear(spool)  # the run that opened the spool ended before it gave the name
    give_name(spool)
    return name_of(spool)


def clear(spool: File) -> None:
    """Remove all that belongs to this changelog beside the spool: its name, then the archive, then the reread rows."""
    folder = spool / "archive"
    store.make_folder(folder)
    with store.storage_errors(folder):
        (folder / "id.json").delete()
        _remove(spool, all_archived(spool))
    reread_files.clear(spool)


def remove_segments(spool: File) -> None:
    """Remove all segments of the archive, the oldest first. The changelog keeps its name and the spool's segments."""
    with store.storage_errors(spool / "archive"):
        _remove(spool, all_archived(spool))


def give_name(spool: File) -> None:
    """Give the changelog, which is the spool and the archive, a new name. Its folder exists, as after `clear`."""
    store.replace(spool / "archive" / "id.json", {"id": uuid.uuid4().hex[:8]})


def archive_or_delete(spool: File, epoch: int, segments: Iterable[tuple[File, Manifest]], kept_for: timedelta) -> None:
    """Move segments from the spool into the archive; or delete them, if `kept_for` is zero and no reader is at work.

    `segments`: the manifest of each segment, with its file. Then archived segments that nobody needs are removed,
    and small neighbours are joined. A segment is needed for the time `kept_for` after it was spooled, and while a
    reader at work has not read it yet. In an object store the time counts from the move into the archive, because the
    move gives the manifest a new time. Archived segments before a gap are not needed.

    After a crash each segment is in the spool's folder, in the archive, or in both; the next call finishes the work.
    """
    folder = spool / "archive"
    ensure_name(spool)
    read_up_to = needed_by_readers(spool)
    must_archive = bool(kept_for) or read_up_to is not None
    with store.storage_errors(folder):
        for file, segment in segments:
            if must_archive:
                level = LAST_LEVEL if _bytes(spool, segment) > LARGE_BYTES else 0
                file.move_to(_file(folder, segment, epoch, level))
                folder.sync()  # the new name must be durable before the old one is gone
            else:
                file.delete()
                _delete_files(spool, segment)
        archived = all_archived(spool)
        _remove(spool, _unneeded(archived, kept_for, cache(spool.now), read_up_to))
        # `_join` reads all manifests, so it is called only if the levels in the files' names show that it has work
        levels = [segment.level for segment in archived]
        if any(levels.count(level) >= JOIN for level in range(LAST_LEVEL)):
            _join(spool, epoch)


def _unneeded(
    archived: Sequence[Archived], kept_for: timedelta, now: Callable[[], float], read_up_to: Place | None
) -> list[Archived]:
    """The archived segments that nobody needs: covered by a larger segment, before a gap, or old and read already.

    `now` returns the time by the clock that sets the times of files. An object store takes three requests for it, so it
    is asked only about segments that are old by this machine's clock.
    """
    # Step 1: segments that a larger segment covers; the larger segment is before them in `archived`
    unneeded, chain = list[Archived](), list[Archived]()
    for segment in archived:
        if chain and segment.stop <= chain[-1].stop:
            unneeded.append(segment)
        else:
            chain.append(segment)
    # Step 2: segments before the last gap, because readers cannot read over a gap
    connected = list[Archived]()  # the segments after the last gap, the newest first
    for segment in reversed(chain):
        if connected and segment.stop != connected[-1].start:
            break
        connected.append(segment)
    count_before_gap = len(chain) - len(connected)
    unneeded += chain[:count_before_gap]
    # Step 3: the oldest of the other segments. The first needed segment ends the loop, because a removal after it would
    # make a gap.
    for segment in reversed(connected):
        is_unread = read_up_to is not None and segment.stop > read_up_to
        kept_until = segment.file.changed() + kept_for.total_seconds()
        if is_unread or time.time() < kept_until or now() < kept_until:
            break
        unneeded.append(segment)
    return unneeded


def _join(spool: File, epoch: int) -> None:
    """Join neighbours of each level that has at least `JOIN` segments, to segments of the next level."""
    for level in range(LAST_LEVEL):
        # listed again for each level, because the segments that were joined just now have the next level
        archived = [(segment, segment.read()) for segment in all_archived(spool)]
        if sum(segment.level == level for segment, _ in archived) < JOIN:
            continue
        for kind, group in groupby(archived, key=lambda pair: _kind(pair[0], pair[1], level)):
            has_level, *_ = kind
            if has_level:
                _join_group(spool, epoch, list(group), level + 1)


def _kind(segment: Archived, manifest: Manifest, level: int) -> tuple[bool, bool, list[TableId]]:
    """The properties that neighbours must share to be joined: having this level, being DDL, and the watched tables.

    Segments of another level are not joined.
    """
    return segment.level == level, bool(manifest.alterations), sorted(manifest.tables)


def _join_group(spool: File, epoch: int, group: Sequence[tuple[Archived, Manifest]], level: int) -> None:
    """Replace neighbours by one segment of `level`.

    A single segment, and neighbours that cannot be joined, are only moved to this level.
    """
    whole = join_segments(spool, [manifest for _, manifest in group]) if len(group) > 1 else None
    if whole is None:
        for segment, manifest in group:
            segment.file.move_to(_file(spool / "archive", manifest, epoch, level))
        return
    # The files of `whole` are durable. Its manifest is made before the neighbours are removed, so that no change is
    # missing at any moment. The manifest gets the time of the youngest neighbour, so that all are kept long enough.
    file = _file(spool / "archive", whole, epoch, LAST_LEVEL if _bytes(spool, whole) > LARGE_BYTES else level)
    youngest = max(segment.file.changed() for segment, _ in group)
    store.create(file, whole.to_json())
    file.set_changed(youngest)
    _remove(spool, [segment for segment, _ in group])


def _bytes(spool: File, segment: Manifest) -> int:
    """The size of a segment's files in bytes."""
    return files.total(spool / name for name in file_names(segment))


def _file(folder: File, segment: Manifest, epoch: int, level: int) -> File:
    """The file of a segment's manifest in the archive."""
    return folder / f"{segment.start.place(epoch)}-{segment.stop.place(epoch)}.{level}.json"


def _remove(spool: File, archived: Sequence[Archived]) -> None:
    """Delete these manifests, in order, then the files that they name. So no manifest names a missing file."""
    manifests: list[Manifest] = []
    for segment in archived:
        manifests.append(segment.read())
        segment.file.delete()
    if manifests:
        (spool / "archive").sync()
    for manifest in manifests:
        _delete_files(spool, manifest)


def _delete_files(spool: File, segment: Manifest) -> None:
    for name in file_names(segment):
        (spool / name).delete()


def _parts(place: Place) -> tuple[int, int, int]:
    """The parts of a place, the most significant first."""
    return place.epoch, place.file, place.pos
