"""The folders of new copies: none may be inside another copy's folder, because each folder belongs to one table."""

import re
from collections.abc import Iterable, Iterator

from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import NotOurTable
from lakeingest.lake.formats import package_of


def nested_folders(config: Config, tables: Iterable[TableId]) -> dict[TableId, NotOurTable]:
    """The tables whose new folder would contain, or be, the new folder of another table; each table with its error.

    None of the given tables has a copy yet. Of several tables with the same folder, the first gets it.
    """
    chosen: dict[TableId, str] = {}
    for table in tables:  # without tables, the format's package, which takes long to import, is not needed
        folder = package_of(config).new_place(config.target, config.tables.of(table), table)
        if folder is not None:
            chosen[table] = folder
    # without superfluous slashes, so that the same folder has the same text
    folders = {table: re.sub("/+", "/", folder).rstrip("/") for table, folder in chosen.items()}
    table_inside: dict[str, TableId] = {}  # by folder: a table whose folder will be inside of this folder
    for table, folder in folders.items():
        for parent in _parents(folder):
            table_inside.setdefault(parent, table)
    table_at: dict[str, TableId] = {}  # by folder: the first of the tables that would get this folder
    refused: dict[TableId, NotOurTable] = {}
    for table, folder in folders.items():
        other, where = table_inside.get(folder), "be in"  # `where`: words of the message
        if other is None:
            other, where = table_at.get(folder), "be"
        if other is not None:
            refused[table] = NotOurTable(
                f"{table}: the folder of {other} would {where} its folder {chosen[table]}; choose another (location)"
            )
        elif not folder.endswith("-"):  # random digits will follow the "-", so that no two folders are the same
            table_at[folder] = table
    return refused


def _parents(folder: str) -> Iterator[str]:
    """The folders that contain a folder, the innermost first."""
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder
