"""Points a catalog in a database at an older metadata.json, if the one that it names is missing or damaged."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from lakeingest.lake.iceberg.catalogs.database_catalog import DatabaseCatalog
from lakeingest.lake.iceberg.storage.errors import UNREADABLE


def restore(catalog: Catalog, name: tuple[str, str]) -> str | None:
    """Point a catalog in a database at the newest readable metadata.json, if the one that it names is lost or damaged.

    Only committed files are candidates, because any other file may be of a writer whose commit was refused. These files
    are committed: the previous file that the catalog names, and the files in the log of a readable metadata.json.

    Returns the name of the lost file; None in these cases, in which nothing is changed:

    - The catalog is in no database, or has no table of this name.
    - The metadata.json that the catalog names is readable.
    - No candidate is readable.
    """
    if not isinstance(catalog, DatabaseCatalog):
        return None
    lost, previous = catalog.locations(name) or (None, None)
    if lost is None or _read_metadata(catalog, lost) is not None:
        return None
    committed = [previous] if previous else []
    committed += _committed_files(catalog, lost)
    newest = next((location for location in committed if _read_metadata(catalog, location) is not None), None)
    if newest is None:
        return None
    catalog.point_back(name, lost, newest)
    return lost


def _committed_files(catalog: Catalog, lost: str) -> Iterator[str]:
    """The files in the log of the newest readable metadata.json in the folder of `lost`, the newest file first."""
    folder = Path(unquote(urlsplit(lost).path)).parent
    # the names of the files begin with a number that grows with each commit
    for file in sorted(folder.glob("*.metadata.json"), reverse=True):
        if (metadata := _read_metadata(catalog, file.as_uri())) is not None:
            yield from (entry.metadata_file for entry in reversed(metadata.metadata_log))
            return


def _read_metadata(catalog: Catalog, location: str) -> TableMetadata | None:
    """The metadata in a file; None if the file is missing or damaged."""
    try:
        io = catalog._load_file_io(location=location)  # noqa: SLF001 - as PyIceberg does
        return FromInputFile.table_metadata(io.new_input(location))
    except UNREADABLE:
        return None
