"""Recovery: after a loss of files, a table goes back to its newest commit whose files are complete.

Lost changes are merged again from the spool or from the binlog. Until then readers may see an older commit, which is
exact at its stored position. An unpublished table without a complete commit is copied again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots
from sqlalchemy import select, update

from lakeingest.core.schema import TableId
from lakeingest.lake.iceberg.audit import find_damage
from lakeingest.lake.iceberg.history import MAIN, STAGING, is_marked, progress_of, tip
from lakeingest.lake.iceberg.marks import mark
from lakeingest.lake.marks import POSITION

UNREADABLE = (
    FileNotFoundError,
    EOFError,
    UnicodeDecodeError,
    ValidationError,
)  # what PyIceberg raises for a damaged metadata.json


def newest_whole(loaded: Table) -> Snapshot | None:
    """Our newest commit whose files are complete; None if no commit of ours is complete.

    Commits on staging that are not older than main are tried first, then the commits that were published.
    """
    candidates = _candidates(loaded)
    return next((snapshot for snapshot in candidates if find_damage(loaded, snapshot.snapshot_id) is None), None)


def _candidates(loaded: Table) -> Iterator[Snapshot]:
    """Our commits in the order in which `newest_whole` tries them."""
    main = tip(loaded, MAIN)
    for snapshot in ancestors_of(tip(loaded, STAGING), loaded.metadata):
        if is_marked(snapshot):
            yield snapshot
        if snapshot.snapshot_id == main.snapshot_id:
            break
    for entry in reversed(loaded.metadata.snapshot_log):
        published = loaded.metadata.snapshot_by_id(entry.snapshot_id)
        if published is not None and is_marked(published):
            yield published


def reset_to(table: TableId, loaded: Table, snapshot: Snapshot) -> Transaction:
    """The transaction that moves staging to a commit of ours, and adds a new commit there.

    If files of main are damaged, and this commit was published before, main moves to this commit, too. Main never moves
    to a commit that was not published.
    """
    progress, transaction = progress_of(table, snapshot), loaded.transaction()
    branches = ManageSnapshots(transaction=transaction)
    was_published = any(entry.snapshot_id == snapshot.snapshot_id for entry in loaded.metadata.snapshot_log)
    moves_main = was_published and find_damage(loaded, tip(loaded, MAIN).snapshot_id) is not None
    if moves_main:
        position_text = "" if progress.position is None else json.dumps(progress.position.to_json())
        transaction.set_properties({POSITION: position_text})
        branches.set_current_snapshot(snapshot_id=snapshot.snapshot_id)
    branches.create_branch(snapshot.snapshot_id, STAGING).commit()
    mark(transaction, progress, snapshot.snapshot_id)
    return transaction


def restore_metadata(catalog: Catalog, name: tuple[str, str]) -> str | None:
    """Point an SQL catalog at the newest readable metadata.json, if the one that it names is missing or damaged.

    Only committed files are candidates, because any other file may be of a writer whose commit was refused. Committed
    are the previous file that the catalog names, and the files in the log of a readable metadata.json. Returns the name
    of the lost file; None if nothing was changed: for another kind of catalog, if the catalog has no such table, if its
    metadata.json is readable, or if no candidate is.
    """
    if not isinstance(catalog, SqlCatalog):
        return None
    conditions = (  # of the table's row in the catalog
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == name[0],
        IcebergTables.table_name == name[1],
    )
    with catalog.engine.begin() as connection:
        query = select(IcebergTables.metadata_location, IcebergTables.previous_metadata_location).where(*conditions)
        lost, previous = connection.execute(query).one_or_none() or (None, None)
        if lost is None or _read_metadata(catalog, lost) is not None:
            return None
        committed = [*([previous] if previous else []), *_committed_files(catalog, lost)]
        newest = next((location for location in committed if _read_metadata(catalog, location) is not None), None)
        if newest is None:
            return None
        # nothing changes if another run has changed the row meanwhile
        change = update(IcebergTables).where(*conditions, IcebergTables.metadata_location == lost)
        connection.execute(change.values(metadata_location=newest, previous_metadata_location=None))
        return str(lost)


def _committed_files(catalog: Catalog, lost: str) -> Iterator[str]:
    """The files in the log of the newest readable metadata.json in the folder of `lost`, the newest file first."""
    folder = Path(unquote(urlsplit(lost).path)).parent
    # the names of the files begin with a number that grows with each commit
    for file in sorted(folder.glob("*.metadata.json"), reverse=True):
        if (metadata := _read_metadata(catalog, file.as_uri())) is not None:
            yield from (entry.metadata_file for entry in reversed(metadata.metadata_log))
            return


def _read_metadata(catalog: Catalog, location: str) -> TableMetadata | None:
    try:
        io = catalog._load_file_io(location=location)  # noqa: SLF001 - as PyIceberg does
        return FromInputFile.table_metadata(io.new_input(location))
    except UNREADABLE:
        return None
