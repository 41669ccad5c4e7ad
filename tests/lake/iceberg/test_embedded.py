"""The embedded catalog is the same to all its clients: it answers as PyIceberg's SQL catalog does, on the same file."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.lake.iceberg.catalogs.database_catalog import DatabaseCatalog
from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.catalogs.sql import ParsingOnceSqlCatalog
from lakeingest.lake.iceberg.commits.lost_metadata import restore

FIELDS = Schema(NestedField(1, "id", LongType(), required=True))
SPACES = ["a", "A", "a.b", "a.b.c", "a_b", "axb", "a%", "a!", "ü'\"", " a ", "", ("a", "b"), ("a.b",), (), ("a", " ")]
TABLES = ["t", "T", "t%", "ü'\"", ""]
KEYS = ["k", "K", "l"]
# Iceberg's JDBC catalog and earlier versions of PyIceberg make tables without types
WITHOUT_TYPES = """
CREATE TABLE iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key)
);
"""
# rows of another catalog, and of a table without metadata.json; and of a view
ROWS = """
INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name)
VALUES ('other', 'a', 't'), ('lake', 'a', 'none');
"""
VIEW = "INSERT INTO iceberg_tables VALUES ('lake', 'A', 't', 'file:/view.json', NULL, 'VIEW')"


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
    if isinstance(value, str) and value.endswith(".metadata.json"):
        return Path(value).name.partition("-")[0]
    return value


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


def prepare(folder: Path, *scripts: str) -> None:
    """Run scripts on a catalog's file."""
    with closing(sqlite3.connect(folder / "catalog.db")) as connection:
        for script in scripts:
            connection.executescript(script)


@pytest.mark.parametrize("with_types", [True, False])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.long("one random history in turn", turn=("seed", "with_types"))
def test_it_answers_as_the_sql_catalog_of_pyiceberg(tmp_path: Path, seed: int, *, with_types: bool) -> None:
    """And so does the class for PostgreSQL. All work on one file in turn; on another file, PyIceberg's alone.

    Both files have the same rows after each step.
    """
    chance, folders = random.Random(seed), [tmp_path / "mixed", tmp_path / "pure"]
    mixed, pure = map(properties, folders)
    for folder in folders:
        prepare(folder, *([] if with_types else [WITHOUT_TYPES]))
    ours = EmbeddedCatalog("lake", **mixed)
    outcomes = set()
    with (
        closing(ParsingOnceSqlCatalog("lake", **mixed)) as server,
        closing(SqlCatalog("lake", **mixed)) as theirs,
        closing(SqlCatalog("lake", **pure)) as alone,
    ):
        for folder in folders:
            prepare(folder, ROWS, *([VIEW] if with_types else []))
        for _ in range(400):
            act, catalog = operation(chance), chance.choice([ours, ours, theirs, server])
            wanted, found = (outcome(partial(act, asked)) for asked in (alone, catalog))
            assert found == wanted
            assert rows(folders[0]) == rows(folders[1])
            outcomes.add(str(wanted))
    assert len(outcomes) > 30
    assert {"NoSuchTableError", "TableAlreadyExistsError", "NoSuchNamespaceError", "NamespaceNotEmptyError"} <= outcomes


KINDS = pytest.mark.parametrize("kind", [EmbeddedCatalog, ParsingOnceSqlCatalog])


@KINDS
def test_each_metadata_json_is_parsed_once(ours: EmbeddedCatalog, kind: type[DatabaseCatalog]) -> None:
    """Each caller gets a table of its own."""
    with closing(kind("lake", **ours.properties)) as catalog:
        first, second = (catalog.load_table("a.t") for _ in range(2))
        assert first is not second
        assert first.metadata is second.metadata
        set_property(ours.load_table("a.t"), "new")
        assert "new" in catalog.load_table("a.t").properties


