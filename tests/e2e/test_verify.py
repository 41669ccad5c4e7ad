"""`verify` compares what can be compared, names the rest, and ends as a run with such tables does."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakeingest.commands.repair import repair_tables
from lakeingest.commands.run import run
from lakeingest.commands.verification import Verifications
from lakeingest.commands.verify import compare_tables, verify
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    LakeIngestError,
    PreflightFailed,
    Retryable,
    SchemaChanged,
    SourceMoved,
    UnsupportedTable,
)
from lakeingest.mysql.connection import connect, query
from lakeingest.pipeline.events import ComparisonBegun, Event
from lakeingest.pipeline.proving import comparison
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> Pipe:
    """A pipeline of a table that is copied."""
    pipe = pipe_on(mysql_server)
    pipe.sql("CREATE TABLE good (id INT PRIMARY KEY, v INT)", "INSERT INTO good VALUES (1, 1), (2, 2)")
    return pipe


def found(pipe: Pipe) -> tuple[list[str], LakeIngestError]:
    """Which tables are found equal, and the error of another one."""
    with pytest.raises(LakeIngestError) as caught:
        verify(pipe.config, (), pipe.spark)
    result = caught.value.result
    assert isinstance(result, Verifications)
    assert not result.equal
    return [one.table.name for one in result if one.equal], caught.value


@pytest.mark.long("whole runs")
def test_a_table_without_a_key_is_named_and_the_others_are_compared(pipe: Pipe) -> None:
    """As a run does it."""
    pipe.sql("CREATE TABLE keyless (v INT)")
    with pytest.raises(PreflightFailed):
        pipe.run()
    names, error = found(pipe)
    assert (names, type(error)) == (["good"], UnsupportedTable)
    assert "keyless" in str(error)
    assert [one.equal for one in repair_tables(pipe.config, (), pipe.spark)] == [True]


@pytest.mark.formats("hudi")
@pytest.mark.long("Hudi's side of a rule that the case before shows")
def test_a_table_that_the_lake_cannot_have_is_not_for_later(pipe: Pipe) -> None:
    """A scheduler that tries again would try for ever."""
    pipe.sql("CREATE TABLE named (id INT PRIMARY KEY, `a b` INT)")
    with pytest.raises(PreflightFailed):
        pipe.run()
    names, error = found(pipe)
    assert (names, error.exit_code) == (["good"], 3)


def test_a_table_that_is_not_copied_yet_is_for_later(pipe: Pipe) -> None:
    """The next run copies it."""
    pipe.run()
    pipe.sql("CREATE TABLE fresh (id INT PRIMARY KEY)")
    names, error = found(pipe)
    assert (names, type(error)) == (["good"], Retryable)


@pytest.mark.long("test_run compares tables of a busy source in every run")
def test_a_table_that_is_written_to_is_compared(pipe: Pipe) -> None:
    """The copy has the rows as of its position, whatever the source has now; what differs in it is found."""
    pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY, v INT)")
    pipe.sql("INSERT INTO busy VALUES " + ", ".join(f"({i}, {i})" for i in range(1, 101)))
    pipe.run()
    pipe.unlogged("UPDATE busy SET v = -1 WHERE id IN (10, 20)", "DELETE FROM busy WHERE id = 30")
    pipe.unlogged("INSERT INTO busy VALUES (500, 1)")
    assert differing(pipe, "busy") == {
        10: "differs",
        20: "differs",
        30: "only in the target",
        500: "only in the source",
    }
    pipe.sql(
        "UPDATE busy SET v = v + 1 WHERE id BETWEEN 15 AND 19",
        "UPDATE busy SET v = 7 WHERE id = 20",  # one that differs: the binlog has its row as of the position, -1
        "UPDATE busy SET v = v + 1 WHERE id = 40",
        "UPDATE busy SET v = v - 1 WHERE id = 40",
        "DELETE FROM busy WHERE id = 50",
        "INSERT INTO busy VALUES (50, 0), (501, 1)",
        "UPDATE busy SET id = 502 WHERE id = 60",
        "DELETE FROM busy WHERE id IN (61, 500)",
    )
    # neither side has 500 any more
    assert differing(pipe, "busy") == {10: "differs", 20: "differs", 30: "only in the target"}
    [busy] = compare_tables(pipe.config, [f"{pipe.database}.busy"], pipe.spark)
    assert busy.moved
    assert "rows changed meanwhile" in str(next(iter(pipe_report(pipe)))[6])


@pytest.mark.long("a variant of what every run has")
@pytest.mark.parametrize(
    "columns",
    [
        "k VARCHAR(20) COLLATE utf8mb4_0900_ai_ci",
        "k DECIMAL(10, 2)",
        "k BINARY(4)",
        "k DATETIME(6)",
    ],
)
def test_keys_that_only_the_server_orders_are_compared_beside_writers(pipe: Pipe, columns: str) -> None:
    """By the texts of their bytes; a key that changes its case is two keys."""
    values = ["20260101000001", "20260102000002", "20260103000003", "20260104000004"]
    if "VARCHAR" in columns:
        values = ["a", "B", "c", "d"]
    elif "BINARY" in columns:
        values = ["abcd", "bcde", "cdef", "defg"]
    elif "D" in columns and "DATETIME" not in columns:
        values = ["1.5", "-2.25", "30", "0"]
    pipe.sql(
        f"CREATE TABLE busy ({columns} NOT NULL PRIMARY KEY, v INT, other TEXT)",
        "INSERT INTO busy VALUES " + ", ".join(f"('{one}', {i}, REPEAT('x', {i}))" for i, one in enumerate(values)),
    )
    pipe.run()
    pipe.unlogged(f"UPDATE busy SET v = -1 WHERE k = '{values[0]}'")
    pipe.sql(
        f"UPDATE busy SET v = v + 1 WHERE k = '{values[1]}'",
        f"DELETE FROM busy WHERE k = '{values[2]}'",
        "UPDATE busy SET k = UPPER(k) WHERE k = 'd'" if "VARCHAR" in columns else "DO 0",
    )
    [busy] = compare_tables(pipe.config, [f"{pipe.database}.busy"], pipe.spark)
    assert [one.where for one in busy.differences] == ["differs"]
    assert busy.moved


@pytest.mark.any_format
@pytest.mark.long("the same for all types")
def test_rows_of_every_type_are_compared_beside_writers(pipe: Pipe) -> None:
    """The rows that the binlog has, and those that Spark reads, are compared value by value."""
    pipe.sql(
        "CREATE TABLE busy (id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, b BIT(9), d DECIMAL(20, 6), f FLOAT, g DOUBLE,"
        " s VARCHAR(20), c CHAR(5) COLLATE latin1_swedish_ci, x TEXT, y VARBINARY(9), z LONGBLOB, j JSON,"
        " e ENUM('a', 'b'), m SET('a', 'b', 'c'), dt DATETIME(6), ts TIMESTAMP(3) NULL, da DATE, ti TIME(6), ye YEAR,"
        " ge GEOMETRY, big BIGINT UNSIGNED, v INT)",
        "INSERT INTO busy VALUES (18446744073709551615, -128, b'101', 1.5, 0.1, -1e-300, 'ä€', 'é  ', 'x', 0x00FF,"
        " 0x01, '{\"a\": 1.0}', 'b', 'a,c', '2026-01-01 00:00:00.000001', '2026-03-29 01:30:00', '1000-01-01',"
        " '-838:59:59', 1999, POINT(1, 2), 18446744073709551615, 0)",
        "INSERT INTO busy (id) VALUES (1), (2)",
        "INSERT INTO busy (id, s, g, v) VALUES (3, '', -0.0, 1)",
    )
    pipe.run()
    pipe.sql("UPDATE busy SET v = 7", "UPDATE busy SET s = 'later', dt = NOW(6), z = 0x02, d = -d")
    [busy] = compare_tables(pipe.config, [f"{pipe.database}.busy"], pipe.spark)
    assert (busy.differences, busy.moved) == ((), True)
    assert busy.source != busy.target
    pipe.run()
    pipe.unlogged("UPDATE busy SET ge = POINT(3, 4) WHERE id = 2")
    pipe.sql("UPDATE busy SET v = 8")  # the binlog has the rows as of the position, and one of them has that point
    assert differing(pipe, "busy") == {2: "differs"}


@pytest.mark.any_format
@pytest.mark.long("follows for some seconds")
def test_a_table_is_compared_beside_a_run_that_follows(pipe: Pipe) -> None:
    """Again and again, while rows come, change and go, and others move: no difference is found but those put in."""
    pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY, v INT, w VARCHAR(50))")
    pipe.sql("INSERT INTO busy VALUES " + ", ".join(f"({i}, {i}, 'w{i}')" for i in range(2_000)))
    pipe.run()
    stopping, results = threading.Event(), list[Verifications]()

    def write() -> None:
        chance = random.Random(7)
        with connect(pipe.administrator) as one:
            query(one, f"USE `{pipe.database}`")
            while not stopping.is_set():
                key = chance.randrange(2_000)
                query(one, f"UPDATE busy SET v = v + 1, w = CONCAT('w', v) WHERE id = {key}")
                query(one, f"DELETE FROM busy WHERE id = {key + 1}")
                query(one, f"REPLACE INTO busy VALUES ({key + 2}, {key}, 'new')")
                query(one, f"UPDATE IGNORE busy SET id = {2_000 + key} WHERE id = {key + 3}")

    def observe() -> None:
        try:
            for _ in range(6):
                results.append(compare_tables(pipe.config, [f"{pipe.database}.busy"], pipe.spark))
        finally:
            stopping.set()

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(write), pool.submit(observe)]
        run(pipe.config, (), None, pipe.events.append, pipe.spark, follow=True, stopping=stopping.is_set)
        for each in done:
            each.result()
    assert [(one.equal, one.notes) for one in results] == [(True, [])] * 6
    assert any(table.moved for one in results for table in one)


@pytest.mark.long("whole runs")
def test_a_child_whose_parent_is_written_to_is_for_later(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """The source does not log what foreign keys change."""
    pipe = pipe_on(silent, cascades="read")
    pipe.sql(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    pipe.run()
    pipe.sql("DELETE FROM parent WHERE id = 1")
    [parent] = compare_tables(pipe.config, [f"{pipe.database}.parent"], pipe.spark)
    assert parent.equal
    with pytest.raises(SourceMoved, match="parent was changed after"):
        verify(pipe.config, [f"{pipe.database}.child"], pipe.spark)


@pytest.mark.long("whole runs")
def test_a_table_that_is_its_own_parent_is_for_later(pipe_on: Callable[..., Pipe], silent: LocalServer) -> None:
    """If it was changed; if not, its differences are found."""
    pipe = pipe_on(silent, cascades="read")
    pipe.sql(
        "CREATE TABLE tree (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES tree (id) ON DELETE CASCADE)",
        "INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (10, NULL), (11, NULL)",
    )
    pipe.run()
    pipe.unlogged("DELETE FROM tree WHERE id = 11")
    assert differing(pipe, "tree") == {11: "only in the target"}
    pipe.sql("DELETE FROM tree WHERE id = 1")
    with pytest.raises(SourceMoved, match="tree was changed after"):
        verify(pipe.config, [f"{pipe.database}.tree"], pipe.spark)
    pipe.run()
    assert differing(pipe, "tree") == {11: "only in the target"}


@pytest.mark.long("whole runs")
def test_rows_behind_a_cut_are_no_differences(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many rows are compared one by one. What differs among them is reported, also beside writers."""
    monkeypatch.setattr(comparison, "KEYS_NAMED", 100)
    pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY, v INT)")
    pipe.sql("INSERT INTO busy VALUES " + ", ".join(f"({i}, {i})" for i in range(1, 301)))
    pipe.run()
    pipe.unlogged("DELETE FROM busy WHERE id BETWEEN 21 AND 200")
    found = differing(pipe, "busy")
    assert set(found) <= set(range(21, 201))
    assert set(found.values()) == {"only in the target"}
    pipe.sql("UPDATE busy SET v = 0 WHERE id = 5")
    assert differing(pipe, "busy") == found
    pipe.sql("UPDATE busy SET v = 0 WHERE id > 250")
    assert differing(pipe, "busy") == found


