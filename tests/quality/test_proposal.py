"""Proposals: suites that are taken from rows, and pass on them."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from lakeingest.config.place import Place
from lakeingest.config.quality import Quality
from lakeingest.config.yaml_text import read_yaml
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import UsageError
from lakeingest.mysql.source_types import source_type
from lakeingest.quality.proposal import Proposal, propose, suite_text
from lakeingest.quality.suites import user_suites, write_suite
from lakeingest.rows import table_schema

NOT_NULL, IN_SET = "expect_column_values_to_not_be_null", "expect_column_values_to_be_in_set"
BETWEEN, LENGTHS = "expect_column_values_to_be_between", "expect_column_value_lengths_to_be_between"
ID = Column("id", Kind.INT64, source_type("bigint"), nullable=False)

Document = dict[str, Any]


def proposals(column: Column, values: Sequence[Any], *, is_whole: bool = True) -> tuple[Proposal, ...]:
    """What is proposed for a table of a key and this column."""
    schema = TableSchema(TableId("shop", "t"), (ID, column), ("id",))
    rows = pa.Table.from_pylist(
        [{"id": number, column.name: value} for number, value in enumerate(values)], table_schema(schema)
    )
    return propose(schema, rows, is_whole=is_whole)


def proposed(kind: Kind, text: str, values: Sequence[Any], **others: Any) -> list[tuple[str, Document, bool]]:
    """For each expectation about the column: its kind, what it expects, and whether it is a warning."""
    is_whole = others.pop("is_whole", True)
    _, _, found = proposals(Column("v", kind, source_type(text), **others), values, is_whole=is_whole)
    assert read_yaml(suite_text([], [found]))["expectations"] == ([*found.expectations] or None)
    return [
        (each["type"], {key: value for key, value in each["kwargs"].items() if key != "column"}, "severity" in each)
        for each in found.expectations
    ]


MANY = [*range(1, 51)] * 20
NEW = [*range(1, 1001)]
BITS: list[tuple[Kind, str, list[Any], Document, list[tuple[str, Document, bool]]]] = [
    (Kind.INT32, "int", MANY, {}, [(NOT_NULL, {}, False), (BETWEEN, {"min_value": 1, "max_value": 50}, False)]),
    (
        Kind.INT32,
        "int",
        MANY,
        {"is_whole": False},
        [(NOT_NULL, {}, False), (BETWEEN, {"min_value": 1, "max_value": 50}, True)],
    ),
    (
        Kind.INT32,
        "int",
        [*MANY[:30], None],
        {},
        [(BETWEEN, {"min_value": 1, "max_value": 30}, True)],
    ),
    (
        Kind.INT64,
        "bigint",
        [2**63 - 1, -(2**63), *MANY],
        {"nullable": False},
        [(BETWEEN, {"min_value": -(2**63), "max_value": 2**63 - 1}, False)],
    ),
    (Kind.INT32, "int", NEW, {"nullable": False}, [(BETWEEN, {"min_value": 1, "max_value": 1000}, True)]),
    (Kind.STRING, "varchar(9)", [], {}, []),
    (Kind.STRING, "varchar(9)", [None] * 5, {}, []),
    (
        Kind.STRING,
        "varchar(9)",
        ["new", "paid"] * 500,
        {},
        [(NOT_NULL, {}, False), (IN_SET, {"value_set": ["new", "paid"]}, False)],
    ),
    (
        Kind.STRING,
        "varchar(9)",
        ["new", "paid"] * 500 + ["odd"],
        {"nullable": False},
        [(IN_SET, {"value_set": ["new", "odd", "paid"]}, True)],
    ),
    (Kind.STRING, "varchar(9)", ["a", "b"] * 9, {"nullable": False}, [(IN_SET, {"value_set": ["a", "b"]}, True)]),
    (Kind.STRING, "text", ["", "ä😀", "abc"], {"nullable": False}, [(LENGTHS, {"min_value": 0, "max_value": 3}, True)]),
    (
        Kind.STRING,
        "text",
        ["x" * 101] * 2000,
        {"nullable": False},
        [(LENGTHS, {"min_value": 101, "max_value": 101}, False)],
    ),
    (Kind.STRING, "enum('a','b')", ["a"] * 2000, {"nullable": False}, []),
    (Kind.STRING, "set('a','b')", ["a,b"] * 2000, {"nullable": False}, []),
    (Kind.STRING, "text", ["$PARAMETER.x"] * 2000, {"nullable": False}, []),
    (Kind.INT32, "int", [0, 1] * 600, {"nullable": False}, [(IN_SET, {"value_set": [0, 1]}, False)]),
    (Kind.BINARY, "blob", [b"", b"\0\xff"], {"nullable": False}, [(LENGTHS, {"min_value": 0, "max_value": 2}, True)]),
    (
        Kind.DECIMAL,
        "decimal(5,2)",
        [Decimal("-0.01"), Decimal("99.50")],
        {"nullable": False, "precision": 5, "scale": 2},
        [(BETWEEN, {"min_value": -1, "max_value": 100}, True)],
    ),
    (
        Kind.DOUBLE,
        "double",
        [-1e300, 0.1],
        {"nullable": False},
        [(BETWEEN, {"min_value": -1e300, "max_value": 0.1}, True)],
    ),
    (
        Kind.UINT64,
        "bigint unsigned",
        [2**64 - 1],
        {"nullable": False},
        [(BETWEEN, {"min_value": 2**64 - 1, "max_value": 2**64 - 1}, True)],
    ),
    (Kind.DATE, "date", [date(2024, 3, 1)], {"nullable": False}, [(BETWEEN, {"min_value": "2024-02-29"}, True)]),
    (Kind.DATE, "date", [date(1, 1, 1), date(2026, 1, 1)], {"nullable": False}, []),
    (
        Kind.DATETIME,
        "datetime(6)",
        [datetime(2026, 1, 1, 0, 0, 0, 5)],
        {"nullable": False},
        [(BETWEEN, {"min_value": "2025-12-31"}, True)],
    ),
    (
        Kind.TIMESTAMP,
        "timestamp",
        [datetime(2026, 1, 1, 5, tzinfo=UTC)],
        {"nullable": False},
        [(BETWEEN, {"min_value": "2025-12-31"}, True)],
    ),
    (Kind.TIME, "time", ["-838:59:59"], {"nullable": False}, []),
    (Kind.BOOLEAN, "bit(1)", [True, None], {}, []),
    (Kind.VECTOR, "vector(2)", [[0.5, 1.0]], {}, [(NOT_NULL, {}, True)]),
]


@pytest.mark.parametrize(("kind", "text", "values", "others", "wanted"), BITS)
def test_expectations_follow_from_what_was_seen(
    kind: Kind, text: str, values: list[Any], others: Document, wanted: list[tuple[str, Document, bool]]
) -> None:
    """What few values speak for is a warning, and so is a range that a sample speaks for."""
    assert proposed(kind, text, values, **others) == wanted


def test_the_key_is_unique_and_has_no_range() -> None:
    """A key grows from row to row, so that each later row would exceed its range."""
    key, of_id, _ = proposals(Column("v", Kind.INT32, source_type("int")), NEW)
    assert [each["type"] for each in key.expectations] == ["expect_column_values_to_be_unique"]
    assert of_id.expectations == ()
    assert of_id.evidence == "id (bigint): 1,000 values, 0 NULL, 1,000 distinct, values from 0 to 999"
    two = TableSchema(TableId("shop", "t"), (ID, Column("v", Kind.INT32, source_type("int"))), ("v", "id"))
    [first, *_] = propose(two, table_schema(two).empty_table(), is_whole=True)
    assert [each["kwargs"] for each in first.expectations] == [{"column_list": ["v", "id"]}]
    text = TableSchema(TableId("shop", "t"), (Column("k", Kind.STRING, source_type("text")),), ("k",))
    _, of_key = propose(text, pa.Table.from_pylist([{"k": "a"}], table_schema(text)), is_whole=True)
    assert of_key.expectations == ()


ODD = (
    "two words",
    "a.b",
    "`q``",
    "😀",
    'say "it\'s"',
    "\n- forged: {x",
    "\x1b[2J",
    "\u202eback",
    "#",
    "no",
    "{}",
    "a: b",
)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("value", [*ODD, "1", "null", "2026-01-01", "\0", "\ud7ff", "x" * 90])
def test_names_and_values_are_data(name: str, value: str) -> None:
    """The file is read back as it was meant, and none of its lines moves a cursor or leaves its comment."""
    found = proposals(Column(name, Kind.STRING, source_type(f"enum2 {value}")), [value] * 40)
    text = suite_text([f"head {name}"], found)
    documents = [document for proposal in found for document in proposal.expectations]
    assert read_yaml(text) == {"expectations": documents}
    assert any(document["kwargs"].get("value_set") == [value] for document in documents)
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == 2 + len(found) + len(documents)


TABLES = (
    TableId("shop", "orders"),
    TableId("shop", "a*b"),
    TableId("shop", "what?[x]"),
    TableId("a.b", "c.d"),
    TableId("re:x", "😀 y"),
    TableId("shop", "up/../down"),
    TableId("shop", "line\nfeed"),
)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_a_suite_is_written_once_for_its_table_alone(table: TableId, tmp_path: Path) -> None:
    """Whatever its name has; the file is found again, is private, and is never overwritten."""
    quality = Quality(suites=Place(str(tmp_path)))
    text = yaml.safe_dump({"expectations": [{"type": NOT_NULL, "kwargs": {"column": "id"}}]})
    path = write_suite(quality, table, TABLES, text)
    assert [*tmp_path.iterdir()] == [path]
    assert path.stat().st_mode & 0o777 == 0o600
    assert {each: len(user_suites(quality, each)) for each in TABLES} == {each: each == table for each in TABLES}
    with pytest.raises(UsageError, match="exists already and is not overwritten"):
        write_suite(quality, table, TABLES, "other")
    assert path.read_text() == text


def test_a_suite_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Into a named folder that is missing, with a name that is too long, or with one that means other tables, too."""
    orders = TableId("shop", "orders")
    with pytest.raises(UsageError, match=r"quality\.suites: there is no folder .*/none; make it, or leave the key out"):
        write_suite(Quality(suites=Place("none")).below(tmp_path), orders, [orders], "")
    quality = Quality(suites=Place(str(tmp_path)))
    long = TableId("😀" * 40, "😀" * 40)
    with pytest.raises(UsageError, match="cannot be written"):
        write_suite(quality, long, [long], "")
    slash, dash = TableId("shop", "a/b"), TableId("shop", "a-b")
    with pytest.raises(UsageError, match=r"would be a suite of shop\.a-b, shop\.a/b"):
        write_suite(quality, slash, [slash, dash], "")
    assert [*tmp_path.iterdir()] == []


def test_the_default_folder_of_suites_is_made_for_this_user_alone(tmp_path: Path) -> None:
    """Only when a suite is written; a file in its place is named, and a folder that is there keeps its rights."""
    orders, dash, slash = TableId("shop", "orders"), TableId("shop", "a-b"), TableId("shop", "a/b")
    folder = tmp_path / "quality"
    with pytest.raises(UsageError, match="would be a suite of"):
        write_suite(Quality().below(tmp_path), slash, [slash, dash], "")
    assert not folder.exists()
    path = write_suite(Quality().below(tmp_path), orders, [orders], "")
    assert path == folder / "shop.orders.yml"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    write_suite(Quality().below(tmp_path), dash, [dash], "")
    assert folder.stat().st_mode & 0o777 == 0o755
    other = tmp_path / "other"
    other.mkdir()
    (other / "quality").write_text("")
    with pytest.raises(UsageError, match="/other/quality cannot be made: File exists"):
        write_suite(Quality().below(other), orders, [orders], "")
