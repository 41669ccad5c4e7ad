"""Files of copies that were begun and discarded: `maintain` deletes them, and no others that look like them."""

import os
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config import Target
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.files.local import Local
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.lake.iceberg.target import IcebergTarget
from tests.lake.conftest import BOUNDARIES, building
from tests.lake.steps import PLAIN, Crash, Lake
from tests.servers.catalog_servers import TARGETS

NAME = ("shop", "orders")
DAY = timedelta(days=1)


def lake_on(settings: Target) -> Lake:
    """A table; no step of these tests needs Spark."""
    schema = TableSchema(TableId(*NAME), PLAIN, ("id",))
    history = settings.history.model_validate({"readers": "0s"})  # files wait for no query
    settings, waiting = settings.model_copy(update={"history": history}), Local(tempfile.mkdtemp())
    return Lake(
        settings, lambda: IcebergTarget(settings, waiting=waiting), cast("SparkSession", None), schema, BOUNDARIES
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table in a warehouse on this machine's disk."""
    return lake_on(config.Target(warehouse=Place.of(tmp_path)))


def folders(lake: Lake) -> set[str]:
    """The names of the folders in the warehouse that begin as those of the table do."""
    return {path.name for path in lake.settings.warehouse.path.glob("shop/orders-*")}


def aged(lake: Lake) -> None:
    """Let all files look old."""
    for path in lake.settings.warehouse.path.rglob("*"):
        os.utime(path, (time.time() - 10**7,) * 2)


def own_folder(lake: Lake) -> str:
    """That of the table which readers see."""
    return str(open_catalog(lake.settings).load_table(NAME).location().rpartition("/")[2])


def begun_and_discarded(lake: Lake) -> str:
    """The folder of a copy of rows that a run gave up."""
    before = folders(lake)
    lake.copied((1, "a"), (2, "b"))
    lake.open().discard(lake.table)
    [made] = folders(lake) - before
    return made


@pytest.fixture
def published(lake: Lake) -> Lake:
    """The table, which readers see, and beside it the folder of a copy that was discarded."""
    begun_and_discarded(lake)
    lake.published((1, "a"))
    assert len(folders(lake)) == 2
    return lake


@pytest.fixture(params=TARGETS)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """A table in each catalog that is a server."""
    with TARGETS[request.param](tmp_path) as doc:
        doc["catalog"]["name"] = "discarded"
        yield lake_on(Target.model_validate(doc))


@pytest.mark.long("starts servers", only=("glue on s3", "rest", "sql", "hive"))
@pytest.mark.long("the same on another catalog", only=("rest without names",))
@pytest.mark.long("the same on another catalog", only=("rest on s3",))
def test_its_files_are_deleted_in_every_catalog(anywhere: Lake) -> None:
    """All of them, and no other."""
    lake, target = anywhere, anywhere.open()
    lake.copied((1, "a"), (2, "b"))
    target.discard(lake.table)
    lake.published((1, "a"))
    assert target.remove_leftovers(lake.table, DAY) == (0, 0)
    time.sleep(1.5)  # stores tell whole seconds
    removed, size = target.remove_leftovers(lake.table, timedelta(0))
    assert removed > 0
    assert size > 100
    assert target.remove_leftovers(lake.table, timedelta(0)) == (0, 0)
    assert target.count(lake.table, lake.loaded().version) == 1


def test_its_folder_goes_with_all_of_its_files(published: Lake) -> None:
    """Not while one of them is young."""
    target = published.open()
    own = own_folder(published)
    [other] = folders(published) - {own}
    aged(published)
    folder = published.settings.warehouse.path / "shop" / other
    files = [path for path in folder.rglob("*") if path.is_file()]
    os.utime(files[0])
    assert target.remove_leftovers(published.table, DAY) == (0, 0)
    os.utime(files[0], (0, 0))
    assert target.remove_leftovers(published.table, DAY)[0] == len(files)
    assert folders(published) == {own}
    assert target.count(published.table, published.loaded().version) == 1


def test_the_folder_of_a_run_that_yields_goes(lake: Lake) -> None:
    """Two runs began the table at the same time."""
    lake.published((1, "a"))
    own = own_folder(lake)
    with pytest.raises(StaleWriter):
        lake.created()
    assert len(folders(lake)) == 2
    aged(lake)
    lake.open().remove_leftovers(lake.table, DAY)
    assert folders(lake) == {own}


def in_another(lake: Lake, name: str) -> Lake:
    """The same table and warehouse, of another catalog, which the first one knows nothing of."""
    catalog = lake.settings.catalog.model_copy(update={"name": name})
    return lake_on(lake.settings.model_copy(update={"catalog": catalog}))


def test_the_copies_of_other_catalogs_stay(published: Lake) -> None:
    """The one that readers see there, and the one that is being built."""
    second, third = in_another(published, "second"), in_another(published, "third")
    second.published((5, "e"))
    begun = third.copied((6, "f"))
    aged(published)
    before = folders(published)
    assert published.open().remove_leftovers(published.table, DAY)[0] > 0
    assert len(before - folders(published)) == 1
    assert second.open().count(second.table, second.loaded().version) == 1
    assert third.open().count(third.table, begun.version) == 1


def test_a_copy_that_was_published_meanwhile_is_not_discarded(lake: Lake) -> None:
    """The commit that discards it is refused; the other run was killed between its publish and the new name."""
    late = lake.open()
    assert isinstance(late, IcebergTarget)
    staged = lake.copied((1, "a"))
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    before = late._table(lake.table)  # noqa: SLF001 - as the late run has read it
    with pytest.raises(Crash):
        lake.publish(staged, target=lake.dying_before("rename"))
    with pytest.raises(StaleWriter):
        late._entries._drop(lake.table, before)  # noqa: SLF001
    assert lake.loaded().published == staged.version
    assert open_catalog(lake.settings).load_table(NAME).scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("step", ["mark", "publish"])
def test_a_discarded_copy_is_never_gone_on_with(lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The run that discarded it was killed before it dropped the entry: others begin anew, and drop it later."""
    catalog = open_catalog(lake.settings)
    staged = lake.copied((1, "a"))
    staged = lake.open().mark(staged, lake.leveled(staged, 20))
    late = lake.open()
    assert late.recover(lake.table) == staged

    def killed(*_: Any) -> None:
        raise SystemExit

    dying = lake.open()
    assert isinstance(dying, IcebergTarget)
    monkeypatch.setattr(dying._catalog, "drop_table", killed)  # noqa: SLF001
    with pytest.raises(SystemExit):
        dying.discard(lake.table)
    steps = {
        "mark": lambda: late.mark(staged, staged.progress),
        "publish": lambda: lake.publish(staged, target=late),
    }
    with pytest.raises(StaleWriter):
        steps[step]()
    assert lake.open().recover(lake.table) is None
    lake.published((2, "b"))
    assert building(catalog, lake) != []
    lake.loaded()
    assert building(catalog, lake) == []
    aged(lake)
    lake.open().remove_leftovers(lake.table, DAY)
    assert folders(lake) == {own_folder(lake)}


def last_metadata(lake: Lake) -> Path:
    """The last metadata.json of the copy that was discarded."""
    [other] = folders(lake) - {own_folder(lake)}
    folder = lake.settings.warehouse.path / "shop" / other / "metadata"
    return max(folder.glob("*.metadata.json"), key=lambda path: path.name)


def change(lake: Lake, kind: str) -> None:
    """Take a part of the proof away."""
    last = last_metadata(lake)
    match kind:
        case "of another writer, too":
            last.with_name(f"{last.name[:6]}0.metadata.json").write_text("{}")
        case "another one is newer":
            last.with_name("00099-0.metadata.json").write_text(last.read_text().replace('"discarded"', '"begun"'))
        case "of another table":
            last.write_text(last.read_text().replace('"shop.orders"', '"shop.others"'))
        case "damaged":
            last.write_text("{")
        case "used by others":
            last.write_text(last.read_text().replace('"lakeingest.state"', '"gc.enabled":"false","lakeingest.state"'))
        case "under another name":
            last.parent.parent.rename(last.parent.parent.with_name("orders-0123456"))
        case "rows alone":
            for path in last.parent.iterdir():
                path.unlink()


@pytest.mark.parametrize(
    "kind",
    [
        "of another writer, too",
        "another one is newer",
        "of another table",
        "damaged",
        "used by others",
        "under another name",
        "rows alone",
    ],
)
def test_nothing_is_deleted_without_a_proof(published: Lake, kind: str) -> None:
    """Each part of it is needed."""
    change(published, kind)
    aged(published)
    before = set(published.settings.warehouse.path.rglob("*"))
    assert published.open().remove_leftovers(published.table, DAY) == (0, 0)
    assert set(published.settings.warehouse.path.rglob("*")) == before


def test_what_a_killed_creation_left_is_deleted(published: Lake) -> None:
    """Manifests alone are no table."""
    [metadata] = (published.settings.warehouse.path / "shop" / own_folder(published)).glob("metadata")
    left = published.settings.warehouse.path / "shop" / "orders-0123abcd" / "metadata"
    left.mkdir(parents=True)
    for path in metadata.glob("*.avro"):
        (left / path.name).write_bytes(path.read_bytes())
    aged(published)
    published.open().remove_leftovers(published.table, DAY)
    assert folders(published) == {own_folder(published)}
