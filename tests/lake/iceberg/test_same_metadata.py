"""What was made of metadata, and found right, counts only until the catalog returns other metadata."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ForeignWrite
from lakeingest.lake.iceberg.catalogs.embedded import EmbeddedCatalog
from lakeingest.lake.iceberg.commits.same_metadata import SameMetadata
from lakeingest.lake.iceberg.storage.durable import IO

NAME = ("shop", "orders")
TABLE = TableId(*NAME)


def embedded(folder: Path) -> Catalog:
    """The catalog in this folder, as a process opens it."""
    uri = f"sqlite:///{folder / 'catalog.db'}"
    return EmbeddedCatalog("lake", uri=uri, warehouse=folder.as_uri(), **{"py-io-impl": IO})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog with a table."""
    made = embedded(tmp_path)
    made.create_namespace(NAME[:1])
    made.create_table(NAME, Schema(NestedField(1, "id", LongType(), required=True)), properties={"owner": "me"})
    return made


def set_by_another(folder: Path, **properties: str) -> None:
    """Another process changes the table."""
    with embedded(folder).load_table(NAME).transaction() as transaction:
        transaction.set_properties(properties)


def test_a_change_by_another_process_is_checked(catalog: Catalog, tmp_path: Path) -> None:
    """Each version is checked once, and one that was refused is refused again."""
    same, checked = SameMetadata(catalog), list[str]()

    def look() -> None:
        loaded = catalog.load_table(NAME)
        obeying = same.obeying(TABLE, NAME, loaded.metadata, lambda *_: True)

        def check() -> None:
            checked.append(obeying.properties["owner"])
            if checked[-1] == "others":
                raise ForeignWrite("somebody has changed it")

        same.check(TABLE, obeying, check)

    look()
    look()
    assert checked == ["me"]
    set_by_another(tmp_path, owner="you")
    look()
    look()
    assert checked == ["me", "you"]
    set_by_another(tmp_path, owner="others")
    for _ in range(2):
        with pytest.raises(ForeignWrite):
            look()
    set_by_another(tmp_path, owner="me")
    look()
    assert checked == ["me", "you", "others", "others", "me"]


def test_the_place_decides_whether_files_are_kept(catalog: Catalog) -> None:
    """By table and name: two tables of the source can have one copy in the catalog."""
    same, read = SameMetadata(catalog), catalog.load_table(NAME).metadata
    ours = same.obeying(TABLE, NAME, read, lambda *_: True)
    others = same.obeying(TableId("shop", "lines"), NAME, read, lambda *_: False)
    assert "gc.enabled" not in ours.properties
    assert others.properties["gc.enabled"] == "false"
    assert same.obeying(TABLE, NAME, read, lambda *_: True) is ours


def test_nothing_is_kept_of_a_catalog_that_returns_new_objects(tmp_path: Path) -> None:
    """It would only take memory."""
    catalog = load_catalog("memory", type="in-memory", warehouse=tmp_path.as_uri())
    catalog.create_namespace(NAME[:1])
    read = catalog.create_table(NAME, Schema(NestedField(1, "id", LongType()))).metadata
    same, checked = SameMetadata(catalog), list[int]()
    first = same.obeying(TABLE, NAME, read, lambda *_: True)
    assert same.obeying(TABLE, NAME, read, lambda *_: True) is not first
    for _ in range(2):
        same.check(TABLE, read, lambda: checked.append(1))
    assert len(checked) == 2
