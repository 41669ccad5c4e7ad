"""Tables beside each other: `maintain` deletes no file of another table, wherever its folder is."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config import Config, Target
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import ForeignWrite, NotOurTable
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.target import IcebergTarget
from lakeingest.lake.places import nested_folders
from lakeingest.lake.preflight import copies
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake

DAY = timedelta(days=1)
Made = Callable[..., Lake]


def on_disk(folder: Path) -> Target:
    """A warehouse in a folder, where files wait for no query."""
    return config.Target(warehouse=Place.of(folder), history=config.History.model_validate({"readers": "0s"}))


@pytest.fixture
def settings(tmp_path: Path) -> Target:
    """A warehouse on this machine's disk."""
    return on_disk(tmp_path / "warehouse")


@pytest.fixture
def made(settings: Target) -> Made:
    """A function that makes a table, by its name and location; no step of these tests needs Spark."""

    def make(name: str, location: str | None = None, on: Target = settings) -> Lake:
        schema = TableSchema(TableId("shop", name), PLAIN, ("id",))
        options = TableOptions(location=location)
        waiting = Local(on.warehouse.path.parent / "waiting")
        opened = partial(IcebergTarget, on, lambda _: options, waiting=waiting)
        return Lake(on, opened, cast("SparkSession", None), schema, BOUNDARIES)

    return make


@pytest.fixture
def catalog(settings: Target) -> Catalog:
    """The catalog itself, past our code."""
    settings.warehouse.path.mkdir()
    return open_catalog(settings)


def age(settings: Target) -> None:
    """Let all files look old."""
    for path in settings.warehouse.path.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (time.time() - 10**7,) * 2)


def files(folder: Path) -> set[Path]:
    """All files below a folder."""
    return {path for path in folder.rglob("*") if path.is_file()}


def folder(table: Table) -> Path:
    """A table's folder."""
    return Path(table.location().removeprefix("file:"))


def leave(lake: Lake) -> Path:
    """A file that a killed task has left in the table's folder."""
    before = files(lake.settings.warehouse.path)
    lake.open().writer(lake.table).write(lake.arrow([(9, "killed")]))
    [left] = files(lake.settings.warehouse.path) - before
    return left


@pytest.mark.parametrize("below", ["b", "deep/er/b", "data/b", "data/x/y/b", "metadata/b", "sp ace/t.%20/😀"])
def test_another_table_in_the_folder_of_a_table_stays(made: Made, catalog: Catalog, below: str) -> None:
    """At any depth, and under any name; what a killed task has left beside it goes."""
    outer = made("a", "shop/a")
    outer.published((1, "a"))
    location = f"{outer.settings.warehouse.path}/shop/a/{below}"
    inner = catalog.create_table("shop.inner", catalog.load_table("shop.a").schema(), location=location)
    inner.append(catalog.load_table("shop.a").scan().to_arrow())
    left, before = leave(outer), files(Path(location))
    age(outer.settings)
    assert outer.open().remove_leftovers(outer.table, DAY)[0] == 1
    assert not left.exists()
    assert files(Path(location)) == before
    assert catalog.load_table("shop.inner").scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("mark", [".hoodie/hoodie.properties", "_delta_log/00000000000000000000.json"])
@pytest.mark.parametrize("below", ["b/", "data/b/", ""])
def test_tables_of_other_formats_in_the_folder_stay(made: Made, catalog: Catalog, below: str, mark: str) -> None:
    """Those of Hudi and Delta, in the same folder, too: then nothing is deleted."""
    outer = made("a", "shop/a")
    outer.published((1, "a"))
    place = folder(catalog.load_table("shop.a"))
    theirs = [place / below / mark, place / below / "data" / "rows.parquet"]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    left = leave(outer)
    age(outer.settings)
    outer.open().remove_leftovers(outer.table, DAY)
    assert all(path.exists() for path in theirs)
    assert left.exists() == (below == "")


