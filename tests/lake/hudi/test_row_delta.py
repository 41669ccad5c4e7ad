"""Publishes of Hudi tables without Spark: the table, its files and its commits are those that Hudi makes."""

import datetime as dt
import pkgutil
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from lakeingest.config import Config, History
from lakeingest.core.tables.schema import Column, Kind, TableId
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.lake.formats import open_target
from lakeingest.lake.hudi import all_rows, row_delta
from lakeingest.lake.hudi.buckets import buckets_of
from lakeingest.lake.hudi.options import most_commits
from lakeingest.lake.hudi.record_key import RECORD_KEY, record_key
from lakeingest.lake.hudi.record_texts import record_key_for, record_texts
from lakeingest.lake.hudi.timeline import metadata_of, writes
from lakeingest.lake.target import Staged
from lakeingest.mysql.source_types import source_type
from tests.lake.conftest import numbers
from tests.lake.hudi.test_read_back import COLUMNS, FULL, KEYS
from tests.lake.hudi.test_record_key import KEYED, ODD, keys_in_spark
from tests.lake.steps import PLAIN, Crash, Lake, Row

pytestmark = [pytest.mark.spark, pytest.mark.formats("hudi")]

ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "bigint": pa.int64(),
    "decimal(38,18)": pa.decimal128(38, 18),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
}
SECRET = {"hoodie.table.name", "hoodie.table.checksum"}  # each table has its own


With = Callable[..., Lake]


@pytest.fixture
def having(lake_config: Config) -> With:
    """A function that opens a table with other settings of its target, here or in another process."""

    def opened(lake: Lake, **settings: Any) -> Lake:
        config = lake_config.model_copy(update={"target": lake_config.target.model_copy(update=settings)})
        return replace(lake, settings=config.target, open=lambda: open_target(config, lambda: lake.spark))

    return opened


def alone(lake: Lake, staged: Staged) -> Staged:
    """Publish in a process that has no Spark."""
    audited = replace(staged, progress=staged.progress.audited())
    return lake.without_spark().publish(audited, lake.schema, {"lakeingest.gate": "{}"})


def folder(lake: Lake) -> Local:
    """Where readers find the table."""
    return Local(lake.settings.folder(lake.table).path)


def commits(lake: Lake) -> list[dict[str, Any]]:
    """The metadata of the completed commits, the oldest first."""
    return [metadata(file) for _, _, file in sorted(writes(folder(lake)))]