@KINDS
def test_a_row_goes_back_to_the_metadata_before(ours: EmbeddedCatalog, kind: type[DatabaseCatalog]) -> None:
    """If the file that it names is lost, and nobody has changed it meanwhile."""
    first = ours.load_table("a.t").metadata_location
    set_property(ours.load_table("a.t"), "lost")
    lost = ours.load_table("a.t").metadata_location
    with closing(kind("lake", **ours.properties)) as catalog:
        assert restore(catalog, ("a", "none")) is None
        assert restore(catalog, ("a", "t")) is None
        catalog.point_back(("a", "t"), first, first)
        assert catalog.locations(("a", "t")) == (lost, first)
        Path(lost.removeprefix("file://")).unlink()
        assert restore(catalog, ("a", "t")) == lost
        assert catalog.locations(("a", "t")) == (first, None)


def test_a_new_file_has_the_tables_of_pyiceberg(tmp_path: Path) -> None:
    """Column for column."""

    def columns(folder: Path) -> list[object]:
        with closing(sqlite3.connect(folder / "catalog.db")) as connection:
            names = ("iceberg_tables", "iceberg_namespace_properties")
            return [connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names]

    EmbeddedCatalog("lake", **properties(tmp_path / "ours"))
    SqlCatalog("lake", **properties(tmp_path / "theirs")).close()
    assert columns(tmp_path / "ours") == columns(tmp_path / "theirs")


ODD = [
    "a b",
    "\N{PILE OF POO}",
    "ha#sh",
    "qu?stion=1&mode=ro",
    "per%41cent",
    "100%",
    "a+b",
    "quote'\"",
    "new\nline",
    "\udce9",
]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_every_client_opens_the_same_file(tmp_path: Path, name: str) -> None:
    """Whatever the path of the warehouse has."""
    target = config.Target(warehouse=Place.of(tmp_path / name))
    target.warehouse.path.mkdir()
    ours = EmbeddedCatalog("lake", **target.pyiceberg_properties())
    assert target.catalog_file.exists()
    ours.create_namespace("made")
    with closing(SqlCatalog("lake", **target.pyiceberg_properties())) as theirs:
        assert theirs.list_namespaces() == [("made",)]
    assert list(tmp_path.iterdir()) == [tmp_path / name]


@pytest.fixture
def ours(tmp_path: Path) -> EmbeddedCatalog:
    """A catalog with a table."""
    catalog = EmbeddedCatalog("lake", **properties(tmp_path))
    catalog.create_namespace("a")
    catalog.create_table("a.t", FIELDS)
    return catalog


def set_property(table: Table, key: str) -> object:
    """A commit."""
    return table.catalog.commit_table(table, (), (SetPropertiesUpdate(updates={key: "1"}),))


@contextmanager
def before_metadata(catalog: EmbeddedCatalog, act: Callable[[], object]) -> Iterator[None]:
    """Something happens after the catalog has read a row, and before it changes the row."""
    write = catalog._write_metadata  # noqa: SLF001 - called between the two

    def late(*arguments: Any, **more: Any) -> None:
        del catalog.__dict__["_write_metadata"]  # once
        act()
        write(*arguments, **more)

    catalog.__dict__["_write_metadata"] = late
    yield
    assert "_write_metadata" not in catalog.__dict__


def test_of_two_commits_at_once_one_is_refused(ours: EmbeddedCatalog) -> None:
    """Nothing of it is in the table, and it is known to have failed."""
    table = ours.load_table("a.t")
    rival = EmbeddedCatalog("lake", **ours.properties)
    with (
        before_metadata(ours, lambda: set_property(rival.load_table("a.t"), "theirs")),
        pytest.raises(CommitFailedException),
    ):
        set_property(table, "ours")
    assert ours.load_table("a.t").properties.keys() == {"theirs"}
    set_property(table, "ours")
    assert ours.load_table("a.t").properties.keys() == {"ours", "theirs"}


