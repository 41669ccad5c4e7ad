"""Tables whose names look like those of folders that lakeingest makes and removes: no file of theirs is removed."""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakeingest import config
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import NotOurTable, UnsupportedTable
from lakeingest.files.local import Local
from lakeingest.lake.hudi.target import HudiTarget
from lakeingest.lake.marks import BUILDING
from tests.lake.conftest import BOUNDARIES
from tests.lake.steps import PLAIN, Lake

Made = Callable[[str], Lake]


@pytest.fixture
def made(tmp_path: Local) -> Made:
    """A function that makes a table by its name; no step of these tests needs Spark."""
    settings = config.Target(format="hudi", warehouse=Place.of(tmp_path / "warehouse"))

    def make(name: str) -> Lake:
        schema = TableSchema(TableId("shop", name), PLAIN, ("id",))
        staging = tmp_path / "staging"
        return Lake(settings, lambda: HudiTarget(settings, staging), cast("SparkSession", None), schema, BOUNDARIES)

    return make


def rows(lake: Lake) -> int:
    """How many rows the files of the table have together; each has one commit."""
    folder = lake.settings.folder(lake.table).path
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def test_a_table_of_the_name_of_another_one_that_is_built_stays(made: Made) -> None:
    """A publish removes what an earlier first publish may have left under that name."""
    one, other = made("t"), made(f"t{BUILDING}")
    one.published((1, "a"))
    other.published((2, "b"), (3, "c"))
    one.publish(one.merge(one.loaded(), (1, "d", False), pos=30))
    assert rows(other) == 2
    assert other.open().count(other.table, other.loaded().version) == 2


def test_a_table_is_not_built_where_another_one_is(made: Made) -> None:
    """Its first publish would be in that folder."""
    other = made(f"t{BUILDING}")
    other.published((2, "b"), (3, "c"))
    with pytest.raises(NotOurTable):
        made("t").published((1, "a"))
    assert rows(other) == 2


def test_staging_that_looks_as_if_it_were_dropped_stays(made: Made) -> None:
    """The names of tables may have dots."""
    one, other = made("a"), made("a.x.gone")
    one.published((1, "a"))
    begun = other.copied((2, "b"))
    for path in Path(str(one.settings.warehouse.path.parent)).rglob("*"):
        os.utime(path, (time.time() - 10**7,) * 2)
    one.open().remove_leftovers(one.table, timedelta(days=1))
    assert other.open().recover(other.table) == begun


@pytest.mark.parametrize("name", [".", "..", ".hoodie"])
def test_a_table_whose_name_is_that_of_another_folder_is_refused(made: Made, name: str) -> None:
    """`..` is a name in MySQL, and would be the folder of all tables."""
    with pytest.raises(UnsupportedTable, match="use Iceberg"):
        made(name).created()
