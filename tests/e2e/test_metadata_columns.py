"""Columns that a copy has beside the source's, and deleted rows that stay in it."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeingest.commands.plan import plan
from lakeingest.commands.status import status
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE, Scope
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed, SchemaChanged
from lakeingest.pipeline.events import Event, Merged, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines, replayed, source
from tests.e2e.test_resnapshot import read_again
from tests.lake.shown import shown

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ALL = {"deletes": "soft", "metadata": ["committed_at", "op", "position"]}
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40), n INT NOT NULL)"
NAMES = ["id", "v", "n", "_lakeingest_op", "_lakeingest_deleted", "_lakeingest_position", "_lakeingest_committed_at"]
CHANGES = (
    "INSERT INTO t VALUES (30, 'new', 30)",
    "UPDATE t SET v = 'changed' WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "UPDATE t SET id = 103, v = 'moved' WHERE id = 3",
    "DELETE FROM t WHERE id = 4",
    "INSERT INTO t VALUES (4, 'again', 40)",
    "INSERT INTO t VALUES (31, 'short life', 31)",
    "DELETE FROM t WHERE id = 31",
    "REPLACE INTO t VALUES (5, 'replaced', 50)",
    "UPDATE t SET v = 'once' WHERE id = 6",
    "UPDATE t SET v = 'twice' WHERE id = 6",
)
CHANGED = {
    30: ("new", 30, "c", False),
    1: ("changed", 1, "u", False),
    2: ("v2", 2, "d", True),
    3: ("v3", 3, "d", True),
    103: ("moved", 3, "u", False),
    4: ("again", 40, "c", False),
    31: ("short life", 31, "d", True),
    5: ("replaced", 50, "u", False),
    6: ("twice", 6, "u", False),
}


@pytest.fixture
def soft(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> Pipe:
    """A pipeline whose copies keep deleted rows, and have all metadata columns; its table has rows 1 to 25."""
    pipe = pipe_on(any_server, chunk_rows=10, **ALL)
    pipe.sql(TABLE, f"INSERT INTO t VALUES {', '.join(f'({n}, {v!r}, {n})' for n, v in started().items())}")
    return pipe


def started() -> dict[int, str]:
    """The rows in the beginning."""
    return {n: f"v{n}" for n in range(1, 26)}


def copied(pipe: Pipe) -> dict[Any, dict[str, Any]]:
    """What a reader sees of the table, by its key."""
    found = shown(pipe.spark, pipe.config.target, TableId(pipe.database, "t"))
    assert found.columns == NAMES
    return {row["id"]: row.asDict() for row in found.collect()}


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row's values, what was done to it, and whether it is deleted."""
    return row["v"], row["n"], row["_lakeingest_op"], row["_lakeingest_deleted"]


@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 10.11", "MariaDB 11.4"))
def test_deleted_rows_stay_with_their_last_values_and_each_row_says_where_it_is_from(soft: Pipe) -> None:
    """Inserts, updates, deletes, keys that move and come again, and rows that only lived between two runs."""
    soft.run()
    first = copied(soft)
    assert {key: plain(row) for key, row in first.items()} == {n: (v, n, "r", False) for n, v in started().items()}
    assert all(row["_lakeingest_committed_at"] is None for row in first.values())
    soft.assert_equal("t")

    began = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    soft.sql(*CHANGES)
    soft.run()
    second = copied(soft)
    untouched = {n: (v, n, "r", False) for n, v in started().items() if n not in CHANGED}
    assert {key: plain(row) for key, row in second.items()} == untouched | CHANGED
    assert {key: row for key, row in first.items() if key in untouched} == {key: second[key] for key in untouched}
    latest = max(row["_lakeingest_position"] for row in first.values())
    in_order = [second[key]["_lakeingest_position"] for key in (30, 1, 2, 103, 4, 31, 5, 6)]
    assert [latest, *in_order] == sorted({latest, *in_order})
    assert second[3]["_lakeingest_position"] == second[103]["_lakeingest_position"]
    seconds = [(second[key]["_lakeingest_committed_at"] - began).total_seconds() for key in CHANGED]
    assert all(-2 < one < 60 for one in seconds)
    soft.assert_equal("t")

    soft.sql("INSERT INTO t VALUES (2, 'back', 2)", "DELETE FROM t WHERE id = 1", "UPDATE t SET id = 31 WHERE id = 30")
    soft.run()
    third = copied(soft)
    assert {key: plain(third[key]) for key in (1, 2, 30, 31)} == {
        1: ("changed", 1, "d", True),
        2: ("back", 2, "c", False),
        30: ("new", 30, "d", True),
        31: ("new", 30, "u", False),
    }
    soft.assert_equal("t")
    [answer] = status(soft.config)
    assert (answer.rows, answer.keeps_deleted) == (len(third), True)
    result = soft.verify("t")["t"]
    assert result.target.rows == sum(not row["_lakeingest_deleted"] for row in third.values())


