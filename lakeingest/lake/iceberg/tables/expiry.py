"""Expiry: old snapshots of an Iceberg table are removed, and then the files that only they refer to.

The snapshots are removed by our next commit, so expiry needs no commit of its own. It removes our staging commits that
main has passed, and published snapshots that `target.history` no longer retains. It never removes a snapshot that a
branch or a tag refers to, nor a snapshot of someone else that main never pointed to.

After that commit, the run finds the files that no remaining snapshot needs. No later commit needs these files, but
queries may still read them. So the run stores a list of the files, which are deleted only after the time
`target.history.readers` (`lake.waiting`), the manifest lists last. The table property `lakeingest.expired` names the
removed snapshots and their manifest lists. If a run is killed before it has stored the list of files, a later run makes
the list from this property.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from lakeingest.lake.iceberg.tables.history import STAGING, is_marked
from lakeingest.lake.iceberg.tables.leftovers import is_below
from lakeingest.lake.waiting import Removal, Waiting

EXPIRED = "lakeingest.expired"  # table property: the snapshots that were removed last
_VERSIONS, _DELETES = "write.metadata.previous-versions-max", "write.metadata.delete-after-commit.enabled"
_METADATA_LIMITS = {_VERSIONS: "30", _DELETES: "true"}  # each commit writes a version of metadata.json
WORTH = 16  # at least so many snapshots are removed at once: each removal reads manifests of snapshots that stay
REMOVALS = 4  # after a commit, the files of at most so many removals are deleted
AT_ONCE = 64  # at most so many snapshots are removed at once, so that no commit takes seconds longer
Held = Callable[[], AbstractSet[int]]  # returns the ids of snapshots that another table needs
_ENTRY_FIELDS = ("snapshot-id", "parent-snapshot-id", "sequence-number", "manifest-list")


def nothing_held() -> AbstractSet[int]:
    """The `Held` of a table whose snapshots no other table needs."""
    return frozenset()


class AssertUnreferenced(ValidatableTableRequirement):
    """Asserts that no branch and no tag refers to these snapshots.

    Someone may have made a branch or a tag at one of them after the table was loaded.
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
    """The properties that limit the number of metadata.json files, without those that are in `properties` already.

    Tables that an older release made have none of these properties.
    """
    return {name: value for name, value in _METADATA_LIMITS.items() if name not in properties}


def trim(loaded: Table) -> None:
    """Delete the versions of metadata.json that our last commit has removed from the table's log of versions.

    `loaded` is the table before that commit. Nothing is deleted if the table's properties say so; no failure is raised.
    """
    properties = {**_METADATA_LIMITS, **loaded.properties}
    if properties[_DELETES].lower() != "true":
        return
    log = loaded.metadata.metadata_log
    kept_count = max(1, int(properties[_VERSIONS]))  # PyIceberg keeps at least one entry
    removed_count = max(0, len(log) + 1 - kept_count)  # + 1: the commit has added an entry for the version `loaded`
    removed = (entry.metadata_file for entry in log[:removed_count])
    delete(loaded.io, [file for file in removed if is_below(loaded, file)])


def expire(
    transaction: Transaction,
    loaded: Table,
    history: History,
    waiting: Waiting | None,
    held: Held = nothing_held,
    *,
    all_due: bool = False,
) -> int:
    """Let this commit remove snapshots that are due, the oldest first. Returns the number of removed snapshots.

    With `all_due`, the commit removes all snapshots that are due. Without `all_due`, it removes at most `AT_ONCE`, and
    none if fewer than `WORTH` are due. Snapshots of `held` stay. If `waiting` is None, no snapshot is removed: `sweep`,
    which is called after the commit, could not store which files are to be deleted. The commit also sets the `limits`
    that the table does not have yet.
    """
    if missing := limits(loaded.properties):
        transaction.set_properties(missing)
    due_snapshots = due_now(loaded, history, held)
    least = 1 if all_due else WORTH
    if waiting is None or len(due_snapshots) < least:
        return 0
    removed = due_snapshots if all_due else due_snapshots[:AT_ONCE]
    ids = frozenset(snapshot.snapshot_id for snapshot in removed)
    # the new value of EXPIRED also names the snapshots of the old value whose removal is not stored yet
    entries = [
        [snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number, snapshot.manifest_list]
        for snapshot in (*unfinished_removal(loaded, waiting), *removed)
    ]
    transaction.set_properties({EXPIRED: json.dumps(entries, separators=(",", ":"))})
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(ids)})
    unreferenced = AssertUnreferenced(snapshot_ids=ids)
    transaction._stage((removal,), (unreferenced,))  # type: ignore[arg-type] # noqa: SLF001 - as PyIceberg does
    return len(removed)


