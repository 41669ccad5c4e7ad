"""Expiry: old snapshots of an Iceberg table are removed, and then the files that only they refer to.

Our next commit removes them from the metadata, so expiry needs no separate commit. It removes our staging commits that
main has passed, and published snapshots that `target.history` no longer retains. It never removes a snapshot that a
branch or a tag refers to, nor a snapshot of someone else that main never pointed to.

After that commit the files are found that no snapshot needs any more, manifest lists last. Queries may still read them,
so their removal waits (`lake.waiting`) for `target.history.readers`, from then on: the last commit that needed them had
been replaced before. The table property `lakeingest.expired` names the lists, so the next removal finishes one that was
interrupted before it was stored.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, ValidatableTableRequirement

from lakeingest.config import History
from lakeingest.errors import DAMAGED
from lakeingest.lake.iceberg.history import STAGING, is_marked
from lakeingest.lake.iceberg.leftovers import is_below
from lakeingest.lake.waiting import Removal, Waiting

EXPIRED = "lakeingest.expired"  # table property: the snapshots that the last removal took out
_VERSIONS, _DELETES = "write.metadata.previous-versions-max", "write.metadata.delete-after-commit.enabled"
_LIMITS = {_VERSIONS: "30", _DELETES: "true"}  # of metadata.json, which each commit writes again
WORTH = 16  # least number of snapshots to remove: each removal reads the manifests of the oldest snapshot that stays
REMOVALS = 4  # most removals whose files are deleted after a commit
AT_ONCE = 64  # most snapshots to remove, so that no commit takes seconds longer than others
_NAMED = ("snapshot-id", "parent-snapshot-id", "sequence-number", "manifest-list")


class AssertUnreferenced(ValidatableTableRequirement):
    """No branch and no tag refers to these snapshots; someone may have created one since the table was loaded."""

    type: Literal["assert-unreferenced"] = "assert-unreferenced"
    snapshot_ids: frozenset[int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """CommitFailedException if one does."""
        refs = {} if base_metadata is None else base_metadata.refs
        for name, ref in refs.items():
            if ref.snapshot_id in self.snapshot_ids:
                raise CommitFailedException(f"{name} refers to snapshot {ref.snapshot_id}, which was to be removed")


def limits(properties: Mapping[str, str]) -> dict[str, str]:
    """The limits of metadata.json that a table with these properties lacks, such as a table of an older release."""
    return {name: value for name, value in _LIMITS.items() if name not in properties}


def trim(loaded: Table) -> None:
    """Delete the versions of metadata.json that a commit on this table has removed from its log."""
    properties = {**_LIMITS, **loaded.properties}
    if properties[_DELETES].lower() != "true":
        return
    log = loaded.metadata.metadata_log
    # the commit has added an entry, for the version that was loaded
    gone = log[: max(0, len(log) + 1 - max(1, int(properties[_VERSIONS])))]
    delete(loaded.io, [entry.metadata_file for entry in gone if is_below(loaded, entry.metadata_file)])


def expire(
    transaction: Transaction, loaded: Table, history: History, waiting: Waiting | None, *, all_due: bool = False
) -> int:
    """Let this commit remove the snapshots that are due, oldest first; their number, 0 if they are too few.

    With `all_due` the commit removes every snapshot that is due. `sweep` finds their files after the commit. None is
    removed where their files have no place to wait.
    """
    if missing := limits(loaded.properties):
        transaction.set_properties(missing)
    gone = due_now(loaded, history)
    if waiting is None or len(gone) < (1 if all_due else WORTH):
        return 0
    gone = gone if all_due else gone[:AT_ONCE]
    ids = frozenset(one.snapshot_id for one in gone)
    named = [
        [one.snapshot_id, one.parent_snapshot_id, one.sequence_number, one.manifest_list]
        for one in (*unfinished(loaded, waiting), *gone)
    ]
    transaction.set_properties({EXPIRED: json.dumps(named, separators=(",", ":"))})
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(ids)})
    unreferenced = AssertUnreferenced(snapshot_ids=ids)
    transaction._stage((removal,), (unreferenced,))  # type: ignore[arg-type] # noqa: SLF001 - as PyIceberg does
    return len(gone)


def due_now(loaded: Table, history: History) -> list[Snapshot]:
    """The snapshots that nobody needs now, oldest first."""
    return due(loaded.metadata, history, int(time.time() * 1000))


def due(metadata: TableMetadata, history: History, now: int) -> list[Snapshot]:
    """The snapshots that nobody needs at this time (milliseconds since 1970), oldest first."""
    known = {one.snapshot_id: one for one in metadata.snapshots}
    published = _retained(metadata, history, now)
    needed = published | {ref.snapshot_id for ref in metadata.refs.values()}
    for number in list(needed):
        needed |= _origin(number, known)
    # if readers roll main back to our oldest commit, staging must still continue from it
    staged = list(_line(metadata.refs[STAGING].snapshot_id, known))
    recent = [place for place, one in enumerate(staged) if one.snapshot_id in published and is_marked(one)]
    needed |= {one.snapshot_id for one in staged[: max(recent, default=0) + 1]}
    seen = {entry.snapshot_id for entry in metadata.snapshot_log}
    ours = (one for one in metadata.snapshots if is_marked(one) or one.snapshot_id in seen)
    return sorted((one for one in ours if one.snapshot_id not in needed), key=_number)


def _retained(metadata: TableMetadata, history: History, now: int) -> set[int]:
    """The published snapshots that are retained; a snapshot's age counts from when the next one replaced it."""
    oldest = now - history.keep.total_seconds() * 1000
    recent: set[int] = set()
    until = now
    for entry in reversed(metadata.snapshot_log):
        if len(recent) >= history.most or (len(recent) >= history.least and until < oldest):
            break
        recent.add(entry.snapshot_id)
        until = entry.timestamp_ms
    return recent


