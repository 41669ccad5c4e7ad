"""Thinning: while a table stands still, the spool keeps only what it needs from there on, in few files."""

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
    """Drop the files of tables from segments that only others need. The last segment stays whole.

    `needed` says from where on each table needs the spool. Readers of the changelog can read a file for the time
    `keep`, counted from when it was spooled; nothing is dropped while a reader is at work.
    """
    if needed_by_readers(spool.folder) is not None:
        return
    old = spool.folder.now() - keep.total_seconds()
    for number, _, segment, after in list(spool.parts())[:-1]:
        over = {
            table: spool.folder / file[0]
            for table, file in segment.tables.items()
            if file and table in needed and needed[table] >= after.place
        }
        with store.storage_errors(spool.folder):
            if any(path.changed() > old for path in over.values()):
                return  # the later ones are not older
        if over:
            spool.drop(number, over)


def join_neighbours(spool: Spool, stands: Collection[Place]) -> None:
    """Join small neighbours that watch the same tables, as soon as there are many. The last segment stays as it is.

    A segment goes on to end at each place where a copy `stands`: by that the spool proves its history.
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
        (number, before, segment, _), (following, *_) = pair  # one that was joined has the numbers up to the next one
        rows = sum(file[1] for file in segment.tables.values() if file)
        is_small = JOIN**level <= following - number < JOIN ** (level + 1) and rows <= LARGE_ROWS
        passed = sum(place <= before.place for place in stands)
        return is_small and not segment.alterations, passed, sorted(segment.tables)

    for (can_be_joined, *_), group in groupby(pairwise(spool.parts()), kind):
        if can_be_joined:
            yield [(number, segment) for (number, _, segment, _), _ in group]