def due_now(loaded: Table, history: History, held: Held = nothing_held) -> list[Snapshot]:
    """The snapshots that nobody needs now, the oldest first. `held` is called only if some are due."""
    found = due(loaded.metadata, history, int(time.time() * 1000))
    kept = held() if found else frozenset()
    return [snapshot for snapshot in found if snapshot.snapshot_id not in kept]


def due(metadata: TableMetadata, history: History, now: int) -> list[Snapshot]:
    """The snapshots that can be removed at the time `now` (milliseconds since 1970), the oldest first.

    All snapshots are returned except these:

    - the published snapshots that `history` retains, and the snapshots of branches and tags;
    - if one of these is a compaction that someone else made, its ancestors down to our newest commit;
    - the history of staging, down to our oldest retained commit;
    - snapshots of others that main never pointed to.

    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    retained = retained_snapshots(metadata, history, now)
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    needed = retained | referenced
    # a compaction that someone else made has no progress: our commit below it is needed, too
    for snapshot_id in (*retained, *referenced):
        needed |= _down_to_ours(snapshot_id, snapshots)
    history_of_staging = list(_ancestry(metadata.refs[STAGING].snapshot_id, snapshots))  # the newest first
    needed |= _down_to_oldest_retained(history_of_staging, retained)
    ever_on_main = {entry.snapshot_id for entry in metadata.snapshot_log}
    removable = [each for each in metadata.snapshots if is_marked(each) or each.snapshot_id in ever_on_main]
    unneeded = [snapshot for snapshot in removable if snapshot.snapshot_id not in needed]
    return sorted(unneeded, key=_sequence_number)


def retained_snapshots(metadata: TableMetadata, history: History, now: int) -> set[int]:
    """The ids of the published snapshots that `history` retains: the newest ones, `least` to `most` of them.

    Between these numbers, a snapshot is retained if it was replaced by the next snapshot at most `keep` ago.
    """
    kept_since = now - history.keep.total_seconds() * 1000
    retained: set[int] = set()
    replaced_at = now  # the newest snapshot is not replaced yet
    for entry in reversed(metadata.snapshot_log):
        is_old = replaced_at < kept_since
        if len(retained) >= history.most or (is_old and len(retained) >= history.least):
            break
        retained.add(entry.snapshot_id)
        replaced_at = entry.timestamp_ms  # when this snapshot replaced the older one, to which the loop comes next
    return retained


def _down_to_ours(snapshot_id: int, snapshots: Mapping[int, Snapshot]) -> set[int]:
    """The ids of a snapshot and its ancestors down to the newest commit of ours. Others may have compacted it since."""
    ids = set()
    for snapshot in _ancestry(snapshot_id, snapshots):
        ids.add(snapshot.snapshot_id)
        if is_marked(snapshot):
            break
    return ids


def _down_to_oldest_retained(history_of_staging: Sequence[Snapshot], retained: set[int]) -> set[int]:
    """The ids of the history of staging down to our oldest retained commit, to which readers may roll main back.

    If no commit of ours is retained there, only the newest snapshot is needed.
    """
    ids = [snapshot.snapshot_id for snapshot in history_of_staging]  # the newest first
    ours = [each.snapshot_id for each in history_of_staging if each.snapshot_id in retained and is_marked(each)]
    needed_count = ids.index(ours[-1]) + 1 if ours else 1  # + 1: our oldest retained commit is needed, too
    return set(ids[:needed_count])


def _ancestry(snapshot_id: int | None, snapshots: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    """The snapshot with this id and its ancestors, down to the first one that is missing in `snapshots`."""
    while snapshot_id is not None and (snapshot := snapshots.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def unfinished_removal(loaded: Table, waiting: Waiting) -> list[Snapshot]:
    """The snapshots that were removed last; none if the removal of their files is stored already.

    A snapshot that the table still has is left out. So is a snapshot whose manifest list does not exist, because its
    files were deleted already.
    """
    removed = _last_removed(loaded)
    if removed and waiting.has(_suffix(removed)):
        return []
    present = {snapshot.snapshot_id for snapshot in loaded.metadata.snapshots}
    gone = [snapshot for snapshot in removed if snapshot.snapshot_id not in present]
    return [snapshot for snapshot in gone if loaded.io.new_input(snapshot.manifest_list).exists()]


def sweep(loaded: Table, waiting: Waiting | None, *, all_due: bool = False) -> None:
    """Store the removal of the files that only removed snapshots refer to, and do the removals that are due.

    Nothing is done without `waiting`, or if other tables use the files (`gc.enabled` is false). The table must be
    loaded after the snapshots were removed. If a file cannot be read or deleted, the rest is left to the next call.
    Files outside of the table's folder stay, because someone else has added them from another table.
    """
    is_shared = loaded.properties.get("gc.enabled", "true").lower() == "false"  # other tables use its files
    if waiting is None or is_shared:
        return
    with suppress(OSError, ValueError):
        # Step 1: store the new removal. It waits from now on, so that queries which read its files can end
        if removed := unfinished_removal(loaded, waiting):
            files = [*_unneeded(loaded, removed), *(snapshot.manifest_list for snapshot in removed)]
            remaining = loaded.metadata.snapshots
            newest_number = max((_sequence_number(snapshot) for snapshot in remaining), default=0)
            document = {
                "table": str(loaded.metadata.table_uuid),
                "number": newest_number,  # a snapshot of others with a greater number may use the files again
                "remaining": [snapshot.snapshot_id for snapshot in remaining],
                "files": [file for file in files if is_below(loaded, file)],
            }
            # `unfinished_removal` looks for the suffix of all snapshots in EXPIRED, also of those that it leaves out
            suffix = _suffix(_last_removed(loaded))
            waiting.add(f"{newest_number:012d}{suffix}", document)
        # Step 2: for each removal that is due, delete its files, and only then its document
        for removal in waiting.due(None if all_due else REMOVALS):
            _remove(loaded, removal)
            removal.drop()


def _remove(loaded: Table, removal: Removal) -> None:
    """Delete the files of a removal, except files that someone else has added to the table again.

    Nothing is deleted if the removal is of another table, or if someone restored an older metadata.json: then the table
    has snapshots again that it no longer had when the removal was stored, and these may need the files.
    """
    metadata, document = loaded.metadata, removal.of
    later = [each for each in metadata.snapshots if _sequence_number(each) > document["number"]]
    earlier = {each.snapshot_id for each in metadata.snapshots if each not in later}
    remaining = document.get("remaining", ())  # older releases did not store it
    if document["table"] != str(metadata.table_uuid) or not earlier.issubset(remaining):
        return
    by_others = [each for each in later if not is_marked(each)]
    manifests = (manifest for snapshot in by_others for manifest in snapshot.manifests(loaded.io))
    used = {path for manifest in manifests for path in _files(manifest, loaded.io)}
    for path in document["files"]:
        if path not in used and is_below(loaded, path):
            with suppress(FileNotFoundError):
                loaded.io.delete(path)


def waiting_files(waiting: Waiting) -> set[str]:
    """The files of all removals that wait."""
    return {path for removal in waiting.all() for path in removal.of["files"]}


def _last_removed(loaded: Table) -> list[Snapshot]:
    """The snapshots that the table property EXPIRED names: those that were removed last.

    The list is empty if someone else has set the property; `maintain` then finds the snapshots' files as leftovers.
    """
    try:
        entries = json.loads(loaded.properties.get(EXPIRED, "[]"))
        snapshots = [Snapshot.model_validate(dict(zip(_ENTRY_FIELDS, entry, strict=True))) for entry in entries]
    except DAMAGED:
        return []
    return snapshots if all(is_below(loaded, snapshot.manifest_list) for snapshot in snapshots) else []


def _suffix(removed: Sequence[Snapshot]) -> str:
    """The end of the name of the removal that has the files of these snapshots."""
    return f"-{removed[0].snapshot_id}"  # one of them is enough, because a snapshot is removed only once


def delete(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that nothing refers to, in this order. The first failure ends the call without an error."""
    with suppress(OSError):
        for path in paths:
            with suppress(FileNotFoundError):
                io.delete(path)


