"""`verify` of a part: a sample of the chunks, for some seconds, of some columns."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.api import Pipeline
from lakeingest.commands.extent import Extent
from lakeingest.commands.repair import repair_tables
from lakeingest.commands.verification import TableVerification
from lakeingest.commands.verify import compare_tables, verify
from lakeingest.core.tables.keys import quote
from lakeingest.demo.server import LocalServer
from lakeingest.errors import Retryable, UsageError
from lakeingest.pipeline.proving import comparison
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 1_000
KEYS = {
    "integer": ("id INT", "n"),
    "two": ("a INT, b BIGINT UNSIGNED", "n % 7, 18446744073709551615 - n"),
    "collated": ("id VARCHAR(20)", "CONCAT(IF(n % 2, 'k', 'Ä'), n)"),
}


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], any_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """A pipeline whose chunks of a comparison have 50 rows, or 10 if they are buckets."""
    monkeypatch.setattr(comparison, "CHUNK_ROWS", 50)
    monkeypatch.setattr(comparison, "FINEST_ROWS", 10)
    return pipe_on(any_server)


def odd_column(pipe: Pipe) -> str:
    """The name of a column that has to be quoted, as far as the format can have one."""
    return "w, `x" if pipe.config.target.format == "iceberg" else "w_x"


def copied(pipe: Pipe, kind: str = "integer") -> None:
    """A copied table of 1,000 rows: 20 chunks, or 100 buckets."""
    columns, key = KEYS[kind]
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    numbers = ", ".join(f"({number})" for number in range(1, ROWS + 1))
    odd = quote(odd_column(pipe))
    pipe.sql(
        "CREATE TABLE n (n INT PRIMARY KEY)",
        f"INSERT INTO n VALUES {numbers}",
        f"CREATE TABLE t ({columns}, n INT, v VARCHAR(20), {odd} INT, PRIMARY KEY ({names}))",
        f"INSERT INTO t SELECT {key}, n, 'v', n FROM n",
    )
    pipe.run("t")


def compared(pipe: Pipe, extent: Extent) -> TableVerification:
    """The comparison of the table."""
    [result] = compare_tables(pipe.config, [f"{pipe.database}.t"], pipe.spark, extent)
    return result


@pytest.mark.formats
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.long("compares and repairs a table several times, and waits 11 seconds each time without GTIDs")
def test_a_sample_finds_what_differs_in_its_chunks_and_repairs_only_that(pipe: Pipe, kind: str) -> None:
    """All rows differ; those of the drawn chunks are named and repaired, beside new rows that move chunks."""
    copied(pipe, kind)
    extent = Extent.of(0.25, 42)
    sound = compared(pipe, extent)
    assert (sound.share, sound.equal, sound.differs) == (0.25, False, False)
    assert sound.source == sound.target
    assert sound.result.startswith("source = target in 25 % of the chunks (")
    assert 0 < sound.source.rows < ROWS / 2
    pipe.unlogged("UPDATE t SET v = 'changed'")
    found = compared(pipe, extent)
    assert found.differs
    assert {difference.where for difference in found.differences} == {"differs"}
    assert len(found.differences) == found.source.rows == sound.source.rows
    assert compared(pipe, Extent.of(0.25, 42)).differences == found.differences
    [repaired] = repair_tables(pipe.config, [f"{pipe.database}.t"], pipe.spark, extent=extent)
    assert {*repaired.repaired} == {*found.differences}
    assert (repaired.differs, repaired.equal, repaired.share) == (False, False, 0.25)
    rest = compared(pipe, Extent())
    assert len(rest.differences) == ROWS - len(found.differences)
    assert not {*rest.differences} & {*found.differences}


@pytest.mark.long("compares tables of several chunks again and again")
@pytest.mark.any_format
@pytest.mark.parametrize("kind", ["integer", "collated"])
def test_no_chunk_is_begun_after_the_time(pipe: Pipe, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compared until then is the result, with its share; nothing at all is for later."""
    copied(pipe, kind)
    answers = iter([True, True, False, False])  # of the table, of its first chunks, of others
    monkeypatch.setattr(Extent, "timer", lambda _: answers.__next__)
    part = compared(pipe, Extent.of(max_seconds=60, seed=1))
    assert (part.differs, part.equal) == (False, False)
    assert 0 < part.share < 1
    assert part.source == part.target
    assert 0 < part.source.rows < ROWS
    monkeypatch.setattr(Extent, "timer", lambda _: lambda: False)
    with pytest.raises(Retryable, match="no chunk was compared") as raised:
        verify(pipe.config, [f"{pipe.database}.t"], pipe.spark, Extent.of(max_seconds=60))
    [nothing] = raised.value.result
    assert (nothing.share, nothing.equal, nothing.differs) == (0, False, False)


