"""The record keys of Hudi: a text of ours that can be read back to the key, and tables with each kind of key."""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

from lakeingest.core.tables.schema import Column, Kind, SourceType
from lakeingest.lake.hudi.record_key import RECORD_KEY, key_text, record_key
from lakeingest.mysql.source_types import source_type
from tests.lake.steps import Lake

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

ODD: tuple[str, ...] = ("", " ", "a", "A", "a ", "a\x00", "\x00", "é", "e\u0301", "🦆", "/", "//", "a/b", "a,b:c")
ODD += ("__null__", "__empty__", "%", "%2F", "+", "default", "null", "x" * 3072, "x" * 3071 + "X")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=9) | st.sampled_from(ODD)
BYTES = st.binary(max_size=5) | st.sampled_from([text.encode() for text in ODD])
DAYS = st.dates()
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
PRICES = st.decimals(allow_nan=False, allow_infinity=False, places=18, min_value=-(10**19), max_value=10**19)
LARGE = st.integers(-(2**63), 2**63 - 1)


def part_of(text: str, kind: str) -> object:
    """What a part of a record key stands for."""
    match kind:
        case "string":
            return unquote_plus(text, errors="strict")
        case "binary":
            return bytes.fromhex(text)
        case "bigint":
            return int(text)
        case "decimal(38,18)":
            return Decimal(unquote_plus(text))
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp":
            return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(text))
        case "timestamp_ntz":
            return dt.datetime.fromisoformat(unquote_plus(text).ljust(26, "0") if "." in text else unquote_plus(text))
        case _:
            return text == "true"


KINDS: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "binary": BYTES,
    "bigint": LARGE,
    "decimal(38,18)": PRICES,
    "date": DAYS,
    "timestamp": MOMENTS,
    "timestamp_ntz": MOMENTS,
    "boolean": st.booleans(),
}


def keys_of(kinds: list[str]) -> st.SearchStrategy[tuple[list[str], list[tuple[Any, ...]]]]:
    """The kinds of a key's columns, and some such keys."""
    return st.tuples(st.just(kinds), st.lists(st.tuples(*map(KINDS.__getitem__, kinds)), min_size=1, max_size=50))


KEYED = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4).flatmap(keys_of)


def keys_in_spark(spark: SparkSession, kinds: list[str], keys: list[tuple[Any, ...]]) -> tuple[DataFrame, list[str]]:
    """The keys as rows, and the record key that Spark makes of each."""
    typed = [(f"k{number}", kind) for number, kind in enumerate(kinds)]
    rows = spark.createDataFrame(keys, ", ".join(map(" ".join, typed)))
    return rows, [found for [found] in rows.select(F.expr(key_text(typed))).collect()]