def _unneeded(loaded: Table, removed: Sequence[Snapshot]) -> list[str]:
    """The files of rows and of deletes that only the removed snapshots need, then the manifests that only they need."""
    # Step 1: list the manifests of removed snapshots, and those of remaining snapshots that may have the same files
    manifests_of_removed = [_manifests(snapshot, loaded.io) for snapshot in removed]  # a list for each snapshot
    of_removed = {manifest.manifest_path: manifest for manifests in manifests_of_removed for manifest in manifests}
    remaining = {
        manifest.manifest_path: manifest
        for snapshot in _snapshots_with_needed_files(loaded.metadata, removed)
        for manifest in snapshot.manifests(loaded.io)
    }
    # Step 2: list the files of those manifests that no remaining snapshot has
    unneeded = {path: manifest for path, manifest in of_removed.items() if path not in remaining}
    files = {path for manifest in unneeded.values() for path in _files(manifest, loaded.io, may_be_missing=True)}
    # Step 3: take out the files that a remaining manifest has, too. A manifest M of all removed snapshots is not read:
    # a snapshot has each file in one manifest only, so no other manifest of a removed snapshot has a file of M
    in_every_removed = set(of_removed)
    for manifests in manifests_of_removed:
        in_every_removed.intersection_update(manifest.manifest_path for manifest in manifests)
    for path, manifest in remaining.items():
        if path not in in_every_removed:
            files.difference_update(_files(manifest, loaded.io))
    return [*files, *unneeded]


