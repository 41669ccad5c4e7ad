"""Expiry: old snapshots of an Iceberg table are removed, and then the files that only they refer to.

Our next commit removes the snapshots from the metadata, so expiry needs no separate commit. It removes our staging
commits that main has passed, and published snapshots that `target.history` no longer retains. It never removes a
snapshot that a branch or a tag refers to, nor a snapshot of someone else that main never pointed to.

After that commit, the files are determined that no snapshot needs any more, manifest lists last. Queries may still read
them. So their removal waits (`lake.waiting`) for `target.history.readers`, counted from now: the last commit that
needed them was replaced before. The table property `lakeingest.expired` names the removed snapshots with their manifest
lists. So the next removal finishes one that was interrupted before it was stored.
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

EXPIRED = "lakeingest.expired"  # table property: the snapshots that the last removal removed
_VERSIONS, _DELETES = "write.metadata.previous-versions-max", "write.metadata.delete-after-commit.enabled"
_LIMITS = {_VERSIONS: "30", _DELETES: "true"}  # for metadata.json, which each commit writes again
WORTH = 16  # at least so many snapshots are removed: each removal reads the manifests of the oldest one that stays
REMOVALS = 4  # the files of at most so many removals are deleted after a commit
AT_ONCE = 64  # at most so many snapshots are removed: no commit takes seconds longer than others
_NAMED = ("snapshot-id", "parent-snapshot-id", "sequence-number", "manifest-list")


class AssertUnreferenced(ValidatableTableRequirement):
    """Asserts that no branch and no tag refers to these snapshots.

    Someone may have created such a branch or tag since the table was loaded.
    """

    type: Literal["assert-unreferenced"] = "assert-unreferenced"
    snapshot_ids: frozenset[int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raises CommitFailedException if a branch or a tag refers to one of the snapshots."""
        refs = {} if base_metadata is None else base_metadata.refs
        for name, ref in refs.items():
            if ref.snapshot_id in self.snapshot_ids:
                raise CommitFailedException(f"{name} refers to snapshot {ref.snapshot_id}, which was to be removed")


def limits(properties: Mapping[str, str]) -> dict[str, str]:
    """The limits of metadata.json that a table with these properties lacks, for example one of an older release."""
    return {name: value for name, value in _LIMITS.items() if name not in properties}


def trim(loaded: Table) -> None:
    """Delete the versions of metadata.json that a commit on this table has removed from its log."""
    properties = {**_LIMITS, **loaded.properties}
    if properties[_DELETES].lower() != "true":
        return
    log = loaded.metadata.metadata_log
    # the commit has added an entry, for the version that was loaded
    removed = log[: max(0, len(log) + 1 - max(1, int(properties[_VERSIONS])))]
    delete(loaded.io, [entry.metadata_file for entry in removed if is_below(loaded, entry.metadata_file)])


def expire(
    transaction: Transaction, loaded: Table, history: History, waiting: Waiting | None, *, all_due: bool = False
) -> int:
    """Let this commit remove the snapshots that are due, oldest first. Returns their number, 0 if they are too few.

    With `all_due` the commit removes every snapshot that is due, however few. `sweep` determines their files after the
    commit. Nothing is removed without `waiting`, because the files would have no place to wait.
    """
    if missing := limits(loaded.properties):
        transaction.set_properties(missing)
    snapshots = due_now(loaded, history)
    if waiting is None or len(snapshots) < (1 if all_due else WORTH):
        return 0
    snapshots = snapshots if all_due else snapshots[:AT_ONCE]
    ids = frozenset(snapshot.snapshot_id for snapshot in snapshots)
    entries = [
        [snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number, snapshot.manifest_list]
        for snapshot in (*unfinished(loaded, waiting), *snapshots)
    ]
    transaction.set_properties({EXPIRED: json.dumps(entries, separators=(",", ":"))})
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(ids)})
    unreferenced = AssertUnreferenced(snapshot_ids=ids)
    transaction._stage((removal,), (unreferenced,))  # type: ignore[arg-type] # noqa: SLF001 - as PyIceberg does
    return len(snapshots)


def due_now(loaded: Table, history: History) -> list[Snapshot]:
    """The snapshots that nobody needs now, the oldest first."""
    return due(loaded.metadata, history, int(time.time() * 1000))


