"""What the snapshots of an Iceberg table tell: which are ours, where staging stands, what readers see.

A commit of ours is *marked*: its summary carries the progress. On main only a compaction of someone else may stand
above one, which by its kind (`replace`) changes no row.
"""

import json

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.errors import ForeignWrite, StateUnreadable
from lakeingest.lake.target import Staged

MAIN = "main"
STAGING = "lakeingest"  # the branch
BUILDING = "__lakeingest_new"  # a table's suffix until its first publish
PROGRESS = "lakeingest.progress"


def standing(table: TableId, loaded: Table) -> Staged:
    """Where the table is to be gone on from.

    That is the newest marked commit of staging, iff what readers see is in its history. Else staging was built on
    what they no longer see: it is what they do see, with the progress of our commit that this comes from.
    """
    if STAGING not in loaded.metadata.refs:
        raise ForeignWrite(f"{table}: its branch {STAGING} is gone; someone else writes to the table")
    main, published = tip(loaded, MAIN).snapshot_id, shown(loaded)
    newest = next((one for one in ancestors_of(tip(loaded, STAGING), loaded.metadata) if is_marked(one)), None)
    behind = {one.snapshot_id for one in ancestors_of(newest, loaded.metadata)}
    if newest is not None and (main in behind or published is None):
        return Staged(progress_of(table, newest), newest.snapshot_id, published)
    return Staged(progress_of(table, source_of(table, loaded)), main, published)


def source_of(table: TableId, loaded: Table) -> Snapshot:
    """The commit of ours whose rows readers see: main itself, or what compactions on it were made of.

    ForeignWrite when anything else stands above it.
    """
    for snapshot in ancestors_of(tip(loaded, MAIN), loaded.metadata):
        if is_marked(snapshot):
            return snapshot
        if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
            raise ForeignWrite(
                f"{table}: someone else wrote snapshot {snapshot.snapshot_id} to it; roll main back to ours"
            )
    raise StateUnreadable(
        f"{table}: the commit of ours that main was compacted from has been expired; drop the table to copy it again"
    )


def shown(loaded: Table) -> int | None:
    """The snapshot that readers see, whoever made it; None for the empty first one of a table that is being built."""
    main = tip(loaded, MAIN)
    building = loaded.name()[-1].endswith(BUILDING)
    first = building and main.parent_snapshot_id is None and not is_marked(main)
    return None if first else main.snapshot_id


def tip(loaded: Table, branch: str) -> Snapshot:
    """The last snapshot of a branch."""
    snapshot = loaded.metadata.snapshot_by_name(branch)
    if snapshot is None:
        raise StateUnreadable(f"{'.'.join(loaded.name())} has no branch {branch}")
    return snapshot


def is_marked(snapshot: Snapshot | None) -> bool:
    """Whether there is such a commit and it carries our progress."""
    return snapshot is not None and snapshot.summary is not None and PROGRESS in snapshot.summary.additional_properties


def progress_of(table: TableId, snapshot: Snapshot) -> Progress:
    """What a marked commit carries; StateUnreadable when it is none."""
    assert snapshot.summary is not None  # noqa: S101 - it is marked
    try:
        return Progress.from_json(json.loads(snapshot.summary.additional_properties[PROGRESS]))
    except (ValueError, StateUnreadable) as error:
        raise StateUnreadable(
            f"{table}: the progress of snapshot {snapshot.snapshot_id} is unreadable: {error}"
        ) from error
