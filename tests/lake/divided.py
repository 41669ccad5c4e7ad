"""Tables with partitions, of either format: their columns, their rows, and what readers see of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from pyiceberg.table import Table

from lakeingest.config import CATALOG
from lakeingest.core.tables.schema import Column, Kind
from lakeingest.files.local import Local
from lakeingest.lake.hudi.partitions import PARTITION
from lakeingest.mysql.source_types import source_type
from tests.lake.hudi import partitioned as hudi_places
from tests.lake.partitioned import places as iceberg_places
from tests.lake.shown import catalog_of
from tests.lake.steps import Lake

COLUMNS = (
    Column("id", Kind.INT32, source_type("int"), nullable=False),
    Column("d", Kind.DATE, source_type("date")),
    Column("v", Kind.STRING, source_type("text"), charset="utf8mb4", collation="utf8mb4_0900_ai_ci"),
)
OLD, EPOCH, NEW = date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 3)
ROWS = ((1, OLD, "a"), (2, EPOCH, "b"), (3, None, "c"), (4, NEW, ""), (5, EPOCH, "e"), (6, None, None))
MOVES = (  # changes that move rows between partitions, also to and from NULL; a new row, and one that stays
    (1, NEW, "a2", False),
    (2, None, "", False),
    (3, OLD, "x/y=\\z", False),
    (4, None, None, True),
    (5, EPOCH, "e2", False),
    (9, NEW, "i", False),
)
MOVED = [(1, NEW, "a2"), (2, None, ""), (3, OLD, "x/y=\\z"), (5, EPOCH, "e2"), (6, None, None), (9, NEW, "i")]
BACK = ((1, OLD, "a", False), (2, EPOCH, "b", False), (3, None, "c", False), (4, NEW, "", False), (9, None, "", True))
BACKED = [(1, OLD, "a"), (2, EPOCH, "b"), (3, None, "c"), (4, NEW, ""), (5, EPOCH, "e2"), (6, None, None)]

Divide = Callable[..., Lake]  # the fixture `divide`


def folder(lake: Lake) -> Local:
    """Where readers of Hudi find the table."""
    return Local(lake.settings.folder(lake.table).path)


def places(lake: Lake) -> dict[str, str]:
    """The partition of each file of Hudi that readers see."""
    return hudi_places.places(lake.settings, lake.table)


@contextmanager
def table_of(lake: Lake) -> Iterator[Table]:
    """The table of Iceberg past our code."""
    with catalog_of(lake.settings) as catalog:
        yield catalog.load_table((lake.table.database, lake.table.name))


def assert_seen(lake: Lake, rows: Sequence[tuple[Any, ...]]) -> None:
    """The rows that readers see, by id; each is in the partition of its values."""
    if lake.settings.format == "hudi":
        assert_seen_in_hudi(lake, rows)
    else:
        with table_of(lake) as table:
            assert_seen_in_iceberg(lake, table, rows)


def assert_seen_in_iceberg(lake: Lake, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """What Spark and PyIceberg read, and where the rows are."""
    found = lake.spark.table(f"{CATALOG}.{lake.table}").collect()
    assert sorted(map(tuple, found), key=lambda row: row[0]) == list(rows)
    columns = [table.scan().to_arrow()[name].to_pylist() for name in lake.schema.names]
    assert sorted(zip(*columns, strict=True), key=lambda row: row[0]) == list(rows)
    iceberg_places(table)


def assert_seen_in_hudi(lake: Lake, rows: Sequence[tuple[Any, ...]]) -> set[str]:
    """What readers see, and where the rows are. Returns the partitions."""
    found = lake.spark.read.format("hudi").load(str(folder(lake)))
    assert sorted(map(tuple, found.select(*lake.schema.names).collect()), key=lambda row: row[0]) == list(rows)
    assert lake.open().count(lake.table, lake.loaded().version) == len(rows)
    where = found.select(PARTITION, "_hoodie_partition_path").collect()
    for partition, path in where:
        assert partition == path
        pruned = found.where(f"{PARTITION} = '{partition}'")
        assert pruned.count() == sum(1 for one, _ in where if one == partition)
        assert {name.rpartition("/")[0].rpartition("/")[2] for name in pruned.inputFiles()} >= {partition}
    assert places(lake)
    return {partition for partition, _ in where}
