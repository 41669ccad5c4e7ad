"""`maintain` puts rows back where their keys belong: as many files as a fresh copy has, each with its own keys."""

import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import Config
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg.files.data_files import bounds_of, read_rows
from lakeingest.lake.iceberg.merges import folding
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import BOUNDARIES, numbers
from tests.lake.iceberg.test_version_3 import Make, Rows, changed, listed, make, opened
from tests.lake.iceberg.third import entries, read_by_pyiceberg
from tests.lake.steps import Lake

__all__ = ["make", "opened"]  # fixtures
pytestmark = pytest.mark.spark

Open = Callable[[Lake], Table]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need few rows: a file with 20 of them is large."""
    monkeypatch.setattr(folding, "SMALL_ROWS", 20)


def copied(lake: Lake, starts: Sequence[int], end: int) -> Rows:
    """A published copy with a file from each of these keys to the next one, in the order of the keys."""
    staged = lake.created()
    for start, stop in zip(starts, (*starts[1:], end), strict=True):
        rows = [(key, "a") for key in range(start, stop)]
        staged = lake.wave(staged, rows, upper=None if stop == end else (stop,))
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    return dict.fromkeys(range(starts[0], end), "a")


def maintained(lake: Lake) -> None:
    """Publish what `lakeingest maintain` makes."""
    lake.publish(lake.open().maintain(lake.loaded()))


def files_of(table: Table) -> list[DataFile]:
    """The data files in the order of their keys. No row of any of them is deleted."""
    rows, deletes = entries(table)
    assert deletes == []
    key = table.schema().find_field(table.schema().identifier_field_ids[0])
    return sorted((entry.data_file for entry in rows), key=lambda file: bounds_of(file, key) or ())


def keys_of(table: Table) -> list[list[Any]]:
    """The keys of each file, in the file's order."""
    files = TableFiles.of(table)
    [name] = [table.schema().find_field(table.schema().identifier_field_ids[0]).name]
    return [read_rows(files, file, [name])[name].to_pylist() for file in files_of(table)]


def paths(table: Table) -> set[str]:
    """The paths of the data files."""
    return {entry.data_file.file_path for entry in entries(table)[0]}


@pytest.mark.parametrize("version", ["2", "3"])
def test_updates_of_random_keys_leave_the_files_of_a_fresh_copy(make: Make, opened: Open, version: str) -> None:
    """Each with the same keys, in their order."""
    lake, chance = make(version), random.Random(1)
    rows = copied(lake, (0, 40, 80), 120)
    for number in range(3):
        changed(lake, rows, dict.fromkeys(chance.sample(range(120), 9), f"v{number}"), 30 + number)
    maintained(lake)
    assert keys_of(opened(lake)) == [list(range(40)), list(range(40, 80)), list(range(80, 120))]
    assert read_by_pyiceberg(opened(lake)) == lake.seen() == listed(rows)


def test_so_many_updates_that_their_file_is_large_are_put_back_too(make: Make, opened: Open) -> None:
    """A file around the keys of others is of updates, also if it is large."""
    lake = make("2")
    rows = copied(lake, (0, 40, 80), 120)
    changed(lake, rows, dict.fromkeys(range(0, 120, 5), "b"), 30)
    changed(lake, rows, {0: "c"}, 31)  # deletes a row of the file with 24 rows
    maintained(lake)
    assert keys_of(opened(lake)) == [list(range(40)), list(range(40, 80)), list(range(80, 120))]
    assert read_by_pyiceberg(opened(lake)) == listed(rows)


def test_files_without_a_deleted_row_are_left_alone(make: Make, opened: Open) -> None:
    """No row of a new file goes there, and a single small file beside them stays where it is."""
    lake = make("2")
    rows = copied(lake, (0, 40, 80), 120)
    before = paths(opened(lake))
    changed(lake, rows, dict.fromkeys((*range(40, 50), 130), "b"), 30)
    maintained(lake)
    assert keys_of(opened(lake)) == [list(range(40)), list(range(40, 80)), list(range(80, 120)), [130]]
    assert len(paths(opened(lake)) & before) == 2
    of_130 = files_of(opened(lake))[-1].file_path
    changed(lake, rows, {41: None}, 31)
    maintained(lake)
    assert of_130 in paths(opened(lake))  # it has no key of the file that was rewritten
    assert read_by_pyiceberg(opened(lake)) == listed(rows)