@pytest.mark.long("waits for waves of a copy")
def test_what_is_deleted_while_the_table_is_copied_stays_too(soft: Pipe) -> None:
    """In a chunk that was read before, and not in one that is read later, which never had the row."""

    def delete(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1:
            soft.sql("DELETE FROM t WHERE id IN (1, 1000)", "INSERT INTO t VALUES (-5, 'early', 0)")
            soft.sql("UPDATE t SET id = 1001 WHERE id = 2", "DELETE FROM t WHERE id = -5")

    soft.sql(f"INSERT INTO t VALUES {', '.join(f'({n}, {n}, {n})' for n in range(26, 1001))}")
    soft.run(observe=delete)
    found = copied(soft)
    assert {key for key, row in found.items() if row["_lakeingest_deleted"]} == {1, 2, -5}
    assert found[1001]["v"] == "v2"
    soft.assert_equal("t")


class Killed(Exception):
    """The end of a run in between."""


@pytest.mark.long("runs five times, and is broken off three times")
def test_a_run_that_ends_in_between_loses_no_deleted_row(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """After a wave, and after a merge that nobody sees yet; columns chosen one by one."""
    pipe = pipe_on(mysql_server, chunk_rows=10, deletes="soft")
    pipe.sql(TABLE, f"INSERT INTO t VALUES {', '.join(f'({n}, {n}, {n})' for n in range(1, 101))}")

    def die_after(kind: type[Event], *statements: str) -> None:
        def die(event: Event) -> None:
            if isinstance(event, kind):
                pipe.sql(*statements)
                raise Killed

        with pytest.raises(Killed):
            pipe.run(observe=die)

    die_after(WaveCommitted, "DELETE FROM t WHERE id = 3", "UPDATE t SET v = 'x' WHERE id = 4")
    die_after(Merged, "DELETE FROM t WHERE id IN (4, 99)", "INSERT INTO t VALUES (3, 'back', 3)")
    pipe.run()
    pipe.assert_equal("t")
    rows = {row[0]: row[1:] for row in pipe.rows("t")}
    assert {key: row for key, row in rows.items() if row[2]} == {4: ("x", 4, True), 99: ("99", 99, True)}
    assert (len(rows), rows[3]) == (100, ("back", 3, False))
    pipe.sql("DELETE FROM t WHERE id = 6")
    die_after(Merged, "DELETE FROM t WHERE id = 5")
    pipe.run()
    assert [row[0] for row in pipe.rows("t") if row[3]] == [4, 5, 6, 99]
    pipe.assert_equal("t")


@pytest.mark.long("whole runs")
def test_other_options_stop_the_table_and_its_own_let_it_go_on(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """The copy stays as it was made: with deletes that remove rows, and one metadata column."""
    pipe = pipe_on(mysql_server, metadata=["op"])
    pipe.sql(TABLE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    [planned] = plan(pipe.config)
    assert (planned.columns[-1].name, planned.columns[-1].lake_type) == ("_lakeingest_op", "string")
    pipe.run()
    pipe.sql("DELETE FROM t WHERE id = 1", "UPDATE t SET n = 3 WHERE id = 2")
    config = pipe.config
    for other in ({}, {"metadata": ["op"], "deletes": "soft"}, {"metadata": ["op", "position"]}):
        options = {"*.*": TableOptions.model_validate(other)}
        pipe.config = config.model_copy(update={"tables": config.tables.model_copy(update={"options": options})})
        with pytest.raises(SchemaChanged):
            pipe.run()
    pipe.config = config
    assert pipe.rows("t") == [(1, "a", 1, "r"), (2, "b", 2, "r")]
    pipe.run()
    assert pipe.rows("t") == [(2, "b", 3, "u")]
    pipe.assert_equal("t")
    assert not status(pipe.config)[0].keeps_deleted


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_suites_are_asked_of_the_rows_that_are_not_deleted(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, tmp_path: Path
) -> None:
    """A value of a deleted row may come again in a unique column; metadata columns can be named."""
    pipe = pipe_on(mysql_server, deletes="soft", metadata=["op"])
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / f"{pipe.database}.t.yml").write_text(
        "expectations: [{type: expect_column_values_to_be_unique, kwargs: {column: v}},"
        " {type: expect_column_values_to_be_in_set, kwargs: {column: _lakeingest_op, value_set: [r, c]}}]"
    )
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(tmp_path / "suites"))})
    pipe.sql(TABLE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    pipe.run()
    pipe.sql("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'a', 3)")
    pipe.run()
    seen = [(1, "a", 1, "d", True), (2, "b", 2, "r", False), (3, "a", 3, "c", False)]
    assert pipe.rows("t") == seen
    pipe.sql("UPDATE t SET n = 4 WHERE id = 2")
    with pytest.raises(GateFailed, match="_lakeingest_op"):
        pipe.run()
    assert pipe.rows("t") == seen


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_deleted_rows_stay_where_only_the_server_knows_the_order_of_keys(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Keys of text, whose changes are merged after the last chunk; one that changes only its case is moved."""
    pipe = pipe_on(mysql_server, chunk_rows=10, deletes="soft", metadata=["op"])
    pipe.sql("CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, v INT)")
    pipe.sql(f"INSERT INTO t VALUES {', '.join(f'({n:03}, {n})' for n in range(100, 200))}")

    def change(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.wave == 1:
            pipe.sql(
                "DELETE FROM t WHERE k = '100'", "INSERT INTO t VALUES ('a', 0)", "UPDATE t SET k = 'A' WHERE v = 0"
            )

    pipe.run(observe=change)
    pipe.assert_equal("t")
    pipe.sql("DELETE FROM t WHERE k = '150'", "INSERT INTO t VALUES ('100', 1)")
    pipe.run()
    pipe.assert_equal("t")
    assert [row for row in pipe.rows("t") if row[2] != "r"] == [
        ("100", 1, "c", False),
        ("150", 150, "d", True),
        ("A", 0, "u", False),
        ("a", 0, "d", True),
    ]


@pytest.mark.parametrize("key", ["INT", "VARCHAR(9)"])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_rows_that_are_read_again_leave_deleted_rows_as_they_are(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, key: str
) -> None:
    """Rows that the source lost without a word in its binlog are marked then, with the values that the copy has."""
    pipe = pipe_on(mysql_server, chunk_rows=10, deletes="soft", metadata=["op"])
    pipe.sql(f"CREATE TABLE t (id {key} PRIMARY KEY, v VARCHAR(40), n INT NOT NULL)")
    pipe.sql(f"INSERT INTO t VALUES {', '.join(f'({n}, {n}, {n})' for n in range(1, 61))}")
    pipe.run()
    pipe.sql("DELETE FROM t WHERE n = 1")
    pipe.run()
    lost = ("DELETE FROM t WHERE n = 2", "UPDATE t SET v = 'x' WHERE n = 3", "INSERT INTO t VALUES (100, 'y', 1)")
    pipe.unlogged(*lost)
    pipe.sql("UPDATE t SET v = 'late' WHERE n = 4", "DELETE FROM t WHERE n = 4")
    read_again(pipe, "t", WHOLE, between=lambda: pipe.sql("DELETE FROM t WHERE n = 6"))
    pipe.run()
    pipe.assert_equal("t")

    def deleted() -> dict[object, object]:
        return {int(str(row[0])): row[1:4] for row in pipe.rows("t") if row[4]}

    gone = {1: ("1", 1, "d"), 2: ("2", 2, "d"), 4: ("late", 4, "d"), 6: ("6", 6, "d")}
    assert deleted() == gone
    pipe.unlogged("DELETE FROM t WHERE n = 8", "DELETE FROM t WHERE n = 9")
    read_again(pipe, "t", Scope(keys=tuple((n if key == "INT" else str(n),) for n in (1, 8, 7, 12345))))
    assert deleted() == gone | {8: ("8", 8, "d")}


@pytest.mark.formats
@pytest.mark.long("several runs on each server", only=("MariaDB 10.11", "MariaDB 11.4", "hudi"))
def test_a_changelog_has_no_row_that_is_marked_as_deleted(soft: Pipe) -> None:
    """Replayed into an empty table it gives the source's."""
    soft.run()
    soft.sql(*CHANGES)
    soft.run()
    assert sum(row["_lakeingest_deleted"] for row in copied(soft).values()) == 3
    assert replayed(lines(soft)) == source(soft)
    soft.sql("DELETE FROM t WHERE id = 10", "INSERT INTO t VALUES (2, 'back', 2)")
    soft.run()
    assert replayed(lines(soft)) == source(soft)