def due(metadata: TableMetadata, history: History, now: int) -> list[Snapshot]:
    """The snapshots that nobody needs at this time (milliseconds since 1970), the oldest first."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    published = _retained(metadata, history, now)
    needed = published | {ref.snapshot_id for ref in metadata.refs.values()}
    for number in list(needed):
        needed |= _origin(number, snapshots)
    # if readers roll main back to our oldest published commit, staging must still continue from it
    staged = list(_line(metadata.refs[STAGING].snapshot_id, snapshots))
    recent = [place for place, each in enumerate(staged) if each.snapshot_id in published and is_marked(each)]
    needed |= {snapshot.snapshot_id for snapshot in staged[: max(recent, default=0) + 1]}
    seen = {entry.snapshot_id for entry in metadata.snapshot_log}
    ours = (snapshot for snapshot in metadata.snapshots if is_marked(snapshot) or snapshot.snapshot_id in seen)
    return sorted((snapshot for snapshot in ours if snapshot.snapshot_id not in needed), key=_number)


def _retained(metadata: TableMetadata, history: History, now: int) -> set[int]:
    """The published snapshots that are retained. A snapshot's age is the time since the next one replaced it."""
    oldest = now - history.keep.total_seconds() * 1000
    recent: set[int] = set()
    until = now
    for entry in reversed(metadata.snapshot_log):
        if len(recent) >= history.most or (len(recent) >= history.least and until < oldest):
            break
        recent.add(entry.snapshot_id)
        until = entry.timestamp_ms
    return recent


def _origin(number: int, snapshots: Mapping[int, Snapshot]) -> set[int]:
    """The snapshot and its ancestors down to our commit, which someone else compacted."""
    ids = set()
    for snapshot in _line(number, snapshots):
        ids.add(snapshot.snapshot_id)
        if is_marked(snapshot):
            break
    return ids


