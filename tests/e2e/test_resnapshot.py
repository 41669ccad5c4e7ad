"""Re-snapshot: rows whose changes are not in the binlog are read again, while the log goes on."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from lakeingest.config.target import History
from lakeingest.core.copies.signals import Request
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE, Scope
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.catch_up import catch_up
from lakeingest.pipeline.opening.opening import opened
from lakeingest.pipeline.rereads.tasks import Patched, ReadAgain
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.signals.maintenance import maintain
from lakeingest.pipeline.signals.resnapshot import Step, step
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 300


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> Pipe:
    """A pipeline whose tables are read again in a few waves."""
    return pipe_on(mysql_server, chunk_rows=50)


def read_again(pipe: Pipe, table: str, scope: Scope, signal: int = 1, between: Callable[[], None] | None = None) -> int:
    """Read a part of the table again, in as many waves as it takes; `between` runs while each wave is read."""
    name, waves = TableId(pipe.database, table), 0
    with (
        opened(pipe.config, [str(name)], pipe.events.append, pipe.spark) as run,
        translate_errors(pipe.config.source, run.edges.target),
    ):
        catch_up(run)
        one = run.tables[name]
        while True:
            request = Request((signal,), scope, up_to(one))
            step(run.edges, run.binlog, one, request, (), wait=False)
            if between is not None:
                between()
            waves += 1
            if step(run.edges, run.binlog, one, request, (), wait=True) is Step.DONE:
                assert signal in one.progress.answered
                return waves


def filled(pipe: Pipe, key: str = "id INT", value: str = "n") -> None:
    """A table of 300 rows that is copied and differs from its source then: changed, deleted, new rows."""
    pipe.sql(
        f"CREATE TABLE t ({key} PRIMARY KEY, v VARCHAR(40), w INT)",
        f"INSERT INTO t WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})"
        f" SELECT {value}, n, n FROM s",
    )
    pipe.run("t")


@pytest.mark.long("whole runs")
@pytest.mark.any_format
def test_a_whole_table_is_read_again(pipe: Pipe) -> None:
    """Changes that the binlog lacks are found, all of them, beside changes that it has."""
    filled(pipe)
    pipe.unlogged(
        "UPDATE t SET v = 'x' WHERE id % 50 = 0",
        "DELETE FROM t WHERE id % 60 = 1",
        "INSERT INTO t VALUES (0, 'new', 0), (400, 'new', 0)",
    )
    pipe.run("t")
    assert not pipe.verify("t")["t"].equal
    turn = iter(range(1, 1000))

    def write() -> None:
        n = next(turn)
        pipe.sql(
            f"UPDATE t SET w = {n} WHERE id < 200",
            f"INSERT INTO t VALUES ({1000 + n}, 'later', 1)",
            f"DELETE FROM t WHERE id = {n * 7}",
        )

    waves = read_again(pipe, "t", WHOLE, between=write)
    assert waves >= 1
    pipe.run("t")
    pipe.assert_equal("t")


@pytest.mark.long("publishes and maintains several times beside a read that waits")
def test_a_wave_is_read_again_if_the_commit_of_its_comparison_has_expired(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are gone before they are read. Of Iceberg: on Hudi the rows are copied before the wave is read."""
    history = {"history": History.model_validate({"keep": "0s", "least": 1, "readers": "0s"})}
    pipe.config = pipe.config.model_copy(update={"target": pipe.config.target.model_copy(update=history)})
    filled(pipe)
    pipe.unlogged("UPDATE t SET v = 'x' WHERE id = 200")
    has_expired, read = threading.Event(), ReadAgain.run

    def read_late(task: ReadAgain) -> Patched:
        has_expired.wait(60)
        return read(task)

    monkeypatch.setattr(ReadAgain, "run", read_late)
    name, request = TableId(pipe.database, "t"), Request((1,), WHOLE, None)
    with (
        opened(pipe.config, [str(name)], pipe.events.append, pipe.spark) as run,
        translate_errors(pipe.config.source, run.edges.target),
    ):
        catch_up(run)
        one = run.tables[name]
        step(run.edges, run.binlog, one, request, (), wait=False)
        for number in range(3):
            pipe.sql(f"UPDATE t SET w = w + {number + 1}")
            catch_up(run)
            maintain(run.edges, run.binlog, one)
        monkeypatch.setattr(ReadAgain, "run", read)
        has_expired.set()
        assert step(run.edges, run.binlog, one, request, (), wait=True) is Step.AGAIN
        while step(run.edges, run.binlog, one, replace(request, up_to=up_to(one)), (), wait=True) is not Step.DONE:
            pass
    pipe.assert_equal("t")


def up_to(table: TableRun) -> Key | None:
    """How far the re-snapshot of a table has come."""
    return None if table.progress.reread is None else table.progress.reread.up_to


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_range_is_read_again_and_nothing_else(pipe: Pipe) -> None:
    """`[100, 200)`: rows outside of it stay as they are."""
    filled(pipe)
    pipe.unlogged("UPDATE t SET v = 'x' WHERE id IN (99, 100, 199, 200)", "DELETE FROM t WHERE id IN (98, 150, 250)")
    read_again(pipe, "t", Scope(range=KeyRange((100,), (200,))))
    rows = {row[0]: row[1] for row in pipe.rows("t")}
    assert [rows[n] for n in (99, 100, 199, 200)] == ["99", "x", "x", "200"]
    assert [n in rows for n in (98, 150, 250)] == [True, False, True]


