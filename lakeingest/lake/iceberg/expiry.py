"""Old snapshots of an Iceberg table are removed, and then the files that only they refer to.

A commit of ours that follows removes them from the metadata, so this takes no commit of its own. What is removed: our
staging commits that main has passed, and published snapshots that `target.history` no longer keeps. A snapshot that a
branch or a tag refers to is never removed, nor one that someone else made and that main never was.

Files are deleted once that commit has landed, manifest lists last. The table property `lakeingest.expired` names these
lists, so that a removal that was interrupted is finished by the next one.
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
from lakeingest.lake.iceberg.history import STAGING, is_marked

EXPIRED = "lakeingest.expired"  # table property: the snapshots that the last removal took out
_VERSIONS, _DELETES = "write.metadata.previous-versions-max", "write.metadata.delete-after-commit.enabled"
_LIMITS = {_VERSIONS: "30", _DELETES: "true"}  # of metadata.json, which each commit writes anew
WORTH = 16  # snapshots that are removed at once: for each removal the manifests of the oldest that stays are read
AT_ONCE = 64  # at most, so that no commit takes seconds longer than the others
_NAMED = ("snapshot-id", "parent-snapshot-id", "sequence-number", "manifest-list")
MOST = 2_000  # published snapshots that are kept: each makes every later commit slower


class AssertUnreferenced(ValidatableTableRequirement):
    """No branch and no tag refers to these snapshots: someone may have made one since the table was loaded."""

    type: Literal["assert-unreferenced"] = "assert-unreferenced"
    snapshot_ids: frozenset[int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """CommitFailedException where one does."""
        refs = {} if base_metadata is None else base_metadata.refs
        for name, ref in refs.items():
            if ref.snapshot_id in self.snapshot_ids:
                raise CommitFailedException(f"{name} refers to snapshot {ref.snapshot_id}, which was to be removed")


def limits(properties: Mapping[str, str]) -> dict[str, str]:
    """The limits of metadata.json that a table with these properties lacks, as one of an older release does."""
    return {name: value for name, value in _LIMITS.items() if name not in properties}


def trim(loaded: Table) -> None:
    """Delete the versions of metadata.json that have left the log of a table by a commit that was built on it."""
    properties = {**_LIMITS, **loaded.properties}
    if properties[_DELETES].lower() != "true":
        return
    log = loaded.metadata.metadata_log
    # the commit has added an entry, for the version that was loaded
    gone = log[: max(0, len(log) + 1 - max(1, int(properties[_VERSIONS])))]
    delete(loaded.io, [entry.metadata_file for entry in gone])


def expire(transaction: Transaction, loaded: Table, history: History, *, all_due: bool = False) -> int:
    """Let this commit remove the snapshots that are due, oldest first; how many, and 0 where it is not worth it yet.

    With `all_due` the commit removes every snapshot that is due.

    `sweep` deletes their files once the commit has landed.
    """
    if missing := limits(loaded.properties):
        transaction.set_properties(missing)
    gone = due_now(loaded, history)
    if len(gone) < (1 if all_due else WORTH):
        return 0
    gone = gone if all_due else gone[:AT_ONCE]
    ids = frozenset(one.snapshot_id for one in gone)
    named = [
        [one.snapshot_id, one.parent_snapshot_id, one.sequence_number, one.manifest_list]
        for one in (*unfinished(loaded), *gone)
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
    there = {one.snapshot_id: one for one in metadata.snapshots}
    published = _kept(metadata, history, now)
    needed = published | {ref.snapshot_id for ref in metadata.refs.values()}
    for number in list(needed):
        needed |= _origin(number, there)
    # from staging back to the oldest of ours that readers can roll main back to: staging stays as far as it is then
    staged = list(_line(metadata.refs[STAGING].snapshot_id, there))
    kept = [place for place, one in enumerate(staged) if one.snapshot_id in published and is_marked(one)]
    needed |= {one.snapshot_id for one in staged[: max(kept, default=0) + 1]}
    seen = {entry.snapshot_id for entry in metadata.snapshot_log}
    ours = (one for one in metadata.snapshots if is_marked(one) or one.snapshot_id in seen)
    return sorted((one for one in ours if one.snapshot_id not in needed), key=_number)


def _kept(metadata: TableMetadata, history: History, now: int) -> set[int]:
    """The published snapshots that are kept: a snapshot's age counts from when readers no longer saw it."""
    oldest = now - history.keep.total_seconds() * 1000
    kept: set[int] = set()
    until = now
    for entry in reversed(metadata.snapshot_log):
        if len(kept) >= MOST or (len(kept) >= history.least and until < oldest):
            break
        kept.add(entry.snapshot_id)
        until = entry.timestamp_ms
    return kept