@pytest.mark.long("whole runs")
def test_a_table_with_ddl_after_its_position_is_for_the_next_run(pipe: Pipe) -> None:
    """Also if its definition is the same afterwards."""
    pipe.run()
    pipe.sql("TRUNCATE TABLE good")
    with pytest.raises(Retryable, match="there is DDL after its published position"):
        verify(pipe.config, (), pipe.spark)
    pipe.run()
    assert verify(pipe.config, (), pipe.spark).equal


def differing(pipe: Pipe, table: str) -> dict[object, str]:
    """The keys that differ, and how."""
    [found] = compare_tables(pipe.config, [f"{pipe.database}.{table}"], pipe.spark)
    assert not found.equal
    return {one.key[0]: one.where for one in found.differences}


def pipe_report(pipe: Pipe) -> Iterator[Sequence[object]]:
    """The rows of the report of a comparison."""
    return compare_tables(pipe.config, [f"{pipe.database}.busy"], pipe.spark).cells()


def test_a_table_with_ddl_during_its_comparison_is_for_later(pipe: Pipe) -> None:
    """Its columns are no longer those that are compared; the others are compared. A dropped table is no such one."""
    pipe.sql("CREATE TABLE other (id INT PRIMARY KEY, v INT)", "INSERT INTO other VALUES (1, 1)")
    pipe.run()
    for ddl, wanted in (("ALTER TABLE good DROP COLUMN v", SourceMoved), ("DROP TABLE good", SchemaChanged)):

        def alter(event: Event, ddl: str = ddl) -> None:
            if isinstance(event, ComparisonBegun) and event.table.name == "good":
                pipe.sql(ddl)

        results = compare_tables(pipe.config, (), pipe.spark, observe=alter)
        assert [one.table.name for one in results if one.equal] == ["other"]
        assert [type(error) for error in results.refused.values()] == [wanted]
        if wanted is SourceMoved:
            pipe.run()


def test_an_error_of_all_tables_is_raised_at_once(pipe: Pipe) -> None:
    """There is nothing to be named."""
    pipe.run()
    gone = pipe.config.source.model_copy(update={"port": 1})
    with pytest.raises(LakeIngestError) as caught:
        compare_tables(pipe.config.model_copy(update={"source": gone}), (), pipe.spark)
    assert caught.value.result is None
