"""Only columns whose values repeat get a dictionary."""

from decimal import Decimal

import pyarrow as pa
import pytest

from lakeingest.files import dictionaries
from lakeingest.files.dictionaries import Dictionaries, repetitive_columns

ROWS = 50_000
KINDS = {
    "numbers": pa.array(range(ROWS), pa.int64()),
    "texts": pa.array([f"text {number}" for number in range(ROWS)]),
    "bytes": pa.array([number.to_bytes(4, "big") for number in range(ROWS)]),
    "decimals": pa.array([Decimal(number) for number in range(ROWS)], pa.decimal128(38, 0)),
    "doubles": pa.array(range(ROWS), pa.float64()),
    "floats": pa.array(range(ROWS), pa.float32()),
    "moments": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
    "dates": pa.array(range(ROWS), pa.date32()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_distinct_values_gets_none(kind: str) -> None:
    """Also if many of its values are NULL; values that repeat get one."""
    distinct = KINDS[kind]
    is_third = pa.array([number % 3 == 0 for number in range(ROWS)])
    thirds = pa.array([value if third else None for value, third in zip(distinct, is_third.to_pylist(), strict=True)])
    few = distinct.take(pa.array([number % 100 for number in range(ROWS)]))
    table = pa.table({"distinct": distinct, "thirds": thirds.cast(distinct.type), "few": few})
    assert repetitive_columns(table) == ["few"]


def test_columns_of_nothing_and_of_lists_get_none() -> None:
    """Parquet has other names for the elements of lists."""
    table = pa.table({"nulls": pa.nulls(9), "typed": pa.nulls(9, pa.string()), "lists": [[1.0]] * 9, "yes": [True] * 9})
    assert repetitive_columns(table) == ["yes"]
    assert repetitive_columns(table.slice(0, 0)) == []
    assert repetitive_columns(table.slice(0, 1)) == []


def test_rows_of_megabytes_have_a_small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Because a sample is a copy."""
    sizes = list[int]()

    def look(values: pa.ChunkedArray) -> bool:
        sizes.append(values.nbytes)
        return False

    monkeypatch.setattr(dictionaries, "_is_repetitive", look)
    repetitive_columns(pa.table({"v": [number.to_bytes(1, "big") * (1 << 20) for number in range(60)]}))
    assert sizes[0] <= 5 << 20


def test_columns_that_arrow_cannot_count_get_one() -> None:
    """As they do without this choice."""
    table = pa.table({"codes": pa.array(["a", "b"]).dictionary_encode()})
    assert repetitive_columns(table) == ["codes"]


def test_the_first_file_with_enough_values_decides_for_all() -> None:
    """Neither a small file does, nor a column without values. A later file may have other columns, and be small."""
    shared = Dictionaries()
    repeated, distinct = pa.array(["a"] * 2_000), pa.array(range(2_000))
    nothing = pa.nulls(2_000, pa.string())
    small = pa.table({"a": distinct.slice(0, 10), "b": repeated.slice(0, 10)})
    assert shared.columns_of(small) == ["b"]
    assert shared.columns_of(pa.table({"a": repeated, "b": distinct, "late": nothing})) == ["a"]
    assert shared.columns_of(pa.table({"a": distinct, "late": repeated, "new": repeated})) == ["a", "late", "new"]
    assert shared.columns_of(small) == ["a"]


def test_what_is_decided_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many small files, only the first one is sampled."""
    shared, table = Dictionaries(), pa.table({"a": ["a"] * 2_000, "b": range(2_000)})
    assert shared.columns_of(table) == ["a"]
    monkeypatch.setattr(dictionaries, "_is_repetitive", None)
    assert [shared.columns_of(table) for _ in range(3)] == [["a"]] * 3
