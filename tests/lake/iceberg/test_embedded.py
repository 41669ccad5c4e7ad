"""The embedded catalog is the same to all its clients: it answers as PyIceberg's SQL catalog does, on the same file."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.errors import Retryable, StorageFailed
from lakeingest.lake.iceberg.catalogs import open_catalog
from lakeingest.lake.iceberg.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.target import IcebergTarget

FIELDS = Schema(NestedField(1, "id", LongType(), required=True))
SPACES = ["a", "A", "a.b", "a.b.c", "a_b", "axb", "a%", "a!", "ü'\"", " a ", "", ("a", "b"), ("a.b",), (), ("a", " ")]
TABLES = ["t", "T", "t%", "ü'\"", ""]
KEYS = ["k", "K", "l"]
# Iceberg's JDBC catalog and earlier versions of PyIceberg make tables without types
WITHOUT_TYPES = """
CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key))
"""


def properties(folder: Path) -> dict[str, str]:
    """The properties of a catalog in a folder."""
    folder.mkdir(exist_ok=True, parents=True)
    return config.Target(warehouse=Place.of(folder)).pyiceberg_properties()


def rows(folder: Path) -> list[list[tuple[object, ...]]]:
    """All that a catalog's file has. Of the names of metadata.json only the number of the version remains."""
    with closing(sqlite3.connect(folder / "catalog.db")) as connection:
        found = [
            connection.execute(f"SELECT * FROM {name}") for name in ("iceberg_tables", "iceberg_namespace_properties")
        ]
        return [sorted((tuple(map(shortened, row)) for row in table), key=repr) for table in found]


def shortened(value: object) -> object:
    """The version of a metadata.json, of its place; any other value as it is."""
    return value.rpartition("/")[2].partition("-")[0] if str(value).endswith(".metadata.json") else value


def told(value: object) -> object:
    """An answer, without what differs by chance."""
    match value:
        case Table():
            return value.name(), value.schema(), value.metadata.properties, shortened(value.metadata_location)
        case list():
            return sorted(map(told, value), key=repr)
    return value


def outcome(act: Callable[[], object]) -> object:
    """What an act answers, or the name of its error: of SQLAlchemy and of sqlite3 they have the same."""
    try:
        return told(act())
    except Exception as error:  # noqa: BLE001 - whatever it is, the other catalog has to have it, too
        return type(error).__name__


def commit(catalog: Any, table: Table, *, uuid: Any) -> object:
    """A commit, asserted as ours are, which may change nothing."""
    updates = (SetPropertiesUpdate(updates={"a": "1"}), RemovePropertiesUpdate(removals=["b"]))
    answer = catalog.commit_table(table, (AssertTableUUID(uuid=uuid),), updates)
    return answer.metadata.properties, shortened(answer.metadata_location)


def operation(chance: random.Random) -> Callable[[Any], object]:
    """An operation by chance, on any catalog."""
    space, other = chance.choice(SPACES), chance.choice(SPACES)
    name, other_name = (
        (*((one,) if isinstance(one, str) else one), chance.choice(TABLES)) if chance.random() < 0.7 else f"{one}.t"
        for one in (space, other)
    )
    values = {key: chance.choice("xyz") for key in KEYS if chance.random() < 0.5}
    removals = {key for key in KEYS if chance.random() < 0.3}

    def register(catalog: Any) -> object:
        return catalog.register_table(other_name, catalog.load_table(name).metadata_location)

    def recreate(catalog: Any) -> object:
        """A commit to a table that was dropped and perhaps made again meanwhile."""
        table = catalog.load_table(name)
        catalog.drop_table(name)
        outcome(lambda: catalog.rename_table(other_name, name))
        return commit(catalog, table, uuid=table.metadata.table_uuid)

    def change(catalog: Any) -> object:
        table = catalog.load_table(name)
        return commit(catalog, table, uuid=table.metadata.table_uuid)

    return chance.choice(
        [
            lambda catalog: catalog.create_namespace(space, values),
            lambda catalog: catalog.create_namespace_if_not_exists(space),
            lambda catalog: catalog.drop_namespace(space),
            lambda catalog: catalog.update_namespace_properties(space, removals, values).__dict__.keys(),
            lambda catalog: catalog.load_namespace_properties(space),
            lambda catalog: catalog.list_namespaces(space),
            lambda catalog: catalog.list_tables(space),
            lambda catalog: catalog.namespace_exists(space),
            lambda catalog: catalog.table_exists(name),
            lambda catalog: catalog.create_table(name, FIELDS, properties=values),
            lambda catalog: catalog.create_table(name, FIELDS, properties=values),
            lambda catalog: catalog.create_table_transaction(name, FIELDS).commit_transaction(),
            lambda catalog: catalog.load_table(name),
            lambda catalog: catalog.drop_table(name),
            lambda catalog: catalog.rename_table(name, other_name),
            lambda catalog: catalog.list_views(space),
            register,
            recreate,
            change,
        ]
    )


@pytest.mark.parametrize("with_types", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_it_answers_as_the_sql_catalog_of_pyiceberg(tmp_path: Path, seed: int, *, with_types: bool) -> None:
    """Both work on one file in turn; on another file, which has the same rows after each step, only PyIceberg's."""
    chance, mixed, pure = random.Random(seed), tmp_path / "mixed", tmp_path / "pure"
    for folder in (mixed, pure):
        folder.mkdir()
        if not with_types:
            with closing(sqlite3.connect(folder / "catalog.db")) as connection:
                connection.executescript(WITHOUT_TYPES)
    alone = SqlCatalog("lake", **properties(pure))
    with closing(SqlCatalog("lake", **properties(mixed))) as theirs, closing(alone):
        ours = EmbeddedCatalog("lake", **properties(mixed))
        for folder in (mixed, pure):
            with closing(sqlite3.connect(folder / "catalog.db")) as connection, connection:
                connection.execute(
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name) VALUES ('o', 'a', 't')"
                )
                connection.execute(
                    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name) VALUES ('lake', 'a', 'none')"
                )
                if with_types:
                    connection.execute(
                        "INSERT INTO iceberg_tables VALUES ('lake', 'A', 't', 'file:/view.json', NULL, 'VIEW')"
                    )
        outcomes = set()
        for _ in range(400):
            act = operation(chance)
            wanted = outcome(lambda: act(alone))  # noqa: B023 - called at once
            found = outcome(lambda: act(chance.choice([ours, ours, theirs])))  # noqa: B023 - called at once
            assert found == wanted
            assert rows(mixed) == rows(pure)
            outcomes.add(str(wanted))
    assert len(outcomes) > 30
    assert {"NoSuchTableError", "TableAlreadyExistsError", "NoSuchNamespaceError", "NamespaceNotEmptyError"} <= outcomes