def test_a_single_small_file_goes_back_to_a_file_that_is_rewritten(make: Make, opened: Open) -> None:
    """Also if the small file has no deleted row."""
    lake = make("2")
    rows = copied(lake, (0, 40), 80)
    changed(lake, rows, {10: "b", 50: "b"}, 30)
    maintained(lake)
    assert len(keys_of(opened(lake))) == 2


def test_a_file_that_takes_too_many_rows_becomes_several(
    make: Make, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of about the same number of rows."""
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", 50)
    lake = make("2")
    staged = lake.wave(lake.created(), [(key, "a") for key in range(0, 80, 2)])
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    rows: Rows = dict.fromkeys(range(0, 80, 2), "a")
    changed(lake, rows, {4: "b", **dict.fromkeys(range(1, 31, 2), "b")}, 30)
    maintained(lake)
    assert [len(keys) for keys in keys_of(opened(lake))] == [27, 28]
    assert list(chain(*keys_of(opened(lake)))) == sorted(rows)


def test_no_more_rows_are_held_than_the_limit(make: Make, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of updates beyond it are rewritten for themselves."""
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", 20)
    lake = make("2")
    rows = copied(lake, (0, 40), 80)
    changed(lake, rows, dict.fromkeys(range(0, 80, 4), "b"), 30)  # a large file with 20 rows, which fit
    changed(lake, rows, {1: "c", 4: "c"}, 31)  # and 2 rows more, which have precedence
    maintained(lake)
    assert sorted(len(keys) for keys in keys_of(opened(lake))) == [19, 30, 31]
    assert read_by_pyiceberg(opened(lake)) == listed(rows)


KEYS: dict[str, tuple[Column, Callable[[int], Any]]] = {
    "bigint unsigned": (
        Column("k", Kind.UINT64, source_type("bigint unsigned"), nullable=False),
        lambda number: 2**64 - 1 - number,
    ),
    "decimal": (
        Column("k", Kind.DECIMAL, source_type("decimal(9,2)"), nullable=False, precision=9, scale=2),
        lambda number: Decimal(number) / 4,
    ),
    "text": (
        Column("k", Kind.STRING, source_type("varchar(60)"), nullable=False),
        lambda number: f"{'long text before the number ' if number % 2 else ''}{number:04}ß😀",
    ),
    "bytes": (
        Column("k", Kind.BINARY, source_type("varbinary(30)"), nullable=False),
        lambda number: bytes([255] * 20 + [number // 256, number % 256]),
    ),
    "date": (Column("k", Kind.DATE, source_type("date"), nullable=False), lambda n: date(1960, 1, 1) + timedelta(n)),
    "datetime": (
        Column("k", Kind.DATETIME, source_type("datetime(6)"), nullable=False, fraction=6),
        lambda number: datetime(1960, 1, 1) + timedelta(microseconds=number),
    ),
}


@pytest.mark.parametrize("of", KEYS)
def test_keys_of_every_kind_go_back(lake_config: Config, spark: SparkSession, opened: Open, of: str) -> None:
    """Also where a bound is shortened, or cannot be: then rows may stay beside, but none is lost."""
    column, value = KEYS[of]
    target = lake_config.target.model_copy(update={"merge": "row_delta"})
    config = lake_config.model_copy(update={"target": target})
    columns = (column, Column("v", Kind.STRING, source_type("text")))
    schema = TableSchema(TableId("contract", f"folded{next(numbers)}"), columns, ("k",))
    lake = Lake(target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)
    ordered = sorted(map(value, range(90)))
    staged = lake.created()
    for start in (0, 30, 60):
        upper = None if start == 60 else (start,)  # any: the lake does not look at it
        staged = lake.wave(staged, [(key, "a") for key in ordered[start : start + 30]], upper=upper)
    lake.publish(lake.open().mark(staged, lake.leveled(staged, 20)))
    rows = dict.fromkeys(ordered, "a")
    for number in range(2):
        new = dict.fromkeys(random.Random(number).sample(ordered, 9), f"v{number}")
        lake.publish(lake.merge(lake.loaded(), *((key, text, False) for key, text in new.items()), pos=30 + number))
        rows |= new
    maintained(lake)
    found = keys_of(opened(lake))
    assert sorted(chain(*found)) == ordered
    if of not in {"text", "bytes"}:
        assert found == [ordered[:30], ordered[30:60], ordered[60:]]
    table: pa.Table = opened(lake).scan().to_arrow()
    assert {row["k"]: row["v"] for row in table.to_pylist()} == rows