def _line(number: int | None, snapshots: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    """The snapshot and its ancestors, as far as they are among these snapshots."""
    while number is not None and (snapshot := snapshots.get(number)) is not None:
        yield snapshot
        number = snapshot.parent_snapshot_id


def unfinished(loaded: Table, waiting: Waiting) -> list[Snapshot]:
    """The snapshots that were removed last, if the removal of their files is neither stored nor done.

    It is done where their manifest lists do not exist.
    """
    remaining, removed = {snapshot.snapshot_id for snapshot in loaded.metadata.snapshots}, _removed_last(loaded)
    if removed and waiting.has(_suffix(removed)):
        return []
    return [
        snapshot
        for snapshot in removed
        if snapshot.snapshot_id not in remaining and loaded.io.new_input(snapshot.manifest_list).exists()
    ]


def sweep(loaded: Table, waiting: Waiting | None, *, all_due: bool = False) -> None:
    """Store the removal of the files that only removed snapshots refer to, and delete files that have waited.

    The table was loaded after the snapshots were removed. Files that cannot be read or deleted stay until the next
    removal. Files outside of the table's folder stay, because someone else added them, from another table.
    """
    is_shared = loaded.properties.get("gc.enabled", "true").lower() == "false"  # other tables use its files
    if waiting is None or is_shared:
        return
    with suppress(OSError, ValueError):
        # Step 1: store the new removal. It waits from now on, so no query reads its files when they are deleted
        if removed := unfinished(loaded, waiting):
            files = [*_unneeded(loaded, removed), *(snapshot.manifest_list for snapshot in removed)]
            number = max((_number(snapshot) for snapshot in loaded.metadata.snapshots), default=0)
            of = {
                "table": str(loaded.metadata.table_uuid),
                "number": number,
                "snapshots": [snapshot.snapshot_id for snapshot in removed],
                "files": [file for file in files if is_below(loaded, file)],
            }
            waiting.add(f"{number:012d}{_suffix(_removed_last(loaded))}", of)
        # Step 2: delete the files of old removals, and only then forget the removal
        for removal in waiting.due(None if all_due else REMOVALS):
            _remove(loaded, removal)
            removal.drop()


def _remove(loaded: Table, removal: Removal) -> None:
    """Delete the files of a removal. None are deleted if the table is another one, or has the removed snapshots again.

    It has them again after someone restored an older metadata.json. Files that others have added since then stay.
    """
    metadata, of = loaded.metadata, removal.of
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if of["table"] != str(metadata.table_uuid) or not present.isdisjoint(of["snapshots"]):
        return
    later = [
        snapshot for snapshot in metadata.snapshots if not is_marked(snapshot) and _number(snapshot) > of["number"]
    ]
    used = {
        path for snapshot in later for manifest in snapshot.manifests(loaded.io) for path in _files(manifest, loaded.io)
    }
    for path in of["files"]:
        if path not in used and is_below(loaded, path):
            with suppress(FileNotFoundError):
                loaded.io.delete(path)


def waiting_files(waiting: Waiting) -> set[str]:
    """The files that wait to be deleted."""
    return {path for removal in waiting.all() for path in removal.of["files"]}


def _removed_last(loaded: Table) -> list[Snapshot]:
    """The snapshots in the table's property. None if someone else has set it: then the files are leftovers."""
    try:
        entries = json.loads(loaded.properties.get(EXPIRED, "[]"))
        snapshots = [Snapshot.model_validate(dict(zip(_NAMED, entry, strict=True))) for entry in entries]
    except DAMAGED:
        return []
    return snapshots if all(is_below(loaded, snapshot.manifest_list) for snapshot in snapshots) else []


def _suffix(removed: Sequence[Snapshot]) -> str:
    """The end of the name of the removal that has the files of these snapshots."""
    return f"-{removed[0].snapshot_id}"


def delete(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that nothing refers to, in this order, up to the first failure."""
    with suppress(OSError):
        for path in paths:
            with suppress(FileNotFoundError):
                io.delete(path)


def _unneeded(loaded: Table, removed: Sequence[Snapshot]) -> list[str]:
    """The files of rows and of deletes that no snapshot needs any more, followed by the manifests."""
    # Step 1: the manifests of the removed snapshots, and those of remaining ones that may share files with them
    listed = [
        {manifest.manifest_path: manifest for manifest in _manifests(snapshot, loaded.io)} for snapshot in removed
    ]
    remaining = {
        manifest.manifest_path: manifest
        for snapshot in _snapshots_with_needed_files(loaded.metadata, removed)
        for manifest in snapshot.manifests(loaded.io)
    }
    # Step 2: the files of manifests that no remaining snapshot has
    manifests = {path: manifest for by_path in listed for path, manifest in by_path.items() if path not in remaining}
    files = {path for manifest in manifests.values() for path in _files(manifest, loaded.io, missing=True)}
    # Step 3: without the files that are also in a remaining manifest. A file is in one manifest of each snapshot: a
    # manifest that all removed snapshots have cannot have any of these files
    in_all = set[str].intersection(*map(set, listed)) if listed else set()
    for path, manifest in remaining.items():
        if path not in in_all:
            files.difference_update(_files(manifest, loaded.io))
    return [*files, *manifests]


def _snapshots_with_needed_files(metadata: TableMetadata, removed: Sequence[Snapshot]) -> list[Snapshot]:
    """Remaining snapshots that together have every file of the removed ones that is still needed.

    A file is added once, and once removed it never returns. So a file that a removed snapshot shares with a remaining
    one is in the first remaining snapshot of that line of descent, or in the nearest remaining ancestor of the removed
    snapshot. If the line of descent is unknown, all older snapshots are included. Someone else may have added a file of
    ours again, so all snapshots of others are included.
    """
    remaining = {each.snapshot_id: each for each in metadata.snapshots}
    parents = {each.snapshot_id: each.parent_snapshot_id for each in removed}
    ids = {each.snapshot_id for each in remaining.values() if each.parent_snapshot_id not in remaining}
    ids |= {ref.snapshot_id for ref in metadata.refs.values()}
    ids |= {each.snapshot_id for each in remaining.values() if not is_marked(each)}
    for snapshot in removed:
        parent = snapshot.parent_snapshot_id
        while parent in parents:
            parent = parents[parent]
        older = (each.snapshot_id for each in remaining.values() if _number(each) < _number(snapshot))
        ids |= {parent} if parent in remaining else set(older)
    return [remaining[number] for number in ids if number in remaining]


def _manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot; none if its manifest list was deleted, because its files were deleted earlier."""
    try:
        return snapshot.manifests(io)
    except FileNotFoundError:
        return []


def _files(manifest: ManifestFile, io: FileIO, *, missing: bool = False) -> Iterator[str]:
    """The files of a manifest. With `missing` it may not exist, because its files were deleted earlier: then none."""
    try:
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io))
    except FileNotFoundError:
        if not missing:
            raise


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
