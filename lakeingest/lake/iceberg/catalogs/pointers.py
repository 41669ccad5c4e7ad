"""Reads from the embedded catalog where the metadata of all tables is, without PyIceberg, whose import takes long."""

import sqlite3
from contextlib import closing
from pathlib import Path

from lakeingest import config
from lakeingest.lake.iceberg.tables.naming import own_name
from lakeingest.lake.known_copies import Pointers


def read_pointers(settings: config.Target) -> Pointers | None:
    """Where the metadata of each table is; None if the catalog is not an embedded one, or cannot be read now.

    Iceberg's views, which have rows in the same table, are left out.
    """
    if not settings.catalog.is_embedded:
        return None
    try:
        rows = _rows(settings.catalog_file.absolute(), settings.catalog.name)
    except sqlite3.Error:
        return None  # whoever opens the catalog finds out why
    names = {(namespace, name): location for namespace, name, location in rows}
    # a table that is being built has a name for building, and gets its own name with its first publish
    own_names = {(namespace, name): (namespace, own_name(name)) for namespace, name in names}
    building = {own for name, own in own_names.items() if name != own}
    return Pointers({name: names[name] for name, own in own_names.items() if name == own}, building)


def _rows(file: Path, catalog: str) -> list[tuple[str, str, str]]:
    """The namespace, the name and the metadata's location of each table of a catalog."""
    # `rw` does not make a file, as in `embedded`
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True)) as connection:
        columns = {column for _, column, *_ in connection.execute("PRAGMA table_info(iceberg_tables)")}
        is_table = "AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)" if "iceberg_type" in columns else ""
        rows = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?"
        return connection.execute(f"{rows} {is_table}", (catalog,)).fetchall()