def test_files_of_people_beside_data_and_metadata_stay(made: Made, catalog: Catalog) -> None:
    """Nobody knows whose they are."""
    lake = made("a", "shop/a")
    lake.published((1, "a"))
    notes = folder(catalog.load_table("shop.a")) / "notes" / "read me.txt"
    notes.parent.mkdir()
    notes.write_text("theirs")
    age(lake.settings)
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert notes.exists()


def test_links_lead_to_no_file_that_is_deleted(made: Made, catalog: Catalog, tmp_path: Path) -> None:
    """Behind them are the files of others, or once more the table's own, under other names."""
    lake = made("a", "shop/a")
    lake.published((1, "a"))
    place, theirs = folder(catalog.load_table("shop.a")), tmp_path / "theirs" / "rows.parquet"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    for name, to in (("again", place / "data"), ("theirs", theirs.parent), ("file.parquet", theirs)):
        (place / "data" / name).symlink_to(to)
    os.utime(theirs, (0, 0))
    age(lake.settings)
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert theirs.exists()
    assert lake.open().count(lake.table, lake.loaded().version) == 1
    assert catalog.load_table("shop.a").scan().to_arrow().num_rows == 1


def test_a_table_in_a_folder_behind_a_link_keeps_its_files(made: Made, tmp_path: Path) -> None:
    """Its files have two names: the one that the table knows, and the one without the link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    linked = made("a", on=on_disk(tmp_path / "link"))
    linked.published((1, "a"))
    left = leave(linked)
    age(config.Target(warehouse=Place.of(tmp_path / "disk")))
    assert linked.open().remove_leftovers(linked.table, DAY)[0] == 1
    assert not left.exists()
    assert open_catalog(linked.settings).load_table("shop.a").scan().to_arrow().num_rows == 1


def test_a_folder_whose_name_begins_as_the_tables_is_another_one(made: Made, catalog: Catalog) -> None:
    """`t1` and `t10` are beside each other."""
    one, other = made("t1", "shop/t1"), made("t10", "shop/t10")
    one.published((1, "a"))
    other.published((2, "b"))
    left = leave(other)
    age(one.settings)
    assert one.open().remove_leftovers(one.table, DAY) == (0, 0)
    assert left.exists()
    assert catalog.load_table("shop.t10").scan().to_arrow().num_rows == 1


def test_a_location_that_someone_changed_is_a_foreign_write(made: Made, catalog: Catalog) -> None:
    """The new folder may be above those of others. Set back, the table goes on."""
    lake, other = made("a"), made("b")
    lake.published((1, "a"))
    other.published((2, "b"))
    table = catalog.load_table("shop.a")
    before, above = table.location(), table.location().rpartition("/")[0]
    catalog.commit_table(table, (), (SetLocationUpdate(location=above),))
    age(lake.settings)
    for step in (lambda: lake.open().remove_leftovers(lake.table, DAY), lake.loaded):
        with pytest.raises(ForeignWrite, match=rf"changed its folder to .* from {before}; `lakeingest rollback"):
            step()
    assert catalog.load_table("shop.b").scan().to_arrow().num_rows == 1
    table = catalog.load_table("shop.a")
    catalog.commit_table(table, (), (SetLocationUpdate(location=f"{before}/"),))
    lake.publish(lake.merge(lake.loaded(), (3, "c", False), pos=30))


def test_a_copy_that_says_no_folder_says_it_from_the_next_publish_on(made: Made, catalog: Catalog) -> None:
    """An earlier version made it."""
    lake = made("a")
    lake.published((1, "a"))
    catalog.load_table("shop.a").transaction().remove_properties("lakeingest.location").commit_transaction()
    lake.publish(lake.merge(lake.loaded(), (3, "c", False), pos=30))
    table = catalog.load_table("shop.a")
    assert table.properties["lakeingest.location"] == table.location()


def test_a_copy_that_someone_renamed_keeps_its_files(made: Made, catalog: Catalog) -> None:
    """The new copy is in the same folder, which the user chose. Dropped, the old copy's files go."""
    lake = made("a", "shop/a")
    lake.published((1, "a"))
    catalog.rename_table("shop.a", "shop.before")
    lake.published((2, "b"))
    age(lake.settings)
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert catalog.load_table("shop.before").scan().to_arrow().num_rows == 1
    catalog.drop_table("shop.before")
    assert lake.open().remove_leftovers(lake.table, DAY)[0] > 0
    assert catalog.load_table("shop.a").scan().to_arrow().num_rows == 1


