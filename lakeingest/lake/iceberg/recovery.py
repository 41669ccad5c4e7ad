"""Recovery: after a loss of files, a table goes back to its newest commit whose files are complete.

Lost changes are merged again from the spool or from the binlog. Until then readers see an older commit, which is exact
at its recorded position. Only an unpublished table that lost its first files is copied again.
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
    """Our newest commit whose files are complete: on staging down to main, then among the earlier published ones."""
    return next((snapshot for snapshot in _older(loaded) if find_damage(loaded, snapshot.snapshot_id) is None), None)


def _older(loaded: Table) -> Iterator[Snapshot]:
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
    """Set staging to a commit of ours.

    Main moves there, too, if its files are damaged and this commit was published before; never to a commit that was
    not.
    """
    progress, transaction = progress_of(table, snapshot), loaded.transaction()
    branches = ManageSnapshots(transaction=transaction)
    was_seen = any(entry.snapshot_id == snapshot.snapshot_id for entry in loaded.metadata.snapshot_log)
    if was_seen and find_damage(loaded, tip(loaded, MAIN).snapshot_id) is not None:
        copy = "" if progress.position is None else json.dumps(progress.position.to_json())
        transaction.set_properties({POSITION: copy})
        branches.set_current_snapshot(snapshot_id=snapshot.snapshot_id)
    branches.create_branch(snapshot.snapshot_id, STAGING).commit()
    mark(transaction, progress, snapshot.snapshot_id)
    return transaction


def restore_metadata(catalog: Catalog, name: tuple[str, str]) -> str | None:
    """Point the catalog at the newest readable metadata.json if the file that it names is missing or damaged.

    Only committed files count, because others may belong to a writer that was refused: the previous file of the
    catalog, or an entry in the log of a readable file. Returns the path of the lost file; None if nothing was changed.
    """
    if not isinstance(catalog, SqlCatalog):
        return None
    row = (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == name[0],
        IcebergTables.table_name == name[1],
    )
    with catalog.engine.begin() as connection:
        query = select(IcebergTables.metadata_location, IcebergTables.previous_metadata_location).where(*row)
        lost, previous = connection.execute(query).one_or_none() or (None, None)
        if lost is None or _read(catalog, lost) is not None:
            return None
        committed = [*([previous] if previous else []), *_logged(catalog, lost)]
        newest = next((location for location in committed if _read(catalog, location) is not None), None)
        if newest is None:
            return None
        change = update(IcebergTables).where(*row, IcebergTables.metadata_location == lost)
        connection.execute(change.values(metadata_location=newest, previous_metadata_location=None))
        return str(lost)


def _logged(catalog: Catalog, lost: str) -> Iterator[str]:
    """The entries in the log of the newest readable metadata.json, the newest first."""
    folder = Path(unquote(urlsplit(lost).path)).parent
    # the files' names begin with a number that grows
    for file in sorted(folder.glob("*.metadata.json"), reverse=True):
        if (metadata := _read(catalog, file.as_uri())) is not None:
            yield from (entry.metadata_file for entry in reversed(metadata.metadata_log))
            return


def _read(catalog: Catalog, location: str) -> TableMetadata | None:
    try:
        io = catalog._load_file_io(location=location)  # noqa: SLF001 - as PyIceberg does
        return FromInputFile.table_metadata(io.new_input(location))
    except UNREADABLE:
        return None
