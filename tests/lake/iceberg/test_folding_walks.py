"""Random histories of a table whose small files `maintain` folds, held equal to a dictionary after each step.

Keys of two columns, whose texts begin with the same 20 characters, more than bounds keep; NULL values; columns that
come, go and get other names; partitions; both versions of the format; compactions by merges in between; writers that
come late, or die; readers of older snapshots.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import Config
from lakeingest.config.tables import TableOptions, Tables
from lakeingest.core.tables.default import Value
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import StaleWriter
from lakeingest.lake.formats import open_target
from lakeingest.lake.iceberg.files.data_files import are_within, bounds_of, drop_deleted
from lakeingest.lake.iceberg.files.live_rows import applying_positions
from lakeingest.lake.iceberg.files.row_ids import ROW_ID, rows_with_ids, with_row_ids
from lakeingest.lake.iceberg.merges import compaction, folding
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import BOUNDARIES, numbers
from tests.lake.iceberg.test_partitions import lifted
from tests.lake.iceberg.test_version_3 import opened
from tests.lake.iceberg.third import entries
from tests.lake.steps import Crash, Lake

__all__ = ["opened"]  # a fixture
pytestmark = pytest.mark.spark

SAME = "the same beginning: "  # longer than the 16 characters that bounds keep
INT, TEXT = source_type("int"), source_type("varchar(60)")
NUMBER, NAME = (
    Column("a b", Kind.INT32, INT, nullable=False),
    Column("ñame", Kind.STRING, TEXT, nullable=False, charset="utf8mb4", collation="utf8mb4_bin"),
)
VALUE = Column("v", Kind.STRING, source_type("text"), charset="utf8mb4", collation="utf8mb4_bin")
KEYS = {"number": (NUMBER,), "number and text": (NUMBER, NAME), "text and number": (NAME, NUMBER), "text": (NAME,)}
Key = tuple[Any, ...]


@dataclass
class Walk:
    """A table, what its rows have to be, and what readers of each version saw."""

    lake: Lake
    opened: Callable[[Lake], Table]
    chance: random.Random
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    seen: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    ids: dict[Key, int] = field(default_factory=dict)
    pos: int = 20
    steps: int = 0

    def key(self, number: int) -> Key:
        """One of the possible keys: numbers and texts do not have the same order."""
        of = {NUMBER.name: number * 37 % 101, NAME.name: f"{SAME if number % 3 else ''}{number * 53 % 101:03}😀"}
        return tuple(of[name] for name in self.lake.schema.key)

    def drawn(self, key: Key) -> dict[str, Any]:
        """A row with this key and random values, a third of them NULL."""
        self.steps += 1
        of_key = dict(zip(self.lake.schema.key, key, strict=True))
        number = {Kind.STRING: f"v{self.steps}", Kind.INT32: self.steps}
        return {
            column.name: of_key.get(column.name, None if self.chance.random() < 1 / 3 else number[column.kind])
            for column in self.lake.schema.columns
        }

    def copy(self, starts: list[int]) -> None:
        """A first publish of several files, each with a range of keys."""
        staged = self.lake.created()
        ordered = sorted(map(self.key, range(80)))
        for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True):
            new = {key: self.drawn(key) for key in ordered[start:stop]}
            self.rows |= new
            upper = None if stop == len(ordered) else (stop,)  # any: the lake does not look at it
            staged = self.lake.wave(staged, [tuple(row.values()) for row in new.values()], upper=upper)
        self.lake.publish(self.lake.open().mark(staged, self.lake.leveled(staged, self.pos)))

    def merge(self) -> None:
        """New rows, updates and deletes of random keys: a few, or most."""
        self.pos += 1
        changes = []
        for number in self.chance.sample(range(101), self.chance.choice([1, 3, 9, 60])):
            key = self.key(number)
            row, is_deleted = self.drawn(key), self.chance.random() < 1 / 4
            self.ids.pop(key, None)
            self.rows.pop(key, None)
            if not is_deleted:
                self.rows[key] = row
            changes.append((*row.values(), is_deleted))
        self.lake.publish(self.lake.merge(self.lake.loaded(), *changes, pos=self.pos))

    def maintain(self) -> None:
        """Fold; now and then by a process that dies before its publish."""
        if self.chance.random() < 1 / 4:
            with suppress(Crash):  # nothing may be to do
                self.lake.dying_before("commit").maintain(self.lake.loaded())
        self.lake.publish(self.lake.open().maintain(self.lake.loaded()))

    def maintain_late(self) -> None:
        """Fold files that a merge has changed meanwhile: refused."""
        before = self.lake.loaded()
        self.merge()
        with suppress(StaleWriter):  # also without anything to do
            self.lake.publish(self.lake.open().maintain(before))

    def lift(self) -> None:
        """A column comes, with a default for all rows or without; one goes; one gets another name."""
        self.pos += 1
        columns, names = self.lake.schema.columns, self.lake.schema.key
        others = [column for column in columns if column.name not in names]
        origins: dict[str, str | None] = {column.name: column.name for column in columns}
        kind = self.chance.choice(["comes", "comes with a default", "goes", "renamed"])
        if kind.startswith("comes") or not others:
            default = Value(self.pos if kind == "comes with a default" else None)
            new = Column(f"c{self.pos}", Kind.INT32, INT, default=default)
            after, origins = (*columns, new), {**origins, new.name: None}
            for row in self.rows.values():
                row[new.name] = default.value
        elif kind == "goes":
            gone = self.chance.choice(others)
            after = tuple(column for column in columns if column is not gone)
            for row in self.rows.values():
                del row[gone.name]
        else:
            old = self.chance.choice(others)
            new = replace(old, name=f"r{self.pos}")
            after = tuple(new if column is old else column for column in columns)
            origins[new.name] = old.name
            self.rows = {
                key: {(new.name if name == old.name else name): value for name, value in row.items()}
                for key, row in self.rows.items()
            }
        schema = replace(self.lake.schema, columns=after)
        moved = lifted(self.lake, self.lake.loaded(), schema, tuple(origins[column.name] for column in after), self.pos)
        self.lake.publish(moved)

    def check(self) -> None:
        """The rows, the bounds of each file, and the ids of rows, which keep them until a merge changes them."""
        table = self.opened(self.lake)
        expected = self.listed()
        assert self.read(table, None, self.lake.schema.names) == expected
        snapshot = table.current_snapshot()
        assert snapshot is not None
        self.seen.append((snapshot.snapshot_id, expected))
        files, (rows, deletes) = TableFiles.of(table), entries(table)
        dead = applying_positions(files, rows, deletes)
        names, key = [one.name for one in table.schema().fields], self.lake.schema.key
        ids: dict[Key, int] = {}
        for entry in rows:
            file = entry.data_file
            found = rows_with_ids(with_row_ids(files), file, names, entry.sequence_number)
            assert found.num_rows == file.record_count
            for name in key:
                within = are_within(found[name], bounds_of(file, table.schema().find_field(name)))
                assert set(within.to_pylist()) == {True}
            if table.format_version == 3:
                living = drop_deleted(found, file, dead).to_pylist()
                ids |= {tuple(row[name] for name in key): row[ROW_ID] for row in living}
        assert len(set(ids.values())) == len(ids)
        assert {key: ids[key] for key in self.ids.keys() & ids.keys()} == {
            key: number for key, number in self.ids.items() if key in ids
        }
        self.ids = ids

    def listed(self) -> list[dict[str, Any]]:
        """The rows that there have to be, in the order of their keys."""
        return [dict(row) for _, row in sorted(self.rows.items())]

    def read(self, table: Table, version: int | None, names: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a snapshot, with these columns, as PyIceberg reads them."""
        found: pa.Table = table.scan(snapshot_id=version).to_arrow().select(names)
        return sorted(found.to_pylist(), key=lambda row: tuple(row[name] for name in self.lake.schema.key))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need few rows."""
    monkeypatch.setattr(folding, "SMALL_ROWS", 15)
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", 40)
    monkeypatch.setattr(compaction, "FILES", 4)


@pytest.fixture
def walk(
    request: pytest.FixtureRequest, lake_config: Config, spark: SparkSession, opened: Callable[[Lake], Table]
) -> Walk:
    """A walk on a new table, whose shape the seed chooses."""
    seed = request.param
    chance = random.Random(seed)
    version, of_key = "23"[seed % 2], list(KEYS)[seed // 2 % len(KEYS)]
    partitions = [()] if seed % 3 else [("bucket(2, `{}`)",), ("truncate(40, `{}`)",)]
    target = lake_config.target.model_copy(update={"merge": "row_delta", "properties": {"format-version": version}})
    columns = KEYS[of_key]
    by = tuple(text.format(columns[0].name) for text in chance.choice(partitions))
    tables = Tables(include=("*.*",), options={"contract.*": TableOptions(partition_by=by)})
    config = lake_config.model_copy(update={"target": target, "tables": tables})
    schema = TableSchema(
        TableId("contract", f"folding {next(numbers)}"), (*columns, VALUE), tuple(one.name for one in columns)
    )
    lake = Lake(target, lambda: open_target(config, lambda: spark), spark, schema, BOUNDARIES)
    return Walk(lake, opened, chance)


def walked(walk: Walk, steps: int) -> None:
    """Take so many steps. At last, each reader of an older snapshot sees what it saw."""
    walk.copy(walk.chance.choice([[0], [0, 30], [0, 20, 40, 60]]))
    walk.check()
    for _ in range(steps):
        walk.chance.choice([walk.merge, walk.merge, walk.maintain, walk.maintain_late, walk.lift])()
        walk.check()
    walk.maintain()
    walk.check()
    table = walk.opened(walk.lake)
    kept = {one.snapshot_id for one in table.snapshots()}
    for version, rows in walk.seen:
        if version in kept:
            assert walk.read(table, version, list(rows[0])) == rows


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("walk", range(2), indirect=True)
def test_a_random_history_with_folding_leaves_the_rows_of_a_dictionary(walk: Walk) -> None:
    """In either version of the format."""
    walked(walk, 6)


@pytest.mark.usefixtures("limits")
@pytest.mark.long("many random histories")
@pytest.mark.parametrize("walk", range(2, 40), indirect=True)
def test_random_histories_with_folding_leave_the_rows_of_a_dictionary(walk: Walk) -> None:
    """Of every key, with and without partitions."""
    walked(walk, 14)
