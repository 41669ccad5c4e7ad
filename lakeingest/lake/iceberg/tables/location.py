"""The folder of a new copy. It must not have files of others, because `maintain` deletes unreferenced files there."""

import re
import uuid
from collections.abc import Iterator

from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile

from lakeingest import config
from lakeingest.config.location import folder_of
from lakeingest.config.tables import TableOptions
from lakeingest.core.file_names import joined
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import NotOurTable, OperatorNeeded, Scope
from lakeingest.lake.iceberg.storage.durable import DurableFileIO
from lakeingest.lake.iceberg.tables.leftovers import REFUSED, store_of
from lakeingest.lake.iceberg.tables.naming import Name
from lakeingest.lake.marks import OWNER

_OURS = frozenset({"data", "metadata"})  # the folders that an Iceberg table has in its own folder


def chosen_location(settings: config.Target, options: TableOptions, table: TableId) -> str | None:
    """The folder that the user chose for a new copy; None if each new copy gets a new folder."""
    chosen = options.location or settings.location
    return None if chosen is None else folder_of(chosen, settings.warehouse, table).uri


def new_location(settings: config.Target, table: TableId) -> str:
    """A folder that no table has had: its name ends with random digits."""
    return f"{beginning(settings, table)}{uuid.uuid4().hex[:8]}"


def new_location_of(settings: config.Target, name: Name) -> str:
    """A folder as `new_location` returns it, for a table with this name."""
    return f"{_beginning_of(settings, name)}{uuid.uuid4().hex[:8]}"


def beginning(settings: config.Target, table: TableId) -> str:
    """The path with which each new folder of the table begins.

    It has only characters that PyIceberg, Spark and DuckDB all leave as they are.
    """
    return _beginning_of(settings, settings.identifier(table))


def _beginning_of(settings: config.Target, table_name: Name) -> str:
    """The path with which each new folder of a table with this name begins."""
    namespace, name = (re.sub(r"[^\w$-]", "_", part, flags=re.ASCII) for part in table_name)
    return joined(settings.warehouse.uri, namespace, f"{name}-")


def new_place(settings: config.Target, options: TableOptions, table: TableId) -> str | None:
    """The folder that the user chose for a new copy; else None if the catalog chooses one; else its `beginning`."""
    chosen = chosen_location(settings, options, table)
    return chosen or (None if settings.catalog.gives_places else beginning(settings, table))


def is_ours(settings: config.Target, options: TableOptions, table: TableId, location: str) -> bool:
    """Whether this is a folder that we would make for the table, or could have made earlier.

    In any other folder no file is deleted: someone may have set a folder of others as the table's folder. Always True
    for a REST catalog: it may choose another folder than we ask for, and checks the folders of its tables itself.
    """
    if settings.catalog.type == "rest":
        return True
    chosen = chosen_location(settings, options, table)
    our_scheme, path_start = _scheme_and_path(beginning(settings, table))
    try:
        scheme, path = _scheme_and_path(location)
    except ValueError:  # no location of a folder
        return False
    is_new = scheme == our_scheme and path.startswith(path_start) and _is_random(path[len(path_start) :])
    return is_new or (chosen is not None and (scheme, path) == _scheme_and_path(chosen))


def _is_random(ending: str) -> bool:
    """Whether these are the digits of `new_location`. One pattern for all tables: Python keeps few compiled ones."""
    return re.fullmatch("[0-9a-f]{8}", ending) is not None


def _scheme_and_path(location: str) -> tuple[str, str]:
    """The scheme of a location, which is the kind of its store, and its path there."""
    scheme, _, path = DurableFileIO.parse_location(location)
    return scheme, path.rstrip("/")


def foreign_folder(table: TableId, location: str) -> OperatorNeeded:
    """The error for a deletion of leftovers of a table whose folder lakeingest did not choose."""
    error = OperatorNeeded(
        f"{table}: its copy is in {location}, a folder that pipeline.yml does not name, so no file is deleted there; if"
        " the copy was made there, name it in tables.options as the location of this table"
    )
    error.scope = Scope.TABLE
    return error


def assert_folder_usable(catalog: Catalog, settings: config.Target, options: TableOptions, table: TableId) -> None:
    """Raises NotOurTable if no copy of the table can be made in the folder that a new copy would get.

    A REST catalog may give rights to a table's folder only once the table exists. So for a REST catalog nothing is
    checked here: the creation of the table checks the folder.
    """
    location = new_place(settings, options, table)  # None: the catalog will choose the folder
    if location is None or settings.catalog.type == "rest":
        return
    io = catalog._load_file_io(location=location)  # noqa: SLF001 - as PyIceberg does
    # random digits will follow `beginning`, so the folder will be new, but may be inside of another table's folder
    if location == beginning(settings, table):
        assert_outside(io, table, location)
    else:
        assert_free(io, table, location)


def assert_free(io: FileIO, table: TableId, location: str) -> None:
    """Raises NotOurTable unless the folder is empty, or has only an older copy of the table.

    Raises NotOurTable also if the folder is inside of another table's folder.
    """
    store, folder = store_of(io, location)
    names = {entry.base_name for entry in store.get_file_info(FileSelector(folder, allow_not_found=True))}
    newest = max(_metadata_files(store, folder), default=None)  # its time and its name
    is_older_copy = False
    if newest is not None and names <= _OURS:
        metadata = FromInputFile.table_metadata(io.new_input(f"{location}/metadata/{newest[1]}"))
        is_older_copy = metadata.properties.get(OWNER) == str(table)
    if names and not is_older_copy:
        raise NotOurTable(f"{table}: its folder {location} has files of something else; choose another")
    assert_outside(io, table, location)


def assert_outside(io: FileIO, table: TableId, location: str) -> None:
    """Raises NotOurTable if the folder is inside of another table's folder.

    Random digits may still be missing at the end of `location`. If the credentials are for the table's folder alone,
    the folders above cannot be read, and nothing is raised.
    """
    store, folder = store_of(io, location)
    parent = folder.rpartition("/")[0]
    while parent:
        try:
            is_table = any(_metadata_files(store, parent))
        except OSError as error:
            if REFUSED.search(str(error)):  # the folders above this one cannot be read either
                return
            raise
        if is_table:
            way_out = "choose another folder for it, or for that table (location)"
            raise NotOurTable(f"{table}: its folder {location} is in the folder of another table, {parent}; {way_out}")
        parent = parent.rpartition("/")[0]


def _metadata_files(store: FileSystem, folder: str) -> Iterator[tuple[float, str]]:
    """The time and the name of each metadata.json in a table's folder."""
    for file in store.get_file_info(FileSelector(f"{folder}/metadata", allow_not_found=True)):
        if file.base_name.endswith(".metadata.json"):
            yield file.mtime.timestamp() if file.mtime else 0.0, file.base_name
