"""Rollback of a Hudi table: the commits of others are removed from the timeline with their files, the newest first.

For each commit, its completion is deleted first, so that no reader sees the commit any more. Then its data files are
deleted, and last its other entries in the timeline. If the rollback is interrupted within a commit, the next writer
rolls back the rest of that commit. Between two commits, readers see the table as it was before the commit that was
removed last.

A commit can be removed only if it left our files in the folder. A write to a copy-on-write table leaves them, because
it makes new files.
"""

import re
import time
from collections.abc import Iterator

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.hudi.clusterings import planned_clustering
from lakeingest.lake.hudi.file_groups import assert_whole, data_files
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.hudi.lock import publish_lock
from lakeingest.lake.hudi.table_form import remove_indexes
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.hudi.timeline import Instant, completed_instants, metadata_of, timeline, writes
from lakeingest.lake.marks import OWNER
from lakeingest.lake.refusals import stale
from lakeingest.lake.rollbacks import Rollback

_REMOVABLE = {"commit", "replacecommit"}
_HARMLESS = {"clean", "rollback"}  # actions that may stay in the timeline; a `clean` only if it left our files


class HudiRollbacks:
    """`lake.rollbacks.Rollbacks` on Hudi tables."""

    def __init__(self, target: HudiTarget) -> None:
        self._target = target

    def found(self, table: TableId) -> Rollback | None:
        """The rollback that removes the commits of others in the timeline; None if there are no such commits."""
        with self._target.storage_errors():
            return _rollback_of(self._folder(table)) if self._target.exists() else None

    def roll_back(self, table: TableId, wanted: Rollback) -> None:
        """Remove the commits of `wanted` one by one. A part that an interrupted rollback has done is not repeated.

        Raises StaleWriter if someone has committed since `wanted` was made, or if another run is publishing.
        """
        folder = self._folder(table)
        began = time.time()
        with self._target.storage_errors(), publish_lock(table, folder.final):
            remaining = _rollback_of(folder)
            if remaining is None:  # an interrupted rollback had already removed all commits
                return
            # readers will see the same commit of ours, and no commit is removed that `wanted` does not name
            is_part_of_wanted = remaining.shows == wanted.shows and set(remaining.drops) <= set(wanted.drops)
            if not is_part_of_wanted:
                raise stale(table)
            remove_indexes(folder.current)  # first: an index would name deleted files
            for commit in remaining.drops:
                instant = commit.rpartition(" ")[2]  # of "commit <instant>" or "plan <instant>"
                _remove_commit(folder.current, instant)
            assert_whole(table, folder.current)
            folder.make_durable(began)

    def _folder(self, table: TableId) -> TableFolder:
        return self._target._folder_of(table)  # noqa: SLF001 - of the same package


def _rollback_of(folder: TableFolder) -> Rollback | None:
    """The rollback that the table needs; None if nobody else wrote to it.

    Raises:
        NotOurTable, NotOurCopy: as `TableFolder.published`.
        ForeignWrite: the table has no commit of ours, or a commit of others cannot be removed.

    """
    try:
        folder.published()  # raises ForeignWrite if someone else wrote to the table
    except ForeignWrite as error:
        path, table = folder.current, folder.table
        foreign, ours = _foreign_and_ours(path)
        if ours is None:  # someone else emptied the table: there is no commit to go back to
            raise
        if folder.ownership is not None:
            folder.ownership.assert_ours(table, ours.properties)
        drops = [f"commit {instant.time}" for instant in foreign]
        planned = planned_clustering(path)
        if planned is not None:
            drops.insert(0, f"plan {planned.name.partition('.')[0]}")  # a plan of others is removed, too
        obstacle = next(_obstacles(path, foreign, ours), None)
        if obstacle is not None:
            raise ForeignWrite(
                f"{table}: it cannot be rolled back to commit {ours.time}, because {obstacle}; remove {path} to copy"
                " the table again"
            ) from error
        return Rollback(f"commit {ours.time}", ours.version, tuple(drops))
    return None


def _foreign_and_ours(path: File) -> tuple[list[Instant], Instant | None]:
    """The commits of others to remove, the newest first; and our last commit, or None if we have none.

    Commits of others to remove are those after our last commit, and each clustering before it. Such a clustering was
    completed while we wrote our commit, which would have taken it back otherwise.
    """
    foreign: list[Instant] = []
    ours: Instant | None = None
    for instant in completed_instants(writes(path)):
        if OWNER in instant.properties:
            ours = ours or instant
        elif ours is None or instant.replaces_groups:
            foreign.append(instant)
    return foreign, ours


def _obstacles(path: File, foreign: list[Instant], ours: Instant) -> Iterator[str]:
    """The reasons why readers might not see all rows of our commit after the foreign commits are removed.

    There is none if each foreign commit is _REMOVABLE, each other action after our commit is _REMOVABLE or _HARMLESS,
    and each cleaning after our commit has left the files of our commit.
    """
    foreign_times = {instant.time for instant in foreign}
    for file in timeline(path, "*_*.*"):
        times, _, kind = file.name.partition(".")
        begun = times.partition("_")[0]
        is_foreign_commit, is_after_ours = begun in foreign_times, begun > ours.time
        if is_foreign_commit and kind not in _REMOVABLE:
            yield f"someone else wrote a {kind}, which a copy-on-write table does not have"
        elif is_after_ours and not is_foreign_commit and kind not in _REMOVABLE | _HARMLESS:
            yield f"someone else did a {kind} after it"
        elif is_after_ours and kind == "clean":
            with metadata_of(file) as metadata:
                earliest_retained = str(metadata.get("earliestCommitToRetain") or "")
            if not earliest_retained or earliest_retained > ours.time:  # empty: a policy that retains no commits
                yield f"the cleaning {begun} may have removed files of it"


def _remove_commit(path: File, instant: str) -> None:
    """Remove a commit or a plan from the timeline, and delete its files. An interrupted call can be repeated."""
    # the next character ends the instant: another instant can begin with the same digits
    entries = [file for file in timeline(path, f"{instant}*") if re.match(rf"{instant}[._]", file.name)]
    # Step 1: make sure that there is a request. After step 2 it tells the next writer that the commit is incomplete
    if not any(file.name.endswith(".requested") for file in entries):
        (path / ".hoodie" / "timeline" / f"{instant}.commit.requested").write(b"")
        entries.append(path / ".hoodie" / "timeline" / f"{instant}.commit.requested")
    # Step 2: delete the completion, so that no reader sees the commit
    completions = [file for file in entries if file.name.startswith(f"{instant}_")]
    for file in completions:
        file.delete()
    # Step 3: delete the data files with their checksums, named `.….parquet.crc`, and the markers; then the other
    # entries, the request last
    files.delete_all(data_files(path, f"*_{instant}.parquet*"))
    markers = path / ".hoodie" / ".temp" / instant
    files.delete_all([markers, *markers.tree()])
    other_entries = [file for file in entries if file not in completions]
    for file in sorted(other_entries, key=lambda file: file.name.endswith(".requested")):
        file.delete()