def test_a_table_of_others_in_the_same_folder_keeps_its_files(made: Made, catalog: Catalog) -> None:
    """Someone gave their table the folder of ours."""
    lake = made("a", "shop/a")
    lake.published((1, "a"))
    ours = catalog.load_table("shop.a")
    theirs = catalog.create_table("shop.theirs", ours.schema(), location=ours.location())
    theirs.append(ours.scan().to_arrow())
    left = leave(lake)
    age(lake.settings)
    assert lake.open().remove_leftovers(lake.table, DAY) == (0, 0)
    assert left.exists()
    assert catalog.load_table("shop.theirs").scan().to_arrow().num_rows == 1


def test_a_new_folder_in_that_of_another_table_is_refused(made: Made, catalog: Catalog) -> None:
    """Also the one that a table gets by its name; before a run begins, and when the table is made."""
    made("a", "shop").published((1, "a"))
    other = made("b")
    reason = r"shop\.b: its folder .*/shop/b-.* is in the folder of another table"
    found = copies(other.open(), [other.table])
    with pytest.raises(NotOurTable, match=reason):
        raise found.refused[other.table]
    with pytest.raises(NotOurTable, match=reason):
        other.created()
    assert catalog.list_tables("shop") == [("shop", "a")]


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [("shop", None, "a"), ("x", "x/y/z", "a"), ("x/y/z", "x", "b"), ("x", "x", "b"), ("x", "xy", ""), (None, None, "")],
)
def test_folders_of_new_tables_that_contain_each_other_are_refused(
    one: str | None, other: str | None, refused: str
) -> None:
    """By name, before a copy is made."""
    options = {f"shop.{name}": {"location": given} for name, given in (("a", one), ("b", other)) if given}
    source = {"type": "mysql", "host": "h", "user": "u", "password": "p"}
    tables, target = {"include": ["shop.*"], "options": options}, {"warehouse": "/lake"}
    config = Config.model_validate({"version": 1, "name": "x", "source": source, "tables": tables, "target": target})
    found = nested_folders(config, [TableId("shop", "a"), TableId("shop", "b")])
    assert [table.name for table in found] == list(refused)
    assert all("choose another" in str(error) for error in found.values())


def test_expiry_deletes_no_file_outside_of_the_tables_folder(made: Made, catalog: Catalog) -> None:
    """Someone had added a file of another table, and rolled main back."""
    short = config.History.model_validate({"keep": "0s", "least": 1, "readers": "0s"})
    lake = made("a")
    settings = lake.settings.model_copy(update={"history": short})
    waiting = Local(settings.warehouse.path.parent / "w")
    lake = replace(lake, open=lambda: IcebergTarget(settings, waiting=waiting))
    lake.published((1, "a"))
    made("b").published((7, "theirs"))
    theirs = next(iter(catalog.load_table("shop.b").scan().plan_files())).file.file_path
    table = catalog.load_table("shop.a")
    ours = table.current_snapshot()
    assert ours is not None
    table.add_files([theirs], check_duplicate_files=False)
    table.manage_snapshots().rollback_to_snapshot(ours.snapshot_id).commit()
    for key in range(3):
        lake.publish(lake.merge(lake.loaded(), (key, "c", False), pos=30 + key))
        lake.publish(lake.open().maintain(lake.loaded()))
    assert len(catalog.load_table("shop.a").metadata.snapshots) < 5
    assert catalog.load_table("shop.b").scan().to_arrow().num_rows == 1