@pytest.mark.long("publishes of Hudi")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(keyed=KEYED)
def test_a_record_key_can_be_read_back(spark: SparkSession, keyed: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    """So no two keys have the same; it is never empty, and has no sign that means something to Hudi."""
    kinds, keys = keyed
    rows, texts = keys_in_spark(spark, kinds, keys)
    names = rows.columns
    assert record_key(rows.schema, names) == ((RECORD_KEY,) if set(kinds) != {"bigint"} else tuple(names))
    for key, found in zip(keys, texts, strict=True):
        assert re.fullmatch(r"(/[-*.\w+%]*)+", found, re.ASCII)
        _, *parts = found.split("/")
        assert tuple(map(part_of, parts, kinds)) == key


def column(name: str, kind: Kind, kind_in_mysql: str, **facts: Any) -> Column:
    """A column that is never NULL."""
    return Column(name, kind, source_type(kind_in_mysql), nullable=False, **facts)


V = Column("v", Kind.STRING, SourceType("text", "text"))
ZONELESS = [dt.datetime(1, 1, 1), dt.datetime(2026, 3, 29, 2, 30), dt.datetime(2026, 3, 29, 2, 30, 0, 1)]


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ([column("k", Kind.STRING, "varchar(3072)")], [(text,) for text in ODD]),
        ([column("k", Kind.BINARY, "varbinary(3072)")], [(bytearray(text.encode()),) for text in ODD]),
        (
            [column("a", Kind.STRING, "varchar(9)"), column("b", Kind.STRING, "varchar(9)")],
            [("a,b:c", "d"), ("a", "b:c,b:d"), ("a", ""), ("", "a"), ("", ""), ("/", ""), ("", "/"), ("__null__", "")],
        ),
        (
            [column("a", Kind.INT32, "int"), column("b", Kind.STRING, "varchar(9)")],
            [(1, "1"), (1, "1 "), (11, ""), (1, "1:1")],
        ),
        ([column("k", Kind.DECIMAL, "decimal(20,0)", precision=20)], [(Decimal(n),) for n in (-1, 0, 1, 10**19)]),
        (
            [column("k", Kind.DECIMAL, "decimal(38,30)", precision=38, scale=30)],
            [(Decimal(n).scaleb(-30),) for n in (0, 1, 10, -1, 10**30)],
        ),
        ([column("k", Kind.DATE, "date")], [(dt.date(1, 1, 1),), (dt.date(9999, 12, 31),)]),
        ([column("k", Kind.DATETIME, "datetime(6)", fraction=6)], [(at,) for at in ZONELESS]),
        (
            [column("k", Kind.TIMESTAMP, "timestamp(6)", fraction=6)],
            [(dt.datetime(1970, 1, 1, 0, 0, 1),), *((at,) for at in ZONELESS[1:])],
        ),
        ([column("k", Kind.BOOLEAN, "bit(1)")], [(False,), (True,)]),
    ],
    ids=["text", "bytes", "texts", "mixed", "digits", "decimal", "date", "datetime", "timestamp", "bit"],
)
@pytest.mark.long("two publishes of Hudi each", only=("texts", "mixed", "digits", "decimal", "date", "datetime", "bit"))
@pytest.mark.long("two publishes of Hudi each", only=("text", "timestamp"))
def test_a_table_has_any_key(
    lake_of: Callable[..., Lake], columns: list[Column], keys: list[tuple[object, ...]]
) -> None:
    """Each key is a row of its own: when it is inserted, updated, deleted and inserted again."""
    lake = lake_of((*columns, V), tuple(one.name for one in columns))
    half = len(keys) // 2
    staged = lake.copied(*((*key, "copied") for key in keys[:half]))
    first = lake.merge(staged, *((*key, "merged", False) for key in keys[half:]))
    before = [*((*key, "copied") for key in keys[:half]), *((*key, "merged") for key in keys[half:])]
    assert lake.rows(first) == sorted(before)
    lake.publish(first)
    assert lake.seen() == sorted(before)
    changes = [(*key, None, True) if n % 3 == 0 else (*key, f"v{n}", False) for n, key in enumerate(keys)]
    second = lake.merge(lake.loaded(), *changes, pos=30)
    after = [row[:-1] for row in changes if not row[-1]]
    assert lake.rows(second) == sorted(after)
    lake.publish(second)
    assert lake.seen() == sorted(after)
    lake.publish(lake.merge(lake.loaded(), (*keys[0], "again", False), pos=40))
    assert lake.seen() == sorted([(*keys[0], "again"), *after])


def test_tables_with_keys_of_integers_have_no_other_column(lake_of: Callable[..., Lake]) -> None:
    """Other tables have it in their files, and we never read it."""
    plain, text = lake_of(), lake_of((column("id", Kind.STRING, "varchar(9)"), V))
    plain.published((1, "a"))
    text.published(("1", "a"))
    names = [
        pq.read_schema(next(lake.settings.folder(lake.table).path.glob("*.parquet"))).names for lake in (plain, text)
    ]
    assert [RECORD_KEY in one for one in names] == [False, True]
    assert lake_columns(text) == ["id", "v"]


def lake_columns(lake: Lake) -> list[str]:
    """The columns of a commit that we read."""
    return lake.open().read(lake.table, lake.loaded().version).columns
