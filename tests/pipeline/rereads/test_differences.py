"""Rows that were read again are compared with the copy value by value."""

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakeingest.pipeline.rereads.differences import differences
from lakeingest.rows import VECTOR

KEY = ("id", "part")
SCHEMA = pa.schema(
    [
        pa.field("part", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("double", pa.float64()),
        pa.field("float", pa.float32()),
        pa.field("text", pa.string()),
        pa.field("vector", VECTOR),
    ]
)
Row = tuple[Any, ...]
FULL = ("a", 1, 0.0, 1.5, "x", [1.0, 2.0])
EMPTY = ("a", 2, None, None, None, None)
ODD: Row = ("b", 1, math.nan, -0.0, "", [])


def table(rows: Sequence[Row]) -> pa.Table:
    """The rows in Arrow."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def compared(rows: Sequence[Row], copy: Sequence[Row]) -> tuple[list[int], list[Row]]:
    """The numbers of the rows that differ, and the keys that only the copy has."""
    found, gone = differences(table(rows), table(copy), KEY)
    keys = [(row[0], row[1]) for row in rows]
    return [keys.index((one["part"], one["id"])) for one in found.to_pylist()], [
        (one["part"], one["id"]) for one in gone.to_pylist()
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_same_rows_do_not_differ(order: Sequence[int]) -> None:
    """In any order; NULL is the same as NULL, and a NaN the same as itself."""
    rows = [FULL, EMPTY, ODD]
    assert compared(rows, [rows[number] for number in order]) == ([], [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("double", -0.0), ("double", None), ("float", 1.25), ("text", ""), ("text", None)),
        *(("vector", [1.0]), ("vector", [1.0, 2.5]), ("vector", []), ("vector", None)),
    ],
)
def test_a_row_with_another_value_differs(name: str, value: object) -> None:
    """In any column, also where one of the two is NULL; zeros of different signs are different values."""
    number = SCHEMA.get_field_index(name)
    other = (*FULL[:number], value, *FULL[number + 1 :])
    assert compared([FULL, EMPTY], [EMPTY, other]) == ([0], [])
    assert compared([EMPTY, other], [FULL, EMPTY]) == ([1], [])


def test_rows_that_one_side_lacks_are_found() -> None:
    """Those of the source differ, and of those of the copy the keys are named; either side may be empty."""
    assert compared([FULL, ODD], [EMPTY, ODD]) == ([0], [("a", 2)])
    assert compared([FULL, ODD], []) == ([0, 1], [])
    assert compared([], [FULL]) == ([], [("a", 1)])


def test_a_row_that_the_copy_has_twice_differs() -> None:
    """Though both are the same as the source's row: the merge then finds that a key is there twice."""
    assert compared([FULL, ODD], [FULL, ODD, FULL]) == ([0], [])


def test_a_table_of_keys_alone_is_compared() -> None:
    """Nothing but the key can differ."""
    rows, copy = (pa.table({"id": values}) for values in ([1, 2, 3], [3, 2, 4]))
    found, gone = differences(rows, copy, ["id"])
    assert (found["id"].to_pylist(), gone["id"].to_pylist()) == ([1], [4])
