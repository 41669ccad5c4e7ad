"""Tables with generated columns on servers that log them and on those that do not: exact, or refused by name."""

from collections.abc import Callable

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import plan
from lakeingest.commands.status import status
from lakeingest.config.formats import table_name
from lakeingest.config.tables import TableOptions
from lakeingest.demo.flavor import MARIADB_11_8
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed, UnsupportedEvent
from tests.e2e.pipe import Pipe
from tests.mysql.database import database_on
from tests.mysql.preflight.test_generated_columns import logs_generated_columns

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

NEWEST = pytest.mark.parametrize("any_server", [MARIADB_11_8], ids=[MARIADB_11_8.name], indirect=True)


def choose(pipe: Pipe, **options: object) -> None:
    """Let the config say so of every table."""
    tables = pipe.config.tables.model_copy(update={"options": {"*.*": TableOptions.model_validate(options)}})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


@pytest.mark.newest
@pytest.mark.any_format
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_all_generated_columns_may_be_left_out(any_pipe: Pipe) -> None:
    """Stored or not, wherever they stand: planned, copied, changed in every way, and equal to the source."""
    any_pipe.sql(
        "CREATE TABLE t (made TEXT AS (REPEAT(s, 300)) STORED, id INT PRIMARY KEY, n INT AS (id * 2) VIRTUAL,"
        " s VARCHAR(9), kept INT AS (id + 1) STORED UNIQUE, v INT)",
        f"INSERT INTO t (id, s, v) VALUES {', '.join(f'({n}, {n}, {n})' for n in range(25))}",
    )
    choose(any_pipe, chunk_rows=10, types={"generated": "skip"})
    [planned] = plan(any_pipe.config)
    assert planned.lossy == ("made: left out", "n: left out", "kept: left out")
    any_pipe.run()
    any_pipe.assert_equal()
    any_pipe.sql(
        "UPDATE t SET s = 'new' WHERE id < 5",
        "UPDATE t SET v = v + 1 WHERE id > 20",
        "DELETE FROM t WHERE id = 7",
        "UPDATE t SET id = 90 WHERE id = 9",
        "REPLACE INTO t (id, s, v) VALUES (11, 'r', 1), (95, 'r', 1)",
        "INSERT INTO t (id, s, v) VALUES (12, 'x', 1), (96, 'x', 1) ON DUPLICATE KEY UPDATE s = 'd', v = 99",
    )
    assert check(any_pipe.config).ok
    any_pipe.run()
    any_pipe.assert_equal()
    rows = {row[0]: row[1:] for row in any_pipe.rows("t")}
    assert (rows[0], rows[12], rows[90], rows[96]) == (("new", 0), ("d", 99), ("9", 9), ("x", 1))
    assert 7 not in rows


@NEWEST
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_server_that_does_not_log_generated_columns_is_found_out(
    pipe_on: Callable[..., Pipe], any_server: LocalServer
) -> None:
    """Before a table is copied, if its binlog tells; else at the first change. Left out, the rest is copied exactly."""
    with database_on(any_server) as db:
        is_there = logs_generated_columns(db)
    pipe = pipe_on(any_server, chunk_rows=10)
    pipe.sql(
        "FLUSH BINARY LOGS",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, kept INT AS (id + v) STORED, seen INT AS (v) VIRTUAL)",
        "INSERT INTO t (id, v) VALUES (1, 1), (2, 2)",
    )
    checked = check(pipe.config)
    assert checked.ok
    assert any("no UPDATE or DELETE in the binlog shows" in str(one.finding) for one in checked.warnings)
    pipe.run()
    pipe.assert_equal()
    pipe.sql("UPDATE t SET v = 5 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    refused = r"does not log generated columns .* \(e2e_\d+_0\.t: kept, seen\); .*\{generated: skip\}"
    if is_there:
        pipe.run()
        pipe.assert_equal()
        assert check(pipe.config).ok
        return
    with pytest.raises(PreflightFailed, match=refused):
        pipe.run()
    assert [one.name for one in check(pipe.config).problems] == ["generated columns"]
    [planned] = plan(pipe.config)
    assert (planned.state, "does not log generated columns" in str(planned.reasons)) == ("cannot be copied", True)
    assert pipe.rows("t") == [(1, 1, 2, 1), (2, 2, 4, 2)]  # as it was published, and no further
    copy_again(pipe, any_server)


def copy_again(pipe: Pipe, server: LocalServer) -> None:
    """Follow the way out: the copy is dropped and made without the columns."""
    table = table_name(pipe.config.target, next(iter(plan(pipe.config))).table)
    pipe.spark.sql(f"DROP TABLE {table}")
    choose(pipe, chunk_rows=10, types={"generated": "skip"})
    pipe.run()
    pipe.assert_equal()
    assert pipe.rows("t") == [(1, 5)]
    pipe.sql("UPDATE t SET v = 6", "INSERT INTO t (id, v) VALUES (3, 3)")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
@NEWEST
def test_a_change_that_lacks_a_generated_column_stops_a_run_that_could_not_know(
    pipe_on: Callable[..., Pipe], any_server: LocalServer
) -> None:
    """The change comes while the run copies, after its preflight: nothing is published that lacks a value."""
    with database_on(any_server) as db:
        is_there = logs_generated_columns(db)
    pipe = pipe_on(any_server, chunk_rows=10)
    pipe.sql(
        "FLUSH BINARY LOGS",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, kept INT AS (id + v) STORED)",
        "INSERT INTO t (id, v) VALUES (1, 1), (2, 2)",
    )
    is_changed: list[bool] = []

    def change(event: object) -> None:
        if not is_changed:
            is_changed.append(True)
            pipe.sql("UPDATE t SET v = 9 WHERE id = 2")

    if is_there:
        pipe.run(observe=change)
        pipe.assert_equal()
        return
    with pytest.raises(UnsupportedEvent, match=r"\.t at .* the row image lacks the generated columns kept; leave"):
        pipe.run(observe=change)
    assert [one.rows for one in status(pipe.config)] == [0]


@pytest.mark.long("whole runs")
@NEWEST
def test_a_generated_column_that_is_left_out_is_no_key(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> None:
    """The refusal names it; other columns can be the key."""
    pipe = pipe_on(any_server)
    pipe.sql(
        "CREATE TABLE t (n INT NOT NULL, v INT, k INT AS (n + 1) STORED, UNIQUE (k))",
        "INSERT INTO t (n, v) VALUES (1, 1), (2, 2)",
    )
    choose(pipe, key=["k"], types={"generated": "skip"})
    with pytest.raises(PreflightFailed, match="names k, which is not a column of the table, or is skipped"):
        pipe.run()
    choose(pipe, key=["n"], types={"generated": "skip"})
    pipe.run()
    pipe.sql("UPDATE t SET v = 5 WHERE n = 1", "UPDATE t SET n = 7 WHERE n = 2")
    pipe.run()
    pipe.assert_equal()
    assert pipe.rows("t") == [(1, 5), (7, 2)]
