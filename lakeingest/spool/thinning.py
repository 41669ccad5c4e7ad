"""Thinning: while one table stands still, other tables' files leave the segments that only this table needs.

Small segments that are left are joined.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from itertools import groupby, pairwise

from lakeingest.core.position import Place, Position
from lakeingest.core.schema import TableId
from lakeingest.spool.joined import JOIN, LAST_LEVEL, joined
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.readers import needed_by_readers
from lakeingest.spool.spool import Spool
from lakeingest.state import store

Part = tuple[int, Position, Manifest, Position]  # as `Spool.parts` has it

LARGE_ROWS = 100_000  # a segment of more rows is not joined; manifests count rows, and only the store knows bytes


def thin(spool: Spool, needed: Mapping[TableId, Place], keep: timedelta) -> None:
    """Remove the files of tables from segments that only other tables need. The last segment stays whole.

    `needed` has the place from which on each table needs the spool. Readers of the changelog can read a file for the
    time `keep`, counted from when it was spooled. Nothing is removed while a reader is at work.
    """
    if needed_by_readers(spool.folder) is not None:
        return
    old = spool.folder.now() - keep.total_seconds()
    for number, _, segment, after in list(spool.parts())[:-1]:
        unneeded = {
            table: spool.folder / file[0]
            for table, file in segment.tables.items()
            if file and table in needed and needed[table] >= after.place
        }
        with store.storage_errors(spool.folder):
            if any(path.changed() > old for path in unneeded.values()):
                return  # the files of later segments are not older
        if unneeded:
            spool.drop(number, unneeded)


def join_neighbours(spool: Spool, stands: Collection[Place]) -> None:
    """Join small neighbours that watch the same tables, as soon as there are many. The last segment stays as it is.

    `stands` are the places where copies stand. A segment still ends at each of them, because the spool proves the
    history of a copy by it.
    """
    for level in range(LAST_LEVEL):
        for group in list(_alike(spool, level, stands)):
            for first in range(0, len(group) - JOIN + 1, JOIN):
                numbers, parts = zip(*group[first : first + JOIN], strict=True)
                whole = joined(spool.folder, parts)
                if whole is not None:
                    spool.join(numbers, whole)


def _alike(spool: Spool, level: int, stands: Collection[Place]) -> Iterator[list[tuple[int, Manifest]]]:
    """Neighbours that can be joined, each with its number."""

    def kind(pair: tuple[Part, Part]) -> tuple[bool, int, list[TableId]]:
        # a joined segment stands for all numbers up to the next one, which is how its level is known
        (number, start, segment, _), (following, *_) = pair
        rows = sum(file[1] for file in segment.tables.values() if file)
        is_small = JOIN**level <= following - number < JOIN ** (level + 1) and rows <= LARGE_ROWS
        passed = sum(place <= start.place for place in stands)
        return is_small and not segment.alterations, passed, sorted(segment.tables)

    for (can_be_joined, *_), group in groupby(pairwise(spool.parts()), kind):
        if can_be_joined:
            yield [(number, segment) for (number, _, segment, _), _ in group]
