"""Rounds of merges and publishes on an Iceberg table beside someone's maintenance by Spark's procedures.

Files below and above the size that we put together, changes of few and of many rows, staging that is published or not:
after each round readers see exactly what was published, whoever reads it.
"""

import json
import random
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.core.copies import progress_form
from lakeingest.errors import MainMoved, StaleWriter
from lakeingest.lake.iceberg.merges import compaction, folding
from lakeingest.lake.iceberg.tables.history import last_published
from lakeingest.lake.marks import PROGRESS
from lakeingest.lake.target import Staged
from tests.lake.steps import Lake, Raw

pytestmark = pytest.mark.spark

PROCEDURES = (
    "rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "rewrite_data_files(table => '{t}', options => map('min-input-files', '2', 'delete-file-threshold', '1'))",
    "rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "rewrite_manifests('{t}')",
    "expire_snapshots(table => '{t}', retain_last => 1, older_than => TIMESTAMP '2999-01-01 00:00:00')",
)


@dataclass
class Source:
    """The rows of a table, and every change by its position."""

    random: random.Random
    rows: dict[int, str]
    pos: int = 20
    log: list[tuple[int, int, str | None]] = field(default_factory=list)
    at: dict[int, dict[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at[self.pos] = dict(self.rows)

    def change(self, most: int) -> None:
        """One transaction: a range of keys inserted, updated or deleted."""
        self.pos += 10
        first = self.random.randrange(len(self.at[20]) * 2)
        kind = self.random.choice(["put", "put", "delete"])
        for key in range(first, first + self.random.randrange(1, most)):
            self.log.append((self.pos, key, f"{kind} {self.pos}" if kind == "put" else None))
            if kind == "put":
                self.rows[key] = self.log[-1][2] or ""
            else:
                self.rows.pop(key, None)
        self.at[self.pos] = dict(self.rows)

    def since(self, pos: int) -> list[tuple[int, str | None, bool]]:
        """The last change of each key after a position, as a merge is given them."""
        last = {key: value for at, key, value in self.log if at > pos}
        return [(key, value, value is None) for key, value in last.items()]


def position_of(staged: Staged) -> int:
    """Where it stands."""
    assert staged.progress.position is not None
    return staged.progress.position.at.pos


def step(lake: Lake, source: Source) -> None:
    """What a run does: load, merge what is new from there, and mostly publish it."""
    staged = lake.loaded()
    if changes := source.since(position_of(staged)):
        staged = lake.merge(staged, *changes, pos=source.pos)
    if source.random.random() < 0.7:  # else the run was killed before
        lake.publish(staged)


def assert_exact(lake: Lake, raw: Raw, source: Source, *, by_spark: bool) -> None:
    """Readers see the source's rows at the position of the commit of ours that main is, or was compacted from."""
    table = raw()
    summary = last_published(lake.table, table).summary
    assert summary is not None
    position = progress_form.from_json(json.loads(summary.additional_properties[PROGRESS])).position
    assert position is not None
    rows = sorted(source.at[position.at.pos].items())
    scanned = table.scan().to_arrow().sort_by("id")
    assert list(zip(scanned["id"].to_pylist(), scanned["v"].to_pylist(), strict=True)) == rows
    if by_spark:
        assert lake.seen() == rows


def beside_maintenance(
    lake: Lake, raw: Raw, spark: SparkSession, source: Source, rounds: int, most: int
) -> dict[str, int]:
    """So many rounds; how often each thing happened."""
    happened: dict[str, int] = {}

    def count(what: str) -> None:
        happened[what] = happened.get(what, 0) + 1

    for number in range(rounds):
        for _ in range(source.random.randrange(1, 4)):
            source.change(most if source.random.random() < 0.3 else 30)
        for _ in range(source.random.randrange(3)):
            procedure = source.random.choice(PROCEDURES)
            spark.sql(f"CALL {CATALOG}.system.{procedure.format(t=lake.table)}")
            count(procedure.partition("(")[0])
        try:
            step(lake, source)
        except (MainMoved, StaleWriter) as error:
            count(type(error).__name__)
        assert_exact(lake, raw, source, by_spark=number % 5 == 0)
    lake.publish(lake.merge(lake.loaded(), *source.since(position_of(lake.loaded())), pos=source.pos))
    assert lake.seen() == sorted(source.rows.items())
    return happened


@pytest.mark.long("takes seconds")
@pytest.mark.parametrize("seed", [1])
def test_rounds_beside_maintenance_are_exact(
    lake: Lake, raw: Raw, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With files of more than a hundred rows as the large ones."""
    monkeypatch.setattr(folding, "SMALL_ROWS", 100)
    monkeypatch.setattr(compaction, "FILES", 3)
    source = Source(random.Random(seed), dict.fromkeys(range(300), "first"))
    staged = lake.copied(*source.rows.items())
    lake.publish(lake.open().mark(staged, lake.leveled(staged, source.pos)))
    happened = beside_maintenance(lake, raw, spark, source, 4, 200)
    assert happened
