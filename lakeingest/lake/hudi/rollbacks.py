"""Rollbacks of Hudi tables: the commits of others are taken out of the timeline, the last one first, with their files.

Hudi has no second name for a commit, so its rollback is not one step: between two of them readers see what they saw
before the commit that was taken out. First a commit is made incomplete, so that no reader sees it; then its files are
deleted; last what the timeline says of it. If that is interrupted, what is left is rolled back by whoever writes next.

Only what leaves our files as they are can be taken out: each write of a copy-on-write table makes new files.
"""

import re
import time
from collections.abc import Iterator

from lakeingest.core.schema import TableId
from lakeingest.errors import ForeignWrite
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.file_groups import assert_whole
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.lock import publishing
from lakeingest.lake.hudi.table_form import forget_indexes
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import Instant, completed, metadata_of, planned_clustering, timeline
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import stale
from lakeingest.lake.rollbacks import Rollback

_TAKEN_OUT = {"commit", "replacecommit"}
_HARMLESS = {"clean", "rollback"}


class HudiRollbacks:
    """`lake.rollbacks.Rollbacks` on Hudi tables."""

    def __init__(self, target: HudiTarget) -> None:
        self._target = target

    def found(self, table: TableId) -> Rollback | None:
        """By the timeline."""
        with self._target.storage_errors():
            return _found(self._folder(table)) if self._target.exists() else None

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Commit by commit. StaleWriter also where another run publishes."""
        folder, began = self._folder(table), time.time()
        with self._target.storage_errors(), publishing(table, folder.final):
            now = _found(folder)
            if now is None:
                return
            if now.shows != wanted.shows or not set(now.drops) <= set(wanted.drops):
                raise stale(table)
            forget_indexes(folder.place)
            for instant in now.drops:
                _take_out(folder.place, instant.rpartition(" ")[2])
            assert_whole(table, folder.place)
            folder.make_durable(began)

    def _folder(self, table: TableId) -> TableFolder:
        return self._target._folder_of(table)  # noqa: SLF001 - of the same package


def _found(folder: TableFolder) -> Rollback | None:
    """What is to be taken out; None if nothing is. Raises as `newest`; ForeignWrite where it cannot be taken out."""
    try:
        folder.published()
    except ForeignWrite as error:
        place, table = folder.place, folder.table
        foreign, ours = _foreign(place)
        if ours is None:
            raise
        if folder.ownership is not None:
            folder.ownership.assert_ours(table, ours.properties)
        drops = [f"commit {one.time}" for one in foreign]
        if (planned := planned_clustering(place)) is not None:
            drops.insert(0, f"plan {planned.name.partition('.')[0]}")
        if (hindrance := next(_hindrances(place, foreign, ours), None)) is not None:
            raise ForeignWrite(
                f"{table}: it cannot be rolled back to commit {ours.time}, because {hindrance}; remove {place} to copy"
                " the table again"
            ) from error
        return Rollback(f"commit {ours.time}", ours.version, tuple(drops))
    return None


def _foreign(place: File) -> tuple[list[Instant], Instant | None]:
    """The commits of others, the last first, and our last one below them; None where it has none."""
    foreign: list[Instant] = []
    for instant in completed(place):
        if OWNER in instant.properties:
            return foreign, instant
        foreign.append(instant)
    return foreign, None


def _hindrances(place: File, foreign: list[Instant], ours: Instant) -> Iterator[str]:
    """Why the rows of our commit may not be those that readers would see without the others."""
    above = {one.time for one in foreign}
    for file in timeline(place, "*_*.*"):
        times, _, kind = file.name.partition(".")
        begun = times.partition("_")[0]
        if begun in above and kind not in _TAKEN_OUT:
            yield f"someone else wrote a {kind}, which a copy-on-write table does not have"
        elif begun not in above and begun > ours.time and kind not in _TAKEN_OUT | _HARMLESS:
            yield f"someone else did a {kind} after it"
        elif kind == "clean" and begun > ours.time:
            with metadata_of(file) as metadata:
                earliest = str(metadata.get("earliestCommitToRetain") or "")
            if not earliest or earliest > ours.time:  # of a cleaning by another policy it is not known
                yield f"the cleaning {begun} may have removed files of it"


def _take_out(place: File, instant: str) -> None:
    """Take out a commit or the plan of one; to repeat it does no harm."""
    mine = [file for file in timeline(place, f"{instant}*") if re.match(rf"{instant}[._]", file.name)]
    if not any(file.name.endswith(".requested") for file in mine):  # so that it is known to be incomplete
        (place / ".hoodie" / "timeline" / f"{instant}.commit.requested").write(b"")
        mine.append(place / ".hoodie" / "timeline" / f"{instant}.commit.requested")
    done = [file for file in mine if file.name.startswith(f"{instant}_")]
    for file in done:
        file.delete()
    files.delete_all(place.listed(f"*_{instant}.parquet*"))
    markers = place / ".hoodie" / ".temp" / instant
    files.delete_all([markers, *markers.tree()])
    begun = [file for file in mine if file not in done]
    for file in sorted(begun, key=lambda file: file.name.endswith(".requested")):  # the request is deleted last
        file.delete()
