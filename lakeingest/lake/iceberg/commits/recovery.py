"""Recovery: after a loss of files, a table goes back to its newest commit whose files are complete.

Lost changes are merged again from the spool or from the binlog. Until that is done, readers may see an older commit,
which is exact at its stored position. An unpublished table without a complete commit is copied again.
"""

import json
from collections.abc import Iterable, Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.core.tables.schema import TableId
from lakeingest.lake.iceberg.commits.audit import find_damage
from lakeingest.lake.iceberg.commits.lost_metadata import restore
from lakeingest.lake.iceberg.merges.marks import mark
from lakeingest.lake.iceberg.tables.history import MAIN, STAGING, is_marked, progress_of, tip
from lakeingest.lake.marks import POSITION


def newest_whole(loaded: Table) -> Snapshot | None:
    """Our newest commit whose files are complete, as far as `find_damage` looks; None if no commit of ours is complete.

    Commits on staging that are not older than main are tried first, then the commits that were published.
    """
    candidates = _candidates(loaded)
    return next((snapshot for snapshot in candidates if find_damage(loaded, snapshot.snapshot_id) is None), None)


def _candidates(loaded: Table) -> Iterator[Snapshot]:
    """Our commits in the order in which `newest_whole` tries them: those on staging, then those that were published.

    Both begin with the newest. A commit on staging that is older than main is tried only if it was published.
    """
    main = tip(loaded, MAIN)
    staging = loaded.metadata.snapshot_by_name(STAGING)  # None if someone has removed the branch
    for snapshot in ancestors_of(staging, loaded.metadata):
        if is_marked(snapshot):
            yield snapshot
        if snapshot.snapshot_id == main.snapshot_id:
            break  # the rest is older than main
    for entry in reversed(loaded.metadata.snapshot_log):
        published = loaded.metadata.snapshot_by_id(entry.snapshot_id)
        if published is not None and is_marked(published):
            yield published


def reset_to(table: TableId, loaded: Table, snapshot: Snapshot) -> Transaction:
    """The transaction that moves staging to a commit of ours, and adds a new commit there.

    If files of main are damaged, and this commit was published before, main moves to this commit, too. Main never moves
    to a commit that was not published.
    """
    progress = progress_of(table, snapshot)
    transaction = loaded.transaction()
    branches = ManageSnapshots(transaction=transaction)
    was_published = any(entry.snapshot_id == snapshot.snapshot_id for entry in loaded.metadata.snapshot_log)
    moves_main = was_published and find_damage(loaded, tip(loaded, MAIN).snapshot_id) is not None
    if moves_main:
        position_text = "" if progress.position is None else json.dumps(progress.position.to_json())
        transaction.set_properties({POSITION: position_text})
        branches.set_current_snapshot(snapshot_id=snapshot.snapshot_id)
    branches.create_branch(snapshot.snapshot_id, STAGING).commit()  # into the transaction
    mark(transaction, progress, snapshot.snapshot_id)
    return transaction


def restore_metadata(catalog: Catalog, names: Iterable[tuple[str, str]]) -> str | None:
    """Call `restore` for each of these names of a table, until it has pointed the catalog at older metadata.

    Returns the name of the lost file; None if `restore` returns None for each name.
    """
    return next(filter(None, (restore(catalog, name) for name in names)), None)