@pytest.mark.long("a variant of the case before, with the clock")
def test_enough_time_is_a_comparison_of_all(pipe: Pipe) -> None:
    """And too little ends soon after it."""
    copied(pipe)
    whole = compared(pipe, Extent.of(max_seconds=600))
    assert (whole.share, whole.equal, whole.source.rows) == (1, True, ROWS)
    began = time.monotonic()
    [part] = compare_tables(pipe.config, [f"{pipe.database}.t"], pipe.spark, Extent.of(max_seconds=0.001))
    assert (part.equal, part.differs) == (False, False)
    assert time.monotonic() - began < 60


@pytest.mark.long("compares a table many times")
@pytest.mark.any_format
def test_only_the_named_columns_are_compared_also_beside_writers(pipe: Pipe) -> None:
    """A difference in another column is none; one in a named column is found in changed rows, too."""
    copied(pipe)
    odd = odd_column(pipe)
    pipe.unlogged("UPDATE t SET v = 'changed' WHERE n = 5", "UPDATE t SET n = -1 WHERE n = 700")
    assert [each.key for each in compared(pipe, Extent.of(columns=["v"])).differences] == [(5,)]
    assert [each.key for each in compared(pipe, Extent.of(columns=["n", "id"])).differences] == [(700,)]
    other = compared(pipe, Extent.of(columns=[odd]))
    assert (other.differs, other.equal, other.result) == (False, False, f"source = target in the columns id, {odd}")
    pipe.sql("UPDATE t SET v = CONCAT(v, '!'), n = n * 2")  # the binlog has the rows as of the position
    assert [each.key for each in compared(pipe, Extent.of(columns=["v"])).differences] == [(5,)]
    moved = compared(pipe, Extent.of(columns=[odd]))
    assert (moved.differs, moved.moved) == (False, False)
    everything = compared(pipe, Extent.of(columns=["v", "n", odd]))
    assert (everything.columns, [each.key for each in everything.differences]) == (None, [(5,), (700,)])
    with pytest.raises(UsageError, match=r"no column vv; did you mean v\?"):
        Pipeline(pipe.config, pipe.spark).verify(f"{pipe.database}.t", columns=["vv"])


@pytest.mark.long("six comparisons beside writes")
def test_a_sample_beside_writers_has_no_false_difference(pipe: Pipe) -> None:
    """Rows come and go, so that chunks are cut elsewhere each time."""
    copied(pipe)
    chance = random.Random(3)
    for seed in range(6):
        for _ in range(40):
            key = chance.randrange(ROWS)
            pipe.sql(
                f"DELETE FROM t WHERE id = {key}",
                f"REPLACE INTO t VALUES ({chance.randrange(-ROWS, 2 * ROWS)}, 1, 'new', 2)",
                f"UPDATE t SET v = CONCAT(LEFT(v, 9), 'x') WHERE id = {key + 1}",
            )
        assert not compared(pipe, Extent.of(0.3, seed)).differs


@pytest.mark.long("several processes with a Spark each")
def test_the_command_says_the_share_and_its_seed(mysql_server: LocalServer, tmp_path: Path) -> None:
    """Exit 0 without a difference, 2 for an unknown column; text and JSON have the share."""
    job = Job(tmp_path / "job", mysql_server, "parts_job").write()
    job.sql(f"CREATE TABLE {job.database}.t (id INT PRIMARY KEY, v INT)")
    job.sql(f"INSERT INTO {job.database}.t VALUES (1, 1), (2, 2), (3, 3)")
    assert job.run()[0] == 0
    code, said = job.call("verify", "--sample", "0.5", "--seed", "7", "--columns", "v")
    assert code == 0, said
    assert "source = target, 3 rows" in said  # the table has one chunk, and only these columns
    assert "--seed 7 draws them again" in said
    code, said = job.call("verify", "--columns", "w")
    assert (code, "has no column w; " in said) == (2, True), said
