"""The partition of each row of a Hudi copy: a text for every value, which is the name of a folder as it stands."""

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.partitioning import parse_all
from lakeingest.lake.hudi.partitions import Partitions, by_partition, parse_named, partition_texts

FOLDER = re.compile(r"(?:[A-Za-z0-9~-])[A-Za-z0-9_.~-]{0,159}")
MOMENT = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
CASES: dict[str, tuple[pa.DataType, dict[Any, str]]] = {
    "c": (pa.string(), {"DE": "DE", "": "EMPTY", "NULL": "~4EULL", "EMPTY": "~45MPTY", "_x": "~5Fx", "x/y": "x~2Fy"}),
    "c of odd texts": (pa.string(), {"é😀": "~C3~A9~F0~9F~98~80", ".": "~2E", "..": "~2E~2E", "a=b": "a~3Db"}),
    "c of integers": (pa.int64(), {-5: "-5", 2**62: str(2**62)}),
    "c of decimals": (pa.decimal128(9, 2), {Decimal("-10.65"): "-10~2E65", Decimal("0.00"): "0~2E00"}),
    "c of bytes": (pa.binary(), {b"": "EMPTY", b"\0\xff": "00ff"}),
    "c of bits": (pa.bool_(), {True: "true", False: "false"}),
    "c of days": (pa.date32(), {dt.date(1, 1, 1): "0001-01-01", dt.date(9999, 12, 31): "9999-12-31"}),
    "c of times": (pa.timestamp("us"), {MOMENT: "1969-12-31~2023~3A59~3A59~2E999999"}),
    "year(c)": (pa.date32(), {dt.date(1969, 12, 31): "1969", dt.date(1, 1, 1): "0001"}),
    "month(c)": (pa.timestamp("us"), {MOMENT: "1969-12"}),
    "day(c)": (pa.timestamp("us", "UTC"), {MOMENT: "1969-12-31", dt.datetime(2026, 2, 3, 4): "2026-02-03"}),
    "hour(c)": (pa.timestamp("us"), {MOMENT: "1969-12-31-23"}),
    "truncate(2, c)": (pa.string(), {"iceberg": "ic", "😀😀😀": "~F0~9F~98~80~F0~9F~98~80", "": "EMPTY"}),
    "truncate(4, c)": (pa.int32(), {-5: "-8", 7: "4", 8: "8"}),
    "truncate(50, c)": (pa.decimal128(9, 2), {Decimal("-10.65"): "-11~2E00", Decimal("10.65"): "10~2E50"}),
    "truncate(1, c)": (pa.binary(), {b"abc": "61", b"": "EMPTY"}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_value_has_a_text_and_so_has_null(case: str) -> None:
    """It is the same wherever the row stands, and in a slice."""
    kind, texts = CASES[case]
    rows = pa.table({"c": pa.array([None, *texts, None, *texts], kind)})
    fields = parse_all([case.partition(" of ")[0]])
    expected = ["NULL", *texts.values()] * 2
    assert partition_texts(rows, fields).to_pylist() == expected
    assert partition_texts(rows.slice(2), fields).to_pylist() == expected[2:]
    assert partition_texts(rows.slice(0, 0), fields).to_pylist() == []
    assert all(FOLDER.fullmatch(text) for text in expected)


def test_buckets_are_numbers_and_all_of_them_are_used() -> None:
    """Also by keys that follow each other; they do not go with the buckets of Hudi's index."""
    rows = pa.table({"c": range(10_000)})
    parts = by_partition(rows, parse_all(["bucket(16, c)"]))
    assert sorted(parts, key=int) == list(map(str, range(16)))
    assert all(500 < part.num_rows < 750 for part in parts.values())


@given(values=st.lists(st.text(max_size=400), max_size=9, unique=True))
def test_different_texts_have_folders_of_their_own(values: list[str]) -> None:
    """The names are those of folders, however long and odd the texts are."""
    rows = pa.table({"c": pa.array(values, pa.string())})
    texts = partition_texts(rows, parse_all(["c"])).to_pylist()
    assert len(set(texts)) == len(values)
    assert all(FOLDER.fullmatch(text) for text in texts)


@given(values=st.lists(st.tuples(st.sampled_from([None, "", "a", "a.b"]), st.sampled_from([None, "", "b", ".b"]))))
def test_the_rows_of_all_partitions_are_all_rows(values: list[tuple[str | None, str | None]]) -> None:
    """Rows with the same values are together, in their order, and rows with other values are elsewhere."""
    rows = pa.table(
        {
            "a": pa.array([a for a, _ in values], pa.string()),
            "b": pa.array([b for _, b in values], pa.string()),
            "n": pa.array(range(len(values)), pa.int64()),
        }
    )
    parts = by_partition(rows, parse_all(["a", "b"]))
    found = [
        [(row["a"], row["b"]) for row in part.to_pylist()] + [part["n"].to_pylist() == sorted(part["n"].to_pylist())]
        for part in parts.values()
    ]
    assert all(len(set(of_part)) == 2 and of_part[-1] is True for of_part in found)
    assert len(parts) == len(set(values))
    assert sorted(n for part in parts.values() for n in part["n"].to_pylist()) == list(range(len(values)))
    assert list(by_partition(rows, ())) == [""]


def test_a_property_of_a_commit_names_the_partitions_and_the_earlier_names() -> None:
    """What is no such property is refused."""
    partitions = Partitions(parse_all(["day(at)", "bucket(2, `a,b`)"]), (("d", "made"), ()))
    assert Partitions.of(partitions.named) == partitions
    assert parse_named('[["day(at)", "d", "made"], ["bucket(2, `a,b`)"]]') == partitions.named
    for text in ("", "5", '["day(at)"]', '[["void(at)"]]', "[[]]", '{"a": 1}'):
        with pytest.raises(ValueError):  # noqa: PT011 - by whatever part of it
            parse_named(text)
