"""Rollbacks of Hudi tables: the commits of others are taken out of the timeline, the last one first, with their files.

Hudi has no second name for a commit, so a rollback is several steps. Between two of them readers see the table as it
was before the commit that was taken out last. First a commit is made incomplete, so that no reader sees it. Then its
files are deleted, and last its entries in the timeline. If that is interrupted, the next writer rolls back the rest.

A commit can be taken out only if it left our files as they are: each write of a copy-on-write table makes new files.
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
        """The changes to take back, by the timeline."""
        with self._target.storage_errors():
            return _found(self._folder(table)) if self._target.exists() else None

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Take them back, commit by commit. Raises StaleWriter also where another run publishes."""
        folder, began = self._folder(table), time.time()
        with self._target.storage_errors(), publishing(table, folder.final):
            present = _found(folder)
            if present is None:
                return
            if present.shows != wanted.shows or not set(present.drops) <= set(wanted.drops):
                raise stale(table)
            forget_indexes(folder.place)  # first: an index would name deleted files
            for instant in present.drops:
                _take_out(folder.place, instant.rpartition(" ")[2])
            assert_whole(table, folder.place)
            folder.make_durable(began)

    def _folder(self, table: TableId) -> TableFolder:
        return self._target._folder_of(table)  # noqa: SLF001 - of the same package


def _found(folder: TableFolder) -> Rollback | None:
    """The commits to take out; None if there are none.

    Raises as `newest`; ForeignWrite where one cannot be taken out.
    """
    try:
        folder.published()
    except ForeignWrite as error:
        place, table = folder.place, folder.table
        foreign, ours = _foreign(place)
        if ours is None:
            raise
        if folder.ownership is not None:
            folder.ownership.assert_ours(table, ours.properties)
        drops = [f"commit {instant.time}" for instant in foreign]
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
    """The commits of others, the last one first, and our last commit below them; None where there is none."""
    foreign: list[Instant] = []
    for instant in completed(place):
        if OWNER in instant.properties:
            return foreign, instant
        foreign.append(instant)
    return foreign, None


def _hindrances(place: File, foreign: list[Instant], ours: Instant) -> Iterator[str]:
    """The reasons why readers might not see the rows of our commit after the other commits are taken out."""
    above = {instant.time for instant in foreign}
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
            if not earliest or earliest > ours.time:  # a cleaning by another policy does not name a commit
                yield f"the cleaning {begun} may have removed files of it"


def _take_out(place: File, instant: str) -> None:
    """Take out a commit, or the plan of one. It may be repeated."""
    entries = [file for file in timeline(place, f"{instant}*") if re.match(rf"{instant}[._]", file.name)]
    # Step 1: with a request, the commit is known to be incomplete after step 2
    if not any(file.name.endswith(".requested") for file in entries):
        (place / ".hoodie" / "timeline" / f"{instant}.commit.requested").write(b"")
        entries.append(place / ".hoodie" / "timeline" / f"{instant}.commit.requested")
    # Step 2: without its completion, no reader sees the commit
    done = [file for file in entries if file.name.startswith(f"{instant}_")]
    for file in done:
        file.delete()
    # Step 3: its files, and what is left of it in the timeline; the request is deleted last
    files.delete_all(place.listed(f"*_{instant}.parquet*"))
    markers = place / ".hoodie" / ".temp" / instant
    files.delete_all([markers, *markers.tree()])
    begun = [file for file in entries if file not in done]
    for file in sorted(begun, key=lambda file: file.name.endswith(".requested")):
        file.delete()