def test_of_two_creations_at_once_one_is_refused(ours: EmbeddedCatalog) -> None:
    """Also where the second one makes the table by its first commit."""
    creation = ours.create_table_transaction("a.new", FIELDS)
    rival = EmbeddedCatalog("lake", **ours.properties)
    with (
        before_metadata(ours, lambda: rival.create_table("a.new", FIELDS, properties={"by": "rival"})),
        pytest.raises(TableAlreadyExistsError),
    ):
        creation.commit_transaction()
    assert ours.load_table("a.new").properties == {"by": "rival"}


def test_threads_commit_at_the_same_time(ours: EmbeddedCatalog, tmp_path: Path) -> None:
    """Each of their commits is there, and no connection is kept, which a fork of this process would share."""
    tables = [f"a.t{number}" for number in range(4)]

    def work(name: str) -> None:
        ours.create_table(name, FIELDS)
        for number in range(10):
            set_property(ours.load_table(name), str(number))

    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(work, tables))
    for name in tables:
        assert ours.load_table(name).properties.keys() == set(map(str, range(10)))
    held = [
        link for link in Path("/proc/self/fd").iterdir() if link.exists() and link.samefile(tmp_path / "catalog.db")
    ]
    assert held == []


def test_a_commit_waits_for_another_process(ours: EmbeddedCatalog, tmp_path: Path) -> None:
    """For 5 seconds, as by SQLAlchemy; `test_a_catalog_that_others_hold_is_tried_again_later` waits longer."""
    table = ours.load_table("a.t")
    with closing(sqlite3.connect(tmp_path / "catalog.db", check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(set_property, table, "late")
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
            other.rollback()
            waiting.result(10)
    assert "late" in ours.load_table("a.t").properties


def test_a_catalog_that_is_gone_is_not_made_anew(ours: EmbeddedCatalog, tmp_path: Path) -> None:
    """An empty one in its place would let the next run copy all tables again; one that comes back is used."""
    file = tmp_path / "catalog.db"
    shutil.move(file, tmp_path / "away")
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        ours.load_table("a.t")
    assert not file.exists()
    shutil.move(tmp_path / "away", file)
    assert ours.table_exists("a.t")


def test_names_with_the_same_beginning_are_found(ours: EmbeddedCatalog, tmp_path: Path) -> None:
    """Only these, whatever signs they have, of tables and of views of this namespace."""
    names = ["t_", "t_1", "t_%", "t_\U0001f600", "T_1", "t`", "t`1", "t^1", "tt_1", "t%_1"]
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        row = "INSERT INTO iceberg_tables VALUES ('lake', ?, ?, 'file:/none', NULL, ?)"
        made = [*(("a", name, "TABLE") for name in names), ("b", "t_2", "TABLE"), ("a", "t_view", "VIEW")]
        connection.executemany(row, made)
        connection.commit()
    assert sorted(ours.names_beginning("a", "t_")) == sorted(["t_", "t_1", "t_%", "t_\U0001f600", "t_view"])
    assert ours.names_beginning("a", "t%_") == ["t%_1"]
    assert ours.names_beginning("none", "t_") == []


def test_the_first_metadata_of_a_table_is_that_of_pyiceberg() -> None:
    """But for the time, and the UUID, which each table has for itself."""
    ours = methodcaller("_empty_table_metadata")
    first, second, theirs = map(ours, (EmbeddedCatalog, EmbeddedCatalog, MetastoreCatalog))
    assert len({first.table_uuid, second.table_uuid, theirs.table_uuid}) == 3
    assert abs(first.last_updated_ms - theirs.last_updated_ms) < 60_000
    same = {"table_uuid": theirs.table_uuid, "last_updated_ms": theirs.last_updated_ms}
    assert len({made.model_copy(update=same).model_dump_json() for made in (first, second, theirs)}) == 1
    assert first.model_fields_set == theirs.model_fields_set
    first.schemas.append(FIELDS)
    assert second.schemas == ours(EmbeddedCatalog).schemas == []
