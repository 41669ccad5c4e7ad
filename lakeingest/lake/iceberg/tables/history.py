"""The snapshots of an Iceberg table: which ones are ours, where staging is, and what readers see.

A commit of ours is *marked*: its summary carries the progress. On main, only compactions by someone else may follow it.
A compaction is a snapshot with the operation `replace`; it changes no row.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Self

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, MainMoved, StaleWriter, StateUnreadable
from lakeingest.lake.iceberg.tables.naming import is_name_for_building
from lakeingest.lake.iceberg.tables.times import latest_time
from lakeingest.lake.marks import OWNER, PROGRESS, parse_progress
from lakeingest.lake.refusals import foreign_write, published_by_another, stale, written_meanwhile
from lakeingest.lake.target import Staged

MAIN = "main"
STAGING = "lakeingest"  # the branch
MERGING = f"{STAGING}_merge_"  # beginning of the names of branches on which statements merge
SAME_ROWS = f"{STAGING}.same_rows"  # property of a commit: its base, if the base has the same rows
STATE = f"{STAGING}.state"  # a property of tables that are not published, and its values:
BOOTSTRAPPING = "bootstrapping"  # the table is being built under its own name
DISCARDED = "discarded"  # it will never be published
TAKEN = f"{STAGING}.taken_over"  # a property of a foreign table from its take-over until our first publish


@dataclass(frozen=True, slots=True)
class Taken:
    """What another tool has left: its last snapshot, the schema at that time, and `adopt.stopped` in pipeline.yml."""

    snapshot: int
    schema: int
    stopped: str

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """What the table's property says; None if the table is not being taken over, or the property is damaged."""
        try:
            return cls(**json.loads(properties[TAKEN]))
        except DAMAGED:
            return None

    def to_text(self) -> str:
        """The value of the property TAKEN."""
        return json.dumps(asdict(self))


def is_foreign(loaded: Table) -> bool:
    """Whether the table is another tool's: no run has taken it over, or someone removed staging after a take-over."""
    is_given_up = TAKEN in loaded.properties and STAGING not in loaded.metadata.refs
    return OWNER not in loaded.properties or is_given_up


def resume_point(table: TableId, loaded: Table) -> Staged | None:
    """The state from which a run continues: the first of these that applies.

    1. None, if an unpublished table has lost all its progress.
    2. The newest marked commit on staging, if nothing is published yet, or if the commit's history contains the
       snapshot that readers see.
    3. The snapshot that readers see, with the progress of our newest commit in its history: someone compacted what
       readers see, or removed staging. Raises as `last_published`.

    Raises StateUnreadable if the progress is damaged, or if main is gone.
    """
    published = published_snapshot(loaded)
    staging_tip = loaded.metadata.snapshot_by_name(STAGING)
    newest = next((snapshot for snapshot in ancestors_of(staging_tip, loaded.metadata) if is_marked(snapshot)), None)
    if newest is None and published is None:  # case 1
        return None
    main = tip(loaded, MAIN).snapshot_id
    changed = latest_time(loaded.metadata) / 1000  # in seconds
    history_of_newest = {snapshot.snapshot_id for snapshot in ancestors_of(newest, loaded.metadata)}
    if newest is not None and (published is None or main in history_of_newest):  # case 2
        same_rows = newest.summary is not None and newest.summary.additional_properties.get(SAME_ROWS) == str(main)
        progress = progress_of(table, newest)
        return Staged(progress, newest.snapshot_id, published, changed=changed, same_rows=same_rows)
    # case 3
    progress = progress_of(table, last_published(table, loaded))
    return Staged(progress, main, published, changed=changed)


def earlier(loaded: Table, staged: Staged) -> list[Staged]:
    """Our commits on staging before `staged` and after the commit that readers see, the newest first."""
    table, metadata = staged.progress.table, loaded.metadata
    history = ancestors_of(metadata.snapshot_by_id(staged.version), metadata)  # the newest first
    unpublished = takewhile(lambda snapshot: snapshot.snapshot_id != staged.published, history)
    ours = [snapshot for snapshot in unpublished if is_marked(snapshot)][1:]  # the first one is `staged` itself
    return [Staged(progress_of(table, snapshot), snapshot.snapshot_id, staged.published) for snapshot in ours]


def last_published(table: TableId, loaded: Table) -> Snapshot:
    """Our commit whose rows readers see: main itself, or the newest commit of ours below compactions of others.

    Raises ForeignWrite if someone else has made another commit than a compaction above our commit; StateUnreadable if
    our commit has been expired.
    """
    snapshots = lineage(loaded, tip(loaded, MAIN))
    for snapshot, _ in snapshots:
        if is_marked(snapshot):
            return snapshot
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            # `snapshots` goes on below the foreign snapshot
            ours = next((f"snapshot {below.snapshot_id}" for below, _ in snapshots if is_marked(below)), None)
            if ours is None and (taken := Taken.of(loaded.properties)) is not None:
                raise written_meanwhile(table, f"snapshot {tip(loaded, MAIN).snapshot_id}", taken.stopped)
            raise foreign_write(table, f"snapshot {snapshot.snapshot_id}", ours)
    raise StateUnreadable(
        f"{table}: the commit of ours that main was compacted from has been expired; drop the table to copy it again"
    )


