"""The DataFrame forms of filter and collapse, held equal to the core's."""

import random
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeingest.core import change
from lakeingest.core.change import ChangeRow, RowKind
from lakeingest.core.collapse import collapse
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import GtidSet, Place
from lakeingest.core.splits import Split, Splits
from lakeingest.core.transactions import TransactionLog
from lakeingest.core.wave import MergePlan, plan_merge
from lakeingest.spark import changes

pytestmark = pytest.mark.spark

FIELDS = ", ".join(
    [
        f"{change.KIND} byte",
        f"{change.EPOCH} int",
        f"{change.FILE} long",
        f"{change.POS} long",
        f"{change.ORDINAL} long",
        f"{change.COMMITTED_AT} timestamp",
        f"{change.GTID} string",
    ]
)


def frame(spark: SparkSession, rows: Sequence[ChangeRow], arity: int) -> DataFrame:
    """Change rows as the spool has them; the column `v` numbers the rows."""
    keys = "".join(f", k{i} long" for i in range(arity))
    data = [
        (int(row.kind), row.place.epoch, row.place.file, row.place.pos, row.ordinal, None, None, *row.key, number)
        for number, row in enumerate(rows)
    ]
    return spark.createDataFrame(data, f"{FIELDS}{keys}, v long")


def place(chance: random.Random) -> Place:
    """One of a few places in three files."""
    return Place(1, chance.randint(9, 11), chance.randint(4, 40))


def key(chance: random.Random, arity: int) -> Key:
    """A key out of few, so that keys meet often, also exactly at bounds."""
    return tuple(chance.randint(-9, 9) for _ in range(arity))


def change_rows(chance: random.Random, arity: int, count: int) -> list[ChangeRow]:
    """Change rows of a few keys, each at a place and ordinal of its own, in any order."""
    orders = {(place(chance), chance.randint(0, 30)) for _ in range(count)}
    return [ChangeRow(chance.choice(list(RowKind)), key(chance, arity), at, ordinal) for at, ordinal in orders]


def plan_of(chance: random.Random, arity: int) -> MergePlan:
    """A merge over splits that were read or merged at different places; the last may be unbounded."""
    uppers: list[Key | None] = [*sorted({key(chance, arity) for _ in range(chance.randint(1, 12))})]
    if chance.random() < 0.5:
        uppers.append(None)
    splits = []
    lower: Key | None = None
    for upper in uppers:
        mark, keys = place(chance), KeyRange(lower, upper)
        splits.append(Split(keys, mark, mark) if chance.random() < 0.5 else Split(keys, merged_at=mark))
        lower = upper
    log = TransactionLog((), GtidSet())
    return plan_merge(Splits(tuple(splits)), Place(1, 11, chance.randint(40, 60)), log, Place(1, 1, 4))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("arity", [1, 2])
def test_filter_and_collapse_are_those_of_the_core(spark: SparkSession, arity: int, seed: int) -> None:
    """Whatever the splits and the changes, the DataFrame keeps the rows that the core keeps, and the same last ones."""
    chance = random.Random(seed)
    rows, plan, names = change_rows(chance, arity, 3000), plan_of(chance, arity), [f"k{i}" for i in range(arity)]
    kept = changes.applicable(frame(spark, rows, arity), plan, names)
    wanted = [row for row in rows if plan.should_apply(row.place, row.key)]
    assert 0 < len(wanted) < len(rows)
    number = {row: n for n, row in enumerate(rows)}
    assert {row["v"] for row in kept.collect()} == {number[row] for row in wanted}
    found = {
        tuple(row[name] for name in names): (row["v"], row[change.DELETED])
        for row in changes.collapse(kept, names).collect()
    }
    assert found == {last: (number[row], row.kind.is_delete) for last, row in collapse(wanted).items()}


def test_ranges_of_unsigned_keys_beyond_the_signed_range_are_told_apart(spark: SparkSession) -> None:
    """The lookup of a key among ranges is exact up to 2^64 - 1 and down to -2^63."""
    edges = [-(2**63), -1, 0, 2**63 - 1, 2**63, 2**64 - 1]
    tagged = [(KeyRange((low,), (high,)), (number,)) for number, (low, high) in enumerate(pairwise(edges))]
    ranges = changes.ranges(spark, tagged, "number int", 1)
    rows = spark.createDataFrame([(Decimal(edge),) for edge in edges], "k decimal(20,0)")
    found = {int(row["k"]): row["number"] for row in rows.join(ranges, on=changes.within(["k"])).collect()}
    assert found == {edge: number for number, edge in enumerate(edges[:-1])}