def _snapshots_with_needed_files(metadata: TableMetadata, removed: Sequence[Snapshot]) -> list[Snapshot]:
    """Remaining snapshots that together have every file of the removed snapshots that any remaining snapshot has.

    We add a file once, and never again after its removal. So if a remaining snapshot has a file of a removed one,
    the removed snapshot's nearest remaining ancestor, or one of its nearest remaining descendants, has the file, too.
    These are returned:

    - each snapshot whose parent does not remain: the nearest descendants are among these;
    - to be safe, the snapshots of branches and tags;
    - all snapshots of others, because someone else may have added a file of ours again;
    - the nearest remaining ancestor of each removed snapshot; all older snapshots if this ancestor is unknown.
    """
    remaining = {each.snapshot_id: each for each in metadata.snapshots}
    ids = {each.snapshot_id for each in remaining.values() if each.parent_snapshot_id not in remaining}
    ids |= {ref.snapshot_id for ref in metadata.refs.values()}
    ids |= {each.snapshot_id for each in remaining.values() if not is_marked(each)}
    removed_parents = {each.snapshot_id: each.parent_snapshot_id for each in removed}
    for snapshot in removed:
        parent = snapshot.parent_snapshot_id
        while parent in removed_parents:  # the parent was removed, too: go on to its own parent
            parent = removed_parents[parent]
        if parent in remaining:
            ids.add(parent)
            continue
        # the nearest remaining ancestor is unknown: take all older snapshots
        number = _sequence_number(snapshot)
        ids |= {each.snapshot_id for each in remaining.values() if _sequence_number(each) < number}
    return [remaining[snapshot_id] for snapshot_id in ids if snapshot_id in remaining]


def _manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """The manifests of a removed snapshot; none if its manifest list, which is deleted last, does not exist."""
    try:
        return snapshot.manifests(io)
    except FileNotFoundError:
        return []


def _files(manifest: ManifestFile, io: FileIO, *, may_be_missing: bool = False) -> Iterator[str]:
    """The paths of the files that a manifest has.

    If the manifest does not exist, FileNotFoundError is raised; with `may_be_missing` there are no paths.
    """
    try:
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io))
    except FileNotFoundError:
        if not may_be_missing:
            raise


def _sequence_number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
