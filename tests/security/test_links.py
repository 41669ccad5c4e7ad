"""Symbolic links that someone put into folders of a pipeline: no file behind one is ever deleted."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeingest.core.tables.schema import TableId
from lakeingest.disk import sync_tree
from lakeingest.files import file as files
from lakeingest.files.local import Local
from lakeingest.lake.hudi.commit import roll_back
from lakeingest.lake.hudi.folder import TableFolder
from lakeingest.lake.iceberg.tables.expiry import trim
from lakeingest.lake.iceberg.tables.leftovers import is_below
from lakeingest.lake.staged.staging import StagingFolder
from lakeingest.spool import leftovers

TABLE = TableId("shop", "orders")
LONG_AGO = 1e9
AGE = timedelta(hours=1)


@pytest.fixture
def victim(tmp_path: Local) -> Local:
    """A folder of somebody else, with old files that look like ours."""
    folder = tmp_path / "victim"
    for name in ("precious.txt", "deep/more.parquet", "0-1_2_20260101000000000.parquet", "deep/er/x.json"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious")
    for path in folder.self_and_below():
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder


def staging(root: Local) -> StagingFolder:
    """A folder of staged commits without a commit."""
    return StagingFolder(TABLE, root / "shop.orders")


def swept_staging(root: Local) -> None:
    """Remove what no commit of staging has."""
    staging(root).remove_leftovers(AGE)


def swept_spool(root: Local) -> None:
    """Remove what no segment of the spool names."""
    leftovers.sweep(SimpleNamespace(folder=root, segments=(), assert_owned=lambda: None), AGE)  # type: ignore[arg-type] # nothing else is asked


def rolled_back(root: Local) -> None:
    """Remove what an interrupted commit of Hudi has left."""
    (root / ".hoodie" / "timeline").mkdir(parents=True, exist_ok=True)
    roll_back(root)


def cleared(root: Local) -> None:
    """Remove the folder of a first publish."""
    TableFolder.of(TABLE, root / "orders").clear_building()


@pytest.mark.parametrize(
    ("link", "clean"),
    [
        ("shop.orders/data", swept_staging),
        ("shop.orders/data/link", swept_staging),
        ("shop.orders/compared/link", swept_staging),
        ("shop.orders=gone1", swept_staging),
        ("data", swept_spool),
        ("data/link", swept_spool),
        ("rereads/link", swept_spool),
        ("rereads", swept_spool),
        (".hoodie/.temp", rolled_back),
        (".hoodie/.temp/20260101000000000", rolled_back),
        ("orders__lakeingest_new", cleared),
        ("orders__lakeingest_new/link", cleared),
    ],
)
def test_no_clean_up_follows_a_link(link: str, clean: Callable[[Local], None], victim: Path, tmp_path: Local) -> None:
    """Neither where one of our folders is a link, nor where one is in it."""
    root = tmp_path / "root"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(victim)
    os.utime(root / link, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    before = contents(victim)
    clean(root)
    assert contents(victim) == before


def contents(folder: Path) -> dict[str, str]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_listing_has_no_links(victim: Path, tmp_path: Local) -> None:
    """And a folder with a link that leads nowhere is flushed all the same."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "own.txt").write_text("ours")
    (root / "to a folder").symlink_to(victim)
    (root / "to a file").symlink_to(victim / "precious.txt")
    (root / "to nothing").symlink_to(tmp_path / "nothing")
    assert root.tree() == [root / "own.txt"]
    assert (root / "to a folder").tree() == []
    sync_tree(root, 0)
    files.delete_all(root.self_and_below())
    assert not root.exists()
    assert "precious.txt" in contents(victim)
    assert files.sweep([], AGE) == (0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "{table}/../victim/precious.txt",
        "{table}/link/precious.txt",
        "{table}/metadata/../../victim/precious.txt",
        "{table}/nothing/../../victim/precious.txt",
        "{victim}/precious.txt?/../../table/metadata/x",
        "{victim}/precious.txt#/../../table/metadata/x",
        "{victim}/precious.txt%2f..%2f..%2ftable%2fx",
        "//[{table}/x",
        "{table}/metadata/\0",
    ],
)
def test_a_table_names_no_file_that_is_outside_of_its_folder(name: str, victim: Path, tmp_path: Local) -> None:
    """By two dots, by a link in it, or by what ends a path in a URI; so the log of its versions has none to delete."""
    root, deleted = tmp_path / "table", list[str]()
    (root / "metadata").mkdir(parents=True)
    (root / "link").symlink_to(victim)
    named = "file://" + name.format(table=root, victim=victim)
    own = f"file://{root}/metadata/1.metadata.json"
    log = [SimpleNamespace(metadata_file=name) for name in (named, own, own)]
    metadata: Any = SimpleNamespace(metadata_log=log)
    properties = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    table: Any = SimpleNamespace(
        location=lambda: f"file://{root}",
        metadata=metadata,
        properties=properties,
        io=SimpleNamespace(delete=deleted.append),
    )
    assert not is_below(table, named)
    assert is_below(table, own)
    trim(table)
    assert set(deleted) == {own}


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("s3://lake/shop/t/data/x.parquet", True),
        ("s3://lake/shop/t/../u/data/x.parquet", False),
        ("s3://lake/shop/t/data//x.parquet", False),
        ("s3://lake/shop/t?/data/x.parquet", False),
        ("s3://lake/shop/t2/data/x.parquet", False),
        ("s3://other/shop/t/data/x.parquet", False),
        ("gs://lake/shop/t/data/x.parquet", False),
        ("file:///lake/shop/t/data/x.parquet", False),
        ("lake/shop/t/data/x.parquet", False),
    ],
)
def test_a_table_in_a_store_names_no_object_that_is_outside_of_its_folder(name: str, *, is_own: bool) -> None:
    """Some stores take two dots for the folder above, as a file system does; another store has the same names."""
    table: Any = SimpleNamespace(location=lambda: "s3://lake/shop/t")
    assert is_below(table, name) is is_own
