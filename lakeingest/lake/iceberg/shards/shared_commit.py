"""The commits of shared tables: which commits of shards each of them shows, and their lists of manifests.

A manifest is never of two shards, and keeps its sequence number. So deletes of a shard apply only to its own files.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.table import Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from lakeingest.core.tables.shards import Showing
from lakeingest.errors import DAMAGED
from lakeingest.lake.iceberg.files.kept_files import manifests_of
from lakeingest.lake.iceberg.tables.history import MAIN

SHARDS = "lakeingest.shards"  # property of a snapshot; also the OWNER of a shared table: it is no single copy
LISTS = "lakeingest.lists"  # property of a shared table: the lists of manifests of its last commit
_TOTALS = (
    "total-records",
    "total-data-files",
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
    "total-files-size",
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A commit of a shard that is shown: its list of manifests, and the totals of its summary, ordered as _TOTALS.

    A total is None if the summary does not have it.
    """

    commit: int
    manifest_list: str
    totals: tuple[int | None, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """The commit of a shard."""
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        return cls(snapshot.snapshot_id, snapshot.manifest_list, _numbers(summary.get(name) for name in _TOTALS))


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a snapshot of a shared table is a commit of ours."""
    return snapshot.summary is not None and SHARDS in snapshot.summary.additional_properties


def add_commit(transaction: Transaction, listed: Mapping[str, Listed]) -> None:
    """Add to the transaction a commit that shows these commits of shards, by the shards' names."""
    texts = {name: [one.commit, one.manifest_list, *one.totals] for name, one in sorted(listed.items())}
    transaction.set_properties({LISTS: json.dumps(texts, separators=(",", ":"))})
    io = transaction._table.io  # noqa: SLF001 - PyIceberg offers no other way
    manifests = [manifest for one in listed.values() for manifest in _manifests(one, io)]
    snapshot = _snapshot(transaction, listed, manifests)
    move = {"ref-name": MAIN, "snapshot-id": snapshot.snapshot_id, "type": SnapshotRefType.BRANCH}
    updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(move)]
    transaction._stage(tuple(updates), ())  # noqa: SLF001 - the commit asserts where main is


def _snapshot(transaction: Transaction, listed: Mapping[str, Listed], manifests: Sequence[ManifestFile]) -> Snapshot:
    """Make a snapshot that shows these commits of shards, and write its list of manifests. Returns the snapshot."""
    metadata, table = transaction.table_metadata, transaction._table  # noqa: SLF001 - as above
    # no manifest may have a greater number than its snapshot. The 1 is for `max`, if there is no manifest
    number = max(metadata.next_sequence_number(), *(manifest.sequence_number or 0 for manifest in manifests), 1)
    parent = metadata.current_snapshot_id if MAIN in metadata.refs else None
    snapshot_id, unique = metadata.new_snapshot_id(), uuid.uuid4()
    location = table.location_provider().new_metadata_location(f"snap-{snapshot_id}-0-{unique}.avro")
    # 2: the version of the format that shared tables have
    with write_manifest_list(2, table.io.new_output(location), snapshot_id, parent, number, "deflate") as writer:
        writer.add_manifests(list(manifests))
    by_name = [(name, [one.totals[place] for one in listed.values()]) for place, name in enumerate(_TOTALS)]
    # a total that one of the shards does not have is not known of all of them. `filter` is for the type checker
    totals = {name: str(sum(filter(None, numbers))) for name, numbers in by_name if None not in numbers}
    showing = Showing({name: one.commit for name, one in sorted(listed.items())})
    summary = Summary(
        operation=Operation.OVERWRITE,
        **{SHARDS: showing.to_text(), **totals},
    )
    fields = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent,
        "sequence-number": number,
        "manifest-list": location,
        "summary": summary,
        "schema-id": metadata.current_schema_id,
    }
    return Snapshot.model_validate(fields)


def parsed(properties: Mapping[str, str]) -> dict[str, Listed]:
    """The lists of the property LISTS; none if someone else has damaged it."""
    try:
        listed = json.loads(properties.get(LISTS, "{}"))
        return {
            str(name): Listed(int(number), str(path), _numbers(totals))
            for name, (number, path, *totals) in listed.items()
            if len(totals) == len(_TOTALS)
        }
    except DAMAGED:
        return {}


def _numbers(totals: Iterable[str | int | None]) -> tuple[int | None, ...]:
    """Totals as numbers; None for a total that is missing."""
    return tuple(None if total is None else int(total) for total in totals)


def _manifests(listed: Listed, io: FileIO) -> list[ManifestFile]:
    """The manifests of a shard's commit that have files."""
    snapshot = Snapshot.model_validate({"snapshot-id": listed.commit, "manifest-list": listed.manifest_list})
    manifests = manifests_of(snapshot, io)
    return [manifest for manifest in manifests if manifest.has_added_files() or manifest.has_existing_files()]