def _origin(number: int, known: Mapping[int, Snapshot]) -> set[int]:
    """The snapshot and its ancestors down to a commit of ours, which someone else compacted."""
    found = set()
    for one in _line(number, known):
        found.add(one.snapshot_id)
        if is_marked(one):
            break
    return found


def _line(number: int | None, known: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    """The snapshot and its known ancestors."""
    while number is not None and (one := known.get(number)) is not None:
        yield one
        number = one.parent_snapshot_id


def unfinished(loaded: Table, waiting: Waiting) -> list[Snapshot]:
    """The snapshots that were removed last, if the removal of their files is neither stored nor done.

    It is done where their manifest lists do not exist.
    """
    remaining, named = {one.snapshot_id for one in loaded.metadata.snapshots}, _removed_last(loaded)
    if named and waiting.has(_suffix(named)):
        return []
    return [
        one for one in named if one.snapshot_id not in remaining and loaded.io.new_input(one.manifest_list).exists()
    ]


def sweep(loaded: Table, waiting: Waiting | None, *, all_due: bool = False) -> None:
    """Store the removal of the files that only removed snapshots refer to, and delete those that have waited.

    The table was loaded after the snapshots were removed. What cannot be read or deleted stays until the next removal.
    Files outside of the table's folder stay: someone else had added those of another table.
    """
    is_shared = loaded.properties.get("gc.enabled", "true").lower() == "false"  # other tables use its files
    if waiting is None or is_shared:
        return
    with suppress(OSError, ValueError):
        if gone := unfinished(loaded, waiting):
            files = [*_unneeded(loaded, gone), *(one.manifest_list for one in gone)]
            number = max((_number(one) for one in loaded.metadata.snapshots), default=0)
            of = {
                "table": str(loaded.metadata.table_uuid),
                "number": number,
                "snapshots": [one.snapshot_id for one in gone],
                "files": [file for file in files if is_below(loaded, file)],
            }
            waiting.add(f"{number:012d}{_suffix(_removed_last(loaded))}", of)
        for removal in waiting.due(None if all_due else REMOVALS):
            _remove(loaded, removal)
            removal.drop()


def _remove(loaded: Table, removal: Removal) -> None:
    """Delete the files of a removal; none if they are of another table, or its snapshots are in the table again.

    So they are after someone has restored an older metadata.json. Files that others have added since then stay.
    """
    metadata, of = loaded.metadata, removal.of
    there = {one.snapshot_id for one in metadata.snapshots}
    if of["table"] != str(metadata.table_uuid) or not there.isdisjoint(of["snapshots"]):
        return
    later = [one for one in metadata.snapshots if not is_marked(one) and _number(one) > of["number"]]
    used = {path for one in later for manifest in one.manifests(loaded.io) for path in _files(manifest, loaded.io)}
    for path in of["files"]:
        if path not in used and is_below(loaded, path):
            with suppress(FileNotFoundError):
                loaded.io.delete(path)


def waiting_files(waiting: Waiting) -> set[str]:
    """The files that wait to be deleted."""
    return {path for removal in waiting.all() for path in removal.of["files"]}


def _removed_last(loaded: Table) -> list[Snapshot]:
    """The snapshots that the table's property names; none where someone else has set it: their files are leftovers."""
    try:
        named = [dict(zip(_NAMED, one, strict=True)) for one in json.loads(loaded.properties.get(EXPIRED, "[]"))]
        found = [Snapshot.model_validate(one) for one in named]
    except DAMAGED:
        return []
    return found if all(is_below(loaded, one.manifest_list) for one in found) else []


def _suffix(named: Sequence[Snapshot]) -> str:
    """What the name of the removal ends with that has the files of these snapshots."""
    return f"-{named[0].snapshot_id}"


def delete(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that nothing refers to, in this order, up to the first failure."""
    with suppress(OSError):
        for path in paths:
            with suppress(FileNotFoundError):
                io.delete(path)


def _unneeded(loaded: Table, gone: Sequence[Snapshot]) -> list[str]:
    """The files of rows and of deletes that no snapshot needs any more, then the manifests."""
    listed = [{one.manifest_path: one for one in _manifests(snapshot, loaded.io)} for snapshot in gone]
    remaining = {
        one.manifest_path: one
        for snapshot in _snapshots_with_needed_files(loaded.metadata, gone)
        for one in snapshot.manifests(loaded.io)
    }
    manifests = {path: one for manifests in listed for path, one in manifests.items() if path not in remaining}
    files = {path for one in manifests.values() for path in _files(one, loaded.io, missing=True)}
    # a file is in one manifest of a snapshot: a manifest of all removed snapshots has none of these files
    in_all = set[str].intersection(*map(set, listed)) if listed else set()
    for path, one in remaining.items():
        if path not in in_all:
            files.difference_update(_files(one, loaded.io))
    return [*files, *manifests]


def _snapshots_with_needed_files(metadata: TableMetadata, gone: Sequence[Snapshot]) -> list[Snapshot]:
    """The remaining snapshots that together have every file of the removed ones that is still needed.

    A file is added once, and once removed it never returns. So a file that a removed snapshot shares with a remaining
    one is in the first remaining snapshot of that line of descent, or in the nearest remaining ancestor of the removed
    snapshot. If the line of descent is unknown, all older snapshots are included. Someone else may have added a file of
    ours again, so all snapshots of others are included.
    """
    remaining = {one.snapshot_id: one for one in metadata.snapshots}
    parents = {one.snapshot_id: one.parent_snapshot_id for one in gone}
    found = {one.snapshot_id for one in remaining.values() if one.parent_snapshot_id not in remaining}
    found |= {ref.snapshot_id for ref in metadata.refs.values()}
    found |= {one.snapshot_id for one in remaining.values() if not is_marked(one)}
    for snapshot in gone:
        parent = snapshot.parent_snapshot_id
        while parent in parents:
            parent = parents[parent]
        older = (one.snapshot_id for one in remaining.values() if _number(one) < _number(snapshot))
        found |= {parent} if parent in remaining else set(older)
    return [remaining[number] for number in found if number in remaining]


def _manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot; none if its manifest list was deleted, because its files were deleted before."""
    try:
        return snapshot.manifests(io)
    except FileNotFoundError:
        return []


def _files(manifest: ManifestFile, io: FileIO, *, missing: bool = False) -> Iterator[str]:
    """The files of a manifest; none if it is gone and may be `missing`, because its files were deleted before."""
    try:
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io))
    except FileNotFoundError:
        if not missing:
            raise


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