def lineage(loaded: Table, snapshot: Snapshot) -> Iterator[tuple[Snapshot, TableMetadata]]:
    """A snapshot and its ancestors, each with a version of the table's metadata that has the snapshot.

    If someone has expired an ancestor, it is looked up in older versions of metadata.json. That is safe, because a
    snapshot never changes. The lineage ends before an ancestor that no version has.
    """
    yield snapshot, loaded.metadata
    metadata = loaded.metadata
    older_versions = _older_metadata(loaded)
    while snapshot.parent_snapshot_id is not None:
        parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id)
        while parent is None:  # expired in this version of the metadata: go on to the version before
            older = next(older_versions, None)
            if older is None:
                return
            metadata = older
            parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id)
        snapshot = parent
        yield snapshot, metadata


def _older_metadata(loaded: Table) -> Iterator[TableMetadata]:
    """The older versions of the table's metadata whose files still exist, the newest first."""
    for entry in reversed(loaded.metadata.metadata_log):
        file = loaded.io.new_input(entry.metadata_file)
        if file.exists():
            metadata = FromInputFile.table_metadata(file)
            if metadata.table_uuid == loaded.metadata.table_uuid:  # not the file of another table
                yield metadata


def is_building(loaded: Table) -> bool:
    """Whether the table is being built: its name or its property STATE says that it was never published.

    Only the last part of the name counts, because a namespace with dots makes several parts.
    """
    return is_name_for_building(loaded.name()[-1]) or loaded.properties.get(STATE) == BOOTSTRAPPING


def has_progress(loaded: Table) -> bool:
    """Whether staging has a commit of ours.

    False, for example, if a run created the table under the table's own name, and was killed before its first commit.
    """
    staging_tip = loaded.metadata.snapshot_by_name(STAGING)
    return any(is_marked(snapshot) for snapshot in ancestors_of(staging_tip, loaded.metadata))


def assert_staged(table: TableId, loaded: Table, version: int) -> None:
    """Raises StaleWriter if the commit is no longer in the history of staging."""
    if not any(snapshot.snapshot_id == version for snapshot in ancestors_of(tip(loaded, STAGING), loaded.metadata)):
        raise stale(table)


def published_snapshot(loaded: Table) -> int | None:
    """The snapshot that readers see, whoever made it; None if the table was never published.

    Before the first publish, main does not exist, or has only the empty snapshot of the table's creation. Raises
    StateUnreadable if a table that is not being built has no main.
    """
    if is_building(loaded) and MAIN not in loaded.metadata.refs:
        return None
    main = tip(loaded, MAIN)
    is_of_creation = is_building(loaded) and main.parent_snapshot_id is None and not is_marked(main)
    return None if is_of_creation else main.snapshot_id


def rank_of_build(built: Table) -> tuple[bool, int, str]:
    """How advanced a built table is: first whether it is published, then its number of commits, then its name."""
    commits = max((snapshot.sequence_number or 0 for snapshot in built.metadata.snapshots), default=0)
    return published_snapshot(built) is not None, commits, built.name()[-1]


def is_tip(loaded: Table, branch: str, version: int) -> bool:
    """Whether a branch exists and is at this snapshot."""
    return branch in loaded.metadata.refs and tip(loaded, branch).snapshot_id == version


def tip(loaded: Table, branch: str) -> Snapshot:
    """The last snapshot of a branch.

    If the branch does not exist: raises StaleWriter for staging, which someone has removed; else StateUnreadable.
    """
    snapshot = loaded.metadata.snapshot_by_name(branch)
    if snapshot is None and branch == STAGING:
        raise StaleWriter(f"{'.'.join(loaded.name())}: someone removed its branch {branch}; run the same command again")
    if snapshot is None:
        raise StateUnreadable(f"{'.'.join(loaded.name())} has no branch {branch}")
    return snapshot


def is_marked(snapshot: Snapshot | None) -> bool:
    """Whether the snapshot exists and carries our progress."""
    return snapshot is not None and snapshot.summary is not None and PROGRESS in snapshot.summary.additional_properties


def progress_of(table: TableId, snapshot: Snapshot) -> Progress:
    """The progress of a marked commit. Raises StateUnreadable if the progress is damaged."""
    assert snapshot.summary is not None  # noqa: S101 - it is marked
    return parse_progress(table, f"snapshot {snapshot.snapshot_id}", snapshot.summary.additional_properties[PROGRESS])


def assert_unmoved(loaded: Table, staged: Staged) -> None:
    """Raises an error unless readers see the same snapshot as when `staged` was loaded.

    Raises:
        StaleWriter: another run of ours published.
        MainMoved: someone compacted the table.
        ForeignWrite: someone else changed its rows.

    """
    table = staged.progress.table
    if published_snapshot(loaded) == staged.published:
        return
    ours = last_published(table, loaded)  # raises ForeignWrite for a foreign commit above ours
    if ours.snapshot_id == tip(loaded, MAIN).snapshot_id:
        raise published_by_another(table)
    # main is a compaction of our commit
    raise MainMoved(f"{table}: someone keeps compacting it; run the same command again when they are done")