def metadata(commit: File) -> dict[str, Any]:
    """What the file of a commit says."""
    with metadata_of(commit) as found:
        return found


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(keyed=KEYED)
@pytest.mark.long("many examples")
def test_a_record_key_is_that_of_spark(spark: SparkSession, keyed: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    """For every type that a key can have here, alone and with others."""
    kinds, keys = keyed
    rows, texts = keys_in_spark(spark, kinds, keys)
    names = rows.columns
    columns = [pa.array(values, ARROW[kind]) for values, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
    table = pa.table(columns, names)
    assert record_texts(table, names, (RECORD_KEY,)).keys.to_pylist() == texts
    assert record_key_for(table.schema, names) == record_key(rows.schema, names)


def every_type(lake_of: Callable[..., Lake]) -> Lake:
    """A table with a column of each type that Hudi has here."""
    moment = Column("moment", Kind.DATETIME, source_type("datetime(6)"), fraction=6)
    whole = Column("whole", Kind.INT64, source_type("bigint"))
    return lake_of((*COLUMNS, moment, whole), ("k", "b"))


def filled(keys: Sequence[tuple[str, bytes]]) -> list[Row]:
    """Rows of that table; every second one is null but for its key."""
    full = (*FULL, dt.datetime(1, 1, 1, 0, 0, 0, 1), -(2**63))
    return [(*key, *(full if n % 2 else (None,) * len(full))) for n, key in enumerate(keys)]


@pytest.mark.long("publishes of Hudi")
def test_a_table_is_made_as_hudi_makes_it(lake_of: Callable[..., Lake], having: With) -> None:
    """Its properties, the columns of its commit, those of its files, and in which files the rows are."""
    for lake in (every_type(lake_of), lake_of()):
        other = replace(lake.schema, table=TableId("contract", f"t{next(numbers)}"))
        theirs = replace(having(lake, merge="statement"), schema=other)
        rows = filled(KEYS) if len(lake.schema.key) > 1 else [(n, str(n)) for n in range(-50, 50)]
        staged = lake.copied(*rows)
        alone(lake, lake.open().mark(staged, lake.leveled(staged, 20)))
        theirs.published(*rows)
        ours, made = properties(lake), properties(theirs)
        assert ours.keys() == made.keys()
        assert {key for key in ours if ours[key] != made[key]} == SECRET
        schemas = [commits(one)[0]["extraMetadata"]["schema"].replace(one.table.name, "") for one in (lake, theirs)]
        assert schemas[0] == schemas[1]
        assert columns_of(lake) == columns_of(theirs)
        assert keys_by_bucket(lake) == keys_by_bucket(theirs)
        assert lake.seen() == theirs.seen()


def properties(lake: Lake) -> dict[str, str]:
    """Those that Hudi has stored for the table."""
    lines = (folder(lake) / ".hoodie" / "hoodie.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def columns_of(lake: Lake) -> str:
    """The columns of a file as Parquet has them."""
    text = str(pq.read_metadata(next(folder(lake).glob("*.parquet"))).schema)
    return text.partition("\n")[2].replace("spark_schema", "schema")


def keys_by_bucket(lake: Lake) -> dict[str, list[str]]:
    """The record keys of each file group's newest file, by the number that its name begins with."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder(lake).glob("*.parquet"), key=lambda one: one.stem.rpartition("_")[2]):
        found[file.name[:8]] = sorted(pq.read_table(file, columns=["_hoodie_record_key"])[0].to_pylist())
    return {bucket: keys for bucket, keys in found.items() if keys}


def test_files_say_their_calendar_and_their_extreme_record_keys(lake_of: Callable[..., Lake]) -> None:
    """Also the second files of groups. Without a version, Spark refuses dates before 1582."""
    lake = lake_of()
    staged = lake.copied(*((number, "copied") for number in range(10, 100)))
    published = alone(lake, lake.open().mark(staged, lake.leveled(staged, 20)))
    alone(lake, lake.merge(published, (10, "changed", False), (99, "changed", False), pos=30))
    files = list(folder(lake).glob("*.parquet"))
    assert len({file.name[:36] for file in files}) < len(files)
    for file in files:
        keys = pq.read_table(file, columns=["_hoodie_record_key"])[0].to_pylist()
        assert pq.read_metadata(file).metadata == {
            b"org.apache.spark.version": b"3.5.0",
            b"hoodie_min_record_key": min(keys).encode(),
            b"hoodie_max_record_key": max(keys).encode(),
        }


def test_buckets_are_those_of_java() -> None:
    """`"a:1,b:2"` is in the bucket of Java's `List.of("1", "2").hashCode()`; overflows and odd texts, too."""

    def java(text: str) -> int:
        code = 0
        for letter in text:
            code = (31 * code + ord(letter)) & 0xFFFFFFFF
        return code

    texts = ["", "a", "5", "-5", "1000213", "x" * 3072, "zzzzzzzzzzzzzzzz", "%F0%9F%A6%86"]
    assert buckets_of([pa.array(texts)], 7).tolist() == [((31 + java(text)) & 0x7FFFFFFF) % 7 for text in texts]
    whole = pa.chunked_array([["left out"], texts]).combine_chunks().slice(1)
    assert buckets_of([whole], 7).tolist() == buckets_of([pa.array(texts)], 7).tolist()
    pair = buckets_of([pa.array(["1"]), pa.array(["2"])], 1 << 30).tolist()
    assert pair == [(((31 + java("1")) * 31 + java("2")) & 0x7FFFFFFF) % (1 << 30)]
    assert buckets_of([pa.array([], pa.string())], 7).tolist() == []


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("keys", ["integers", "texts", "two integers"])
@pytest.mark.long("Hudi's own publishes beside ours")
def test_both_ways_to_publish_leave_the_same_rows(
    lake_of: Callable[..., Lake], having: With, keys: str, seed: int
) -> None:
    """Whichever way comes after which: random changes, published by files or by a statement, three merges at most."""
    chance = random.Random(seed)
    lake, known = changing(lake_of, keys)
    rows = {key: (*key, "copied") for key in known[::2]}
    lake.publish(lake.open().mark(staged := lake.copied(*rows.values()), lake.leveled(staged, 20)))
    for number in range(6):
        staged = lake.loaded()
        for merge in range(chance.randint(1, 3)):
            chosen = chance.sample(known, chance.randint(1, 9))
            changes = [(*key, f"{number}.{merge}", chance.random() < 0.4) for key in chosen]
            rows = {**rows, **{key: change[:-1] for key, change in zip(chosen, changes, strict=True)}}
            rows = {key: row for key, row in rows.items() if not (key in chosen and changes[chosen.index(key)][-1])}
            staged = lake.merge(staged, *changes, pos=100 * number + merge + 30)
        if chance.random() < 0.5:
            alone(lake, staged)
        else:
            having(lake, merge="statement").publish(staged)
        assert lake.seen() == sorted(rows.values())
        assert lake.rows(lake.loaded()) == sorted(rows.values())
        assert lake.open().count(lake.table, lake.loaded().version) == len(rows)
    assert len(commits(lake)) == 7


def changing(lake_of: Callable[..., Lake], keys: str) -> tuple[Lake, list[tuple[Any, ...]]]:
    """A table with such keys, and some of them."""
    text = Column("v", Kind.STRING, source_type("text"))
    if keys == "texts":
        columns = (Column("k", Kind.STRING, source_type("varchar(3072)"), nullable=False), text)
        return lake_of(columns, ("k",)), [(one,) for one in ODD]
    if keys == "two integers":
        parts = (
            Column("a", Kind.INT32, source_type("int"), nullable=False),
            Column("b", Kind.UINT64, source_type("bigint unsigned"), nullable=False),
        )
        return lake_of((*parts, text), ("a", "b")), [(a, b) for a in range(-3, 3) for b in range(4)]
    return lake_of(PLAIN, ("id",)), [(n,) for n in range(-12, 12)]


STEPS = {
    "before the first file": ("lakeingest.lake.hudi.commit.Commit.mark", 0),
    "between two files": ("lakeingest.lake.hudi.commit.Commit.mark", 1),
    "before the commit": ("lakeingest.lake.hudi.commit.Commit.complete", 0),
    "before the markers are gone": ("lakeingest.files.file.delete_all", 1),  # the first call makes room for ours
    "before staging is swept": ("lakeingest.lake.staged.staging.StagingFolder.sweep", 0),
}


@pytest.mark.long("publishes of Hudi")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", ["auto", "statement"])
def test_a_publish_that_dies_is_repeated(
    lake: Lake, having: With, monkeypatch: pytest.MonkeyPatch, step: str, way: str
) -> None:
    """Readers see the rows of before or all new ones; what was left is rolled back, and no file of it stays."""
    before = [(n, "copied") for n in range(20)]
    lake.published(*before)
    staged = lake.merge(lake.loaded(), *((n, "merged", n % 3 == 0) for n in range(5, 25)), pos=30)
    after = sorted([row for row in before if row[0] < 5] + [(n, "merged") for n in range(5, 25) if n % 3])
    die(monkeypatch, *STEPS[step])
    with pytest.raises(Crash):
        alone(lake, staged)
    monkeypatch.undo()
    assert lake.seen() == (after if step.endswith(("gone", "swept")) else before)
    other = having(lake, merge=way)
    found = other.loaded()
    if not found.visible:
        other.publish(found)
    assert lake.seen() == after
    other.publish(other.merge(other.loaded(), (100, "more", False), pos=40))
    assert lake.seen() == [*after, (100, "more")]
    assert_no_leftovers(lake)
    assert way == "statement" or not list((folder(lake) / ".hoodie" / ".temp").glob("*"))


def assert_no_leftovers(lake: Lake) -> None:
    """Each file of the table was written by one of its commits."""
    written = {stat["path"] for one in commits(lake) for stat in one["partitionToWriteStats"][""]}
    assert {file.name for file in folder(lake).glob("*.parquet")} == written


def die(monkeypatch: pytest.MonkeyPatch, step: str, after: int) -> None:
    """The process ends at the call of a function, after so many others."""
    calls = iter(range(100))
    *path, name = step.split(".")
    owner = pkgutil.resolve_name(".".join(path))
    real = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        if next(calls) >= after:
            raise Crash
        return real(*given, **named)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.long("publishes of Hudi")
def test_only_a_table_that_is_known_is_written(lake: Lake, having: With, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Hudi publishes: what someone has begun, many bytes, another number of buckets, an index."""
    lake.published((1, "a"), (2, "b"))
    begun = folder(lake) / ".hoodie" / "timeline" / "20260101000000000.rollback.requested"
    begun.touch()
    with pytest.raises(Sparked):
        publish_with(lake, lake.merge(lake.loaded(), (30, "new", False), pos=30))
    begun.unlink()
    lake.publish(lake.loaded())
    with monkeypatch.context() as patch:
        patch.setattr(row_delta, "MOST_BYTES", 1)
        assert_hudi_publishes(lake, 40)
    with monkeypatch.context() as patch:
        patch.setattr(row_delta, "buckets_of", lambda parts, _: np.full(len(parts[0]), 77))
        assert_hudi_publishes(lake, 50)
    listed = folder(lake) / ".hoodie" / "hoodie.properties"
    with listed.open("a") as file:
        file.write("hoodie.table.metadata.partitions=files\n")
    assert_hudi_publishes(lake, 60)
    with monkeypatch.context() as patch:
        patch.setattr(all_rows, "MOST_BYTES", 1)
        other = replace(lake, schema=replace(lake.schema, table=TableId("contract", f"t{next(numbers)}")))
        staged = other.copied((1, "a"))
        with pytest.raises(Sparked):
            publish_with(other, other.open().mark(staged, other.leveled(staged, 20)))


class Sparked(Exception):
    """A session was asked for."""


def publish_with(lake: Lake, staged: Staged) -> None:
    """Publish, up to where Spark is asked for."""

    def ask() -> NoReturn:
        raise Sparked

    lake.opened_with(ask).publish(replace(staged, progress=staged.progress.audited()), lake.schema, {})


def assert_hudi_publishes(lake: Lake, pos: int) -> None:
    """The next publish is one of Hudi, and as exact."""
    staged = lake.merge(lake.loaded(), (pos, "new", False), (1, None, True), pos=pos)
    expected = sorted([*(row for row in lake.seen() if row[0] != 1), (pos, "new")])
    with pytest.raises(Sparked):
        publish_with(lake, staged)
    lake.publish(staged)
    assert lake.seen() == expected


@pytest.mark.long("two dozen publishes")
def test_hudi_archives_from_time_to_time(lake: Lake, having: With) -> None:
    """When more commits are there than twice those of the history; old files of the table are still its rows."""
    short = having(lake, history=History.model_validate({"least": 2, "readers": "0s"}))
    rows = [(n, "copied") for n in range(40)]
    short.publish(short.open().mark(staged := short.copied(*rows), short.leveled(staged, 20)))
    for number in range(24):
        rows[number % 3] = number % 3, f"v{number}"
        short.publish(short.merge(short.loaded(), (*rows[number % 3], False), pos=30 + number))
        assert short.open().count(short.table, short.loaded().version) == 40
        assert len(commits(lake)) <= most_commits(2)
    assert short.seen() == rows
    assert any((folder(lake) / ".hoodie" / "timeline" / "history").glob("*.parquet"))
    assert len(list(folder(lake).glob("*.parquet"))) < 24


def test_a_commit_is_later_than_all_before_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine whose clock is behind that of the last one."""
    lake.published((1, "a"))
    monkeypatch.setattr("lakeingest.lake.hudi.commit.datetime", Behind)
    alone(lake, lake.merge(lake.loaded(), (1, "A", False), (2, "b", False), pos=30))
    assert lake.seen() == [(1, "A"), (2, "b")]
    moments = [moment for completed, begun, _ in sorted(writes(folder(lake))) for moment in (begun, completed)]
    assert moments == sorted(moments)


class Behind(dt.datetime):
    """A clock of last year."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> "Behind":
        """The time there."""
        return cls(2025, 1, 1, tzinfo=tz)
