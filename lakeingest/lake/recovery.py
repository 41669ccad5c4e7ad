"""Going back to the newest state of a table whose files are whole, after a loss of files.

What was lost is merged again from the spool, or from the binlog. Readers see an older commit until then, which is right
as of its own position. Nothing is copied again, unless a table that nobody has seen yet lost its first files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots
from sqlalchemy import select, update

from lakeingest.core.schema import TableId
from lakeingest.lake.audit import damaged
from lakeingest.lake.history import MAIN, STAGING, is_marked, progress_of, tip
from lakeingest.lake.marks import mark

UNREADABLE = (FileNotFoundError, EOFError, UnicodeDecodeError, ValidationError)  # what PyIceberg says of metadata.json


def newest_whole(loaded: Table) -> Snapshot | None:
    """The newest commit of ours whose files are whole: of staging back to main, then of what readers saw before."""
    return next((one for one in _older(loaded) if damaged(loaded, one.snapshot_id) is None), None)


def _older(loaded: Table) -> Iterator[Snapshot]:
    main = tip(loaded, MAIN)
    for one in ancestors_of(tip(loaded, STAGING), loaded.metadata):
        if is_marked(one):
            yield one
        if one.snapshot_id == main.snapshot_id:
            break
    for entry in reversed(loaded.metadata.snapshot_log):
        published = loaded.metadata.snapshot_by_id(entry.snapshot_id)
        if published is not None and is_marked(published):
            yield published


def back_to(table: TableId, loaded: Table, snapshot: Snapshot) -> Transaction:
    """Let staging stand at a commit of ours, and main too where that stands on one which is not whole."""
    progress, transaction = progress_of(table, snapshot), loaded.transaction()
    branches = ManageSnapshots(transaction=transaction)
    if damaged(loaded, tip(loaded, MAIN).snapshot_id) is not None:
        copy = "" if progress.position is None else json.dumps(progress.position.to_json())
        transaction.set_properties({"lakeingest.position": copy})
        branches.set_current_snapshot(snapshot_id=snapshot.snapshot_id)
    branches.create_branch(snapshot.snapshot_id, STAGING).commit()
    mark(transaction, progress, snapshot.snapshot_id)
    return transaction


def restore_metadata(catalog: Catalog, name: tuple[str, str]) -> str | None:
    """Point the catalog at the newest readable metadata.json where the one that it names is gone or damaged.

    The path of the one that was lost; None where nothing was to do, or nothing could be done.
    """
    if not isinstance(catalog, SqlCatalog):
        return None
    row = (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == name[0],
        IcebergTables.table_name == name[1],
    )
    with catalog.engine.begin() as connection:
        lost = connection.execute(select(IcebergTables.metadata_location).where(*row)).scalar()
        if lost is None or _is_readable(lost, catalog._load_file_io(location=lost)):  # noqa: SLF001 - as PyIceberg does
            return None
        folder = Path(unquote(urlsplit(lost).path)).parent
        # their names begin with a number that grows
        others = sorted((one.as_uri() for one in folder.glob("*.metadata.json") if one.as_uri() < lost), reverse=True)
        found = next((one for one in others if _is_readable(one, catalog._load_file_io(location=one))), None)  # noqa: SLF001
        if found is None:
            return None
        newer = update(IcebergTables).where(*row, IcebergTables.metadata_location == lost)
        connection.execute(newer.values(metadata_location=found, previous_metadata_location=None))
        return lost


def _is_readable(location: str, io: FileIO) -> bool:
    try:
        FromInputFile.table_metadata(io.new_input(location))
    except UNREADABLE:
        return False
    return True