def _origin(number: int, there: Mapping[int, Snapshot]) -> set[int]:
    """The snapshot, and those below it down to a commit of ours: what someone's compactions were made of."""
    found = set()
    for one in _line(number, there):
        found.add(one.snapshot_id)
        if is_marked(one):
            break
    return found


def _line(number: int | None, there: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    """The snapshot and its ancestors, as far as they are known."""
    while number is not None and (one := there.get(number)) is not None:
        yield one
        number = one.parent_snapshot_id


def unfinished(loaded: Table) -> list[Snapshot]:
    """The snapshots that were removed last and of which files may be left, because their manifest lists are."""
    kept = {one.snapshot_id for one in loaded.metadata.snapshots}
    named = (dict(zip(_NAMED, one, strict=True)) for one in json.loads(loaded.properties.get(EXPIRED, "[]")))
    snapshots = (Snapshot.model_validate(one) for one in named)
    return [one for one in snapshots if one.snapshot_id not in kept and loaded.io.new_input(one.manifest_list).exists()]


def sweep(loaded: Table) -> None:
    """Delete the files that only removed snapshots refer to; the table was loaded after they were removed.

    What cannot be read or deleted is left, and tried again by the next removal.
    """
    if loaded.properties.get("gc.enabled", "true").lower() == "false":  # others use its files
        return
    with suppress(OSError, ValueError):
        gone = unfinished(loaded)
        delete(loaded.io, [*_unneeded(loaded, gone), *(one.manifest_list for one in gone)])


def delete(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that nothing refers to, in this order, as far as that succeeds."""
    with suppress(OSError):
        for path in paths:
            with suppress(FileNotFoundError):
                io.delete(path)


def _unneeded(loaded: Table, gone: Sequence[Snapshot]) -> list[str]:
    """The files of rows and of deletes that no snapshot needs any more, and then the manifests."""
    listed = [{one.manifest_path: one for one in _manifests(snapshot, loaded.io)} for snapshot in gone]
    there = {
        one.manifest_path: one
        for snapshot in _witnesses(loaded.metadata, gone)
        for one in snapshot.manifests(loaded.io)
    }
    manifests = {path: one for manifests in listed for path, one in manifests.items() if path not in there}
    files = {path for one in manifests.values() for path in _files(one, loaded.io, missing=True)}
    # a file is in one manifest of a snapshot: a manifest that all of them have holds none of these files
    in_all = set[str].intersection(*map(set, listed)) if listed else set()
    for path, one in there.items():
        if path not in in_all:
            files.difference_update(_files(one, loaded.io))
    return [*files, *manifests]


def _witnesses(metadata: TableMetadata, gone: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots that have every file which is in one of the removed ones and still needed.

    A file is added once, and gone for good where it is gone. So what a removed snapshot shares with one that stays was
    added at or before the first of its line that stays, and that has it; or it was added by a snapshot that stays and
    from which the removed one descends: the nearest such one has it. Where the line of descent is not known any more,
    each older snapshot is asked. Someone else may have added a file of ours once more, so theirs are all asked.
    """
    kept = {one.snapshot_id: one for one in metadata.snapshots}
    parents = {one.snapshot_id: one.parent_snapshot_id for one in gone}
    found = {one.snapshot_id for one in kept.values() if one.parent_snapshot_id not in kept}
    found |= {ref.snapshot_id for ref in metadata.refs.values()}
    found |= {one.snapshot_id for one in kept.values() if not is_marked(one)}
    for snapshot in gone:
        parent = snapshot.parent_snapshot_id
        while parent in parents:
            parent = parents[parent]
        older = (one.snapshot_id for one in kept.values() if _number(one) < _number(snapshot))
        found |= {parent} if parent in kept else set(older)
    return [kept[number] for number in found if number in kept]


def _manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """None where the list is gone, and with it what it referred to."""
    try:
        return snapshot.manifests(io)
    except FileNotFoundError:
        return []


def _files(manifest: ManifestFile, io: FileIO, *, missing: bool = False) -> Iterator[str]:
    """The files that a manifest has; none where it may be `missing`, because it was deleted after them."""
    try:
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io))
    except FileNotFoundError:
        if not missing:
            raise


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
