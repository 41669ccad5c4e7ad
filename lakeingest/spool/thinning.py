"""Thinning: while one table is paused or stopped, old segments keep only the files of that table, and are joined."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from itertools import groupby, pairwise

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.tables.schema import TableId
from lakeingest.spool.joined import JOIN, LAST_LEVEL, join_segments
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.readers import needed_by_readers
from lakeingest.spool.spool import Spool
from lakeingest.state import store

Part = tuple[int, Position, Manifest, Position]  # as `Spool.parts` yields it

LARGE_ROWS = 100_000  # a segment of more rows is not joined; manifests count rows, and only the store knows bytes


def thin(spool: Spool, needed: Mapping[TableId, Place], keep: timedelta) -> None:
    """Remove from segments the files that their tables do not need any more. The last segment keeps all its files.

    `needed` has, by table, the place from which on the table needs the spool; the files of other tables stay. Each
    file stays for the time `keep` after it was spooled, because readers of the changelog may need it. Nothing is
    removed while a reader is at work.
    """
    if needed_by_readers(spool.folder) is not None:
        return
    kept_since = spool.folder.now() - keep.total_seconds()  # files that were written after this time stay
    for number, _, segment, end in list(spool.parts())[:-1]:  # a list, because `drop` changes the spool's segments
        unneeded = {
            table: spool.folder / entry[0]
            for table, entry in segment.tables.items()
            if entry and table in needed and needed[table] >= end.place
        }
        with store.storage_errors(spool.folder):
            if any(path.changed() > kept_since for path in unneeded.values()):
                return  # the files of later segments are not older, so they stay, too
        if unneeded:
            spool.drop(number, unneeded)


def join_neighbours(spool: Spool, stands: Collection[Place]) -> None:
    """Join small neighbours that watch the same tables, `JOIN` at a time. The last segment is not joined.

    Only neighbours of one level are joined. The level of a new segment is 0. A joined segment has the next level.

    `stands` has the places of copies. Segments are not joined over these places, because the spool compares the history
    of a copy with the history at the end of a segment.
    """
    for level in range(LAST_LEVEL):
        for group in list(_alike(spool, level, stands)):  # a list, because `join` changes the spool's segments
            for first in range(0, len(group) - JOIN + 1, JOIN):  # fewer than `JOIN` at the end wait for more segments
                numbers, parts = zip(*group[first : first + JOIN], strict=True)
                whole = join_segments(spool.folder, parts)
                if whole is not None:
                    spool.join(numbers, whole)


def _alike(spool: Spool, level: int, stands: Collection[Place]) -> Iterator[list[tuple[int, Manifest]]]:
    """Groups of neighbours of one level that can be joined, each segment with its number."""

    def kind(pair: tuple[Part, Part]) -> tuple[bool, int, list[TableId]]:
        """What the neighbours of a group have in common. `pair` has a segment and the segment after it."""
        # A joined segment takes the place of `JOIN` numbers, so the distance to the next number tells the level.
        # No group reaches over the place of a copy, because `passed` differs on the two sides of that place.
        (number, start, segment, _), (next_number, *_) = pair
        rows = sum(entry[1] for entry in segment.tables.values() if entry)
        has_level = JOIN**level <= next_number - number < JOIN ** (level + 1)
        can_be_joined = has_level and rows <= LARGE_ROWS and not segment.alterations
        passed = sum(place <= start.place for place in stands)  # the number of copies at or before the segment
        return can_be_joined, passed, sorted(segment.tables)

    with_next = pairwise(spool.parts())  # without the last segment, which has no next one
    for (can_be_joined, *_), group in groupby(with_next, kind):
        if can_be_joined:
            yield [(number, segment) for (number, _, segment, _), _ in group]