@pytest.mark.formats
@pytest.mark.long("several publishes of Hudi", only=("hudi",))
def test_listed_keys_are_read_again(pipe: Pipe) -> None:
    """Those without a row are deleted, those that the copy lacks inserted."""
    filled(pipe)
    pipe.unlogged(
        "UPDATE t SET v = 'x' WHERE id IN (5, 6)",
        "DELETE FROM t WHERE id IN (7, 8)",
        "INSERT INTO t VALUES (900, 'n', 1), (901, 'n', 1)",
    )
    read_again(pipe, "t", Scope(keys=((5,), (7,), (900,), (12345,))))
    rows = {row[0]: row[1] for row in pipe.rows("t")}
    assert [rows[5], rows[6], 7 in rows, 8 in rows, rows.get(900), 901 in rows, 12345 in rows] == [
        "x",
        "6",
        False,
        True,
        "n",
        False,
        False,
    ]


@pytest.mark.long("whole runs")
def test_rows_that_meet_a_condition_are_read_again(pipe: Pipe) -> None:
    """A condition finds rows that the source has; what it has no longer stays."""
    filled(pipe)
    pipe.unlogged("UPDATE t SET v = 'x' WHERE id IN (5, 6)", "DELETE FROM t WHERE id = 7")
    read_again(pipe, "t", Scope(where="w = 5 OR w = 7"))
    rows = {row[0]: row[1] for row in pipe.rows("t")}
    assert [rows[5], rows[6], 7 in rows] == ["x", "6", True]


@pytest.mark.parametrize("scope", ["whole", "range"])
@pytest.mark.long("reads a table again twice", only=("range",))
def test_keys_whose_order_only_the_server_knows_are_read_again(pipe: Pipe, scope: str) -> None:
    """Blind to case and marks: the range is the server's, and so are the keys in it."""
    filled(pipe, "id VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", "CONCAT(IF(n % 2, 'k', 'K'), n)")
    pipe.unlogged(
        "UPDATE t SET v = 'x' WHERE w % 50 = 0",
        "DELETE FROM t WHERE w % 60 = 1",
        "UPDATE t SET id = 'É1' WHERE w = 17",
        "INSERT INTO t VALUES ('a', 'new', 0)",
    )
    if scope == "whole":
        read_again(
            pipe,
            "t",
            WHOLE,
            between=lambda: pipe.sql("UPDATE t SET id = UPPER(id) WHERE w < 100", "DELETE FROM t WHERE w = 3"),
        )
    else:
        bounds = KeyRange(("_utf8mb4 x'6B31'",), ("_utf8mb4 x'6B33'",))
        read_again(pipe, "t", Scope(range=bounds))
        rows = {row[0]: row[1] for row in pipe.rows("t")}
        assert rows["K150"] == "x"
        assert rows["K50"] == "50"
        assert "k181" not in rows
        assert "k17" not in rows
        read_again(pipe, "t", WHOLE, 2)
    pipe.run("t")
    pipe.assert_equal("t")


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_without_gtids_rows_are_read_again(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """A low watermark is the start of a binlog file then, and the spool is read again from there on.

    A change that this file has wins over the row that is read, so the new file begins before the rows are read.
    """
    pipe = pipe_on(mysql_server_with(gtid_mode="OFF", enforce_gtid_consistency="OFF"), chunk_rows=50)
    filled(pipe)
    pipe.unlogged("UPDATE t SET v = 'x' WHERE id % 50 = 0", "DELETE FROM t WHERE id % 60 = 1")
    pipe.sql("FLUSH BINARY LOGS", "UPDATE t SET w = -1 WHERE id < 40")
    pipe.run("t")
    read_again(pipe, "t", WHOLE, between=lambda: pipe.sql("UPDATE t SET w = w + 1 WHERE id > 100"))
    pipe.run("t")
    pipe.assert_equal("t")


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
@pytest.mark.long("starts another server")
def test_without_gtids_rows_are_read_again_after_ddl_in_the_same_file(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], metadata: str
) -> None:
    """Rows from before the DDL have other columns, or the same with other names. Those of another table stay unread."""
    server = mysql_server_with(gtid_mode="OFF", enforce_gtid_consistency="OFF", binlog_row_metadata=metadata)
    pipe = pipe_on(server, chunk_rows=50)
    for table in ("t", "o"):
        pipe.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, w INT)")
        pipe.sql(f"INSERT INTO {table} VALUES {', '.join(f'({number}, 1, 2)' for number in range(200))}")
    pipe.run()
    for table in ("t", "o"):
        pipe.sql(f"UPDATE {table} SET v = 3, w = 4 WHERE id < 20")
        pipe.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w, RENAME COLUMN w TO v, ADD c INT FIRST")
        pipe.sql(f"UPDATE {table} SET v = v + 5 WHERE id IN (1, 30)")
    assert pipe.run().stopped == ()
    pipe.unlogged("UPDATE t SET v = 7 WHERE id = 100", "DELETE FROM t WHERE id = 101")
    between = [f"UPDATE {table} SET w = w + 1 WHERE id % 90 = 5" for table in ("t", "o")]
    read_again(pipe, "t", WHOLE, between=lambda: pipe.sql(*between))
    assert pipe.run().stopped == ()
    pipe.assert_equal()
