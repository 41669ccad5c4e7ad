"""Histories of tables (`history: scd2`), beside a program that records every state of the source."""

import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeingest import Pipeline
from lakeingest.config import Config
from lakeingest.core.companions.history_table import followed
from lakeingest.core.ddl.lift import Lift, NotLiftable
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.pipeline.companions import history_writing
from lakeingest.pipeline.events import Undelivered
from tests.e2e.pipe import Pipe
from tests.e2e.recorded import EPOCH, Recorder
from tests.lake.shown import catalog_of, shown
from tests.servers.stores import remove

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

TABLE = "CREATE TABLE t (id INT, city VARCHAR(9), v INT, note VARCHAR(20), PRIMARY KEY (id, city))"


def with_history(pipe: Pipe) -> Pipe:
    """The same pipeline, with histories."""
    pipe.config = pipe.config.model_copy(update={"history": "scd2"})
    return pipe


def versions(pipe: Pipe, table: str = "t") -> list[dict[str, Any]]:
    """The rows of a history as readers see them, in the order in which they begin."""
    return versions_of(pipe.spark, pipe.config, TableId(pipe.database, f"{table}__history"))


def versions_of(spark: SparkSession, config: Config, history: TableId) -> list[dict[str, Any]]:
    """The rows of a history as readers see them, in the order in which they begin; times are those of UTC."""
    rows = [row.asDict() for row in shown(spark, config.target, history).collect()]
    for row in rows:
        row |= {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
    return sorted(rows, key=lambda row: str(row["valid_from_position"]))


def begun(pipe: Pipe, seed: int) -> Recorder:
    """A table that is published, with its history, and what records it; the first state is the copy's."""
    with_history(pipe)
    pipe.sql(TABLE, f"INSERT INTO t VALUES {', '.join(f'''({n}, 'a', {n}, 'row {n}')''' for n in range(20))}")
    recorder = Recorder(pipe.connection, random.Random(seed))
    pipe.run()
    recorder.record()
    return recorder


def resnapshot(pipe: Pipe, **scope: Any) -> None:
    """Read these rows again, and wait until they are published."""
    [done] = Pipeline(pipe.config, pipe.spark).resnapshot(f"{pipe.database}.t", **scope)
    assert done.state == "done"


@pytest.mark.formats
@pytest.mark.long("one server and format in turn", turn=("any_server", "lake_format"))
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_history_is_the_source_at_every_position_and_time(any_pipe: Pipe) -> None:
    """Changes of values and keys, DDL, TRUNCATE and a re-snapshot; the rows of the first copy are marked."""
    recorder = begun(any_pipe, 1)
    for step in range(4):
        for _ in range(6):
            recorder.change()
        if step == 1:
            recorder.ddl("ALTER TABLE t ADD z INT NOT NULL DEFAULT 4, RENAME COLUMN v TO w", {"v": "w"})
            recorder.change()
        if step == 2:
            time.sleep(1.1)  # so that MariaDB, whose times are whole seconds, has a time between two states
            recorder.ddl("TRUNCATE t")
            recorder.change()
        any_pipe.run()
    found = versions(any_pipe)
    is_mariadb = "maria" in str(query(any_pipe.connection, "SELECT VERSION()")).lower()
    assert recorder.assert_same_as(found, 0, whole_seconds=is_mariadb) > (1 if is_mariadb else 20)
    assert {row["begun_by"] for row in found} == {"copy", "insert", "update"}
    assert {row["ended_by"] for row in found} == {None, "update", "delete", "truncate"}
    assert any_pipe.seen(Undelivered) == []
    resnapshot(any_pipe)
    assert versions(any_pipe) == found
    any_pipe.assert_equal("t")


def test_lost_changes_become_corrections(pipe: Pipe) -> None:
    """A re-snapshot and a repair put right what they find, as of the place where they find it, and nothing else."""
    recorder = begun(pipe, 2)
    recorder.change()
    pipe.run()
    wrong = len(recorder.states)
    pipe.unlogged(
        "UPDATE t SET note = 'lost' WHERE id IN (3, 4)",
        "DELETE FROM t WHERE id = 5",
        "INSERT INTO t VALUES (90, 'c', 1, '')",
    )
    recorder.change()
    pipe.run()
    resnapshot(pipe)
    recorder.record()
    found = versions(pipe)
    corrected = {row["id"] for row in found if row["begun_by"] == "correction"}
    assert {90} <= corrected <= {3, 4, 33, 34, 90}
    assert {row["id"] for row in found if row["ended_by"] == "correction"} <= {3, 4, 5, 33, 34, 35}
    recorder.assert_same_as(found, wrong + 1)
    del recorder.states[wrong:]
    recorder.assert_same_as(found, 0)


def test_a_history_that_has_lost_changes_has_a_gap(pipe: Pipe) -> None:
    """All versions end where the history went last, and begin where the new copy was read."""
    recorder = begun(pipe, 3)
    recorder.change()
    pipe.run()
    before = len(recorder.states)
    pipe.config = pipe.config.model_copy(update={"history": "none"})
    recorder.change()
    pipe.run()
    for file in (pipe.state / "spool" / "archive").listed("*"):
        if file.suffix == ".json":
            file.delete()
    with_history(pipe)
    recorder.change()
    pipe.run()
    found = versions(pipe)
    assert {row["ended_by"] for row in found} >= {"gap"}
    recorder.assert_same_as(found, len(recorder.states) - 1)
    del recorder.states[before:]
    for state in recorder.states:
        assert recorder.as_of_position(found, state.place, state.columns) == sorted(state.rows)


def test_a_history_begins_anew_where_it_ended(pipe: Pipe) -> None:
    """The state folder is lost while nothing changes: as of each place, each row is there once."""
    recorder = begun(pipe, 7)
    recorder.change()
    pipe.run()
    remove(pipe.state)
    pipe.run()
    found = versions(pipe)
    assert "gap" in {row["ended_by"] for row in found}
    assert all(row["valid_from_position"] < (row["valid_to_position"] or "~") for row in found)
    for state in recorder.states:
        assert recorder.as_of_position(found, state.place, state.columns) == sorted(state.rows)


@pytest.mark.long("tests/core has the names")
def test_columns_with_names_of_a_history_get_others_there(pipe: Pipe) -> None:
    """Neither the table nor its history stops: with such a column from the first copy on, by DDL, and without it."""
    with_history(pipe)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, Valid_From INT)",
        "INSERT INTO t VALUES (1, 2)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
    )
    pipe.run()
    pipe.sql("ALTER TABLE t ADD is_current INT NOT NULL DEFAULT 3", "INSERT INTO other VALUES (1)")
    pipe.run()
    pipe.sql("ALTER TABLE t RENAME COLUMN is_current TO now", "INSERT INTO other VALUES (2)", "UPDATE t SET now = 4")
    pipe.run()
    assert pipe.seen(Undelivered) == []
    found = [(row["id"], row["Valid_From__1"], row["now"], row["is_current"]) for row in versions(pipe)]
    assert found == [(1, 2, 3, False), (1, 2, 4, True)]
    assert len(versions(pipe, "other")) == 2
    pipe.assert_equal("t")


def test_a_history_that_cannot_follow_stops_nothing_else(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run says so, and how to go on; that is what it takes."""
    with_history(pipe)
    pipe.sql(TABLE, "INSERT INTO t VALUES (1, 'a', 1, '')", "CREATE TABLE other (id INT PRIMARY KEY)")
    pipe.run()

    def refuse(history: TableSchema, *others: Any) -> Lift | None:
        if history.table.name == "t__history":
            raise NotLiftable("no such step")
        return followed(history, *others)

    with monkeypatch.context() as patch:
        patch.setattr(history_writing, "followed", refuse)
        pipe.sql("ALTER TABLE t ADD z INT", "INSERT INTO other VALUES (1)", "UPDATE t SET z = 1")
        pipe.run()
    [said] = pipe.seen(Undelivered)
    assert "t__history cannot be written on (NotLiftable: no such step); drop it" in str(said)
    assert pipe.rows("other") == [(1,)]
    with catalog_of(pipe.config.target) as catalog:
        catalog.drop_table((pipe.database, "t__history"))
    pipe.sql("UPDATE t SET z = 2")
    pipe.run()
    assert [row["z"] for row in versions(pipe) if row["is_current"]] == [2]
    pipe.assert_equal("t")


def test_another_table_of_that_name_stops_the_history_alone(pipe: Pipe) -> None:
    """The copy goes on, and the run says so."""
    with_history(pipe)
    pipe.sql(TABLE, "INSERT INTO t VALUES (1, 'a', 1, '')", "CREATE TABLE t__history (id INT PRIMARY KEY)")
    pipe.run()
    [said] = [one for one in pipe.seen(Undelivered) if "t__history is a table of the source" in str(one)]
    assert said.what == "history" if hasattr(said, "what") else True
    assert pipe.rows("t") == [(1, "a", 1, "")]


def test_many_changes_are_several_commits(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with a transaction; a transaction of more changes than a commit takes is in one, up to a limit."""
    monkeypatch.setattr(history_writing, "CHANGES", 7)
    recorder = begun(pipe, 4)
    for _ in range(15):
        recorder.change()
    recorder.transaction("UPDATE t SET v = v + 1", "UPDATE t SET v = v + 1")
    pipe.run()
    recorder.assert_same_as(versions(pipe), 0)


def test_deleted_rows_that_stay_in_the_copy_end_in_the_history(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """With `deletes: soft`; TRUNCATE, after which such rows are compared, too."""
    pipe = pipe_on(mysql_server, chunk_rows=10, deletes="soft", metadata=["op", "position"])
    recorder = begun(pipe, 5)
    for _ in range(5):
        recorder.change()
    pipe.run()
    recorder.assert_same_as(versions(pipe), 0)
    recorder.ddl("TRUNCATE t")
    pipe.run()
    recorder.change()
    pipe.run()
    resnapshot(pipe)
    found = versions(pipe)
    recorder.assert_same_as(found, len(recorder.states) - 1)
    assert {row["ended_by"] for row in found} >= {"delete"}
    assert len(pipe.rows("t")) >= 20


@pytest.mark.formats
@pytest.mark.long("a page's queries; those of another page run each time")
def test_the_queries_of_the_page_give_what_it_says(pipe: Pipe) -> None:
    """As of a time and of a position, the present rows, who changed what, and what was deleted."""
    recorder = begun(pipe, 6)
    recorder.transaction("UPDATE t SET v = 100 WHERE id < 3", "DELETE FROM t WHERE id = 4")
    recorder.transaction("UPDATE t SET v = 200 WHERE id = 1", "INSERT INTO t VALUES (50, 'b', 5, '')")
    pipe.run()
    history = TableId(pipe.database, "t__history")
    shown(pipe.spark, pipe.config.target, history).createOrReplaceTempView("orders_history")
    pipe.spark.conf.set("spark.sql.session.timeZone", "UTC")
    state = recorder.states[1]
    moment = (EPOCH + timedelta(seconds=state.after)).isoformat(sep=" ")
    texts = {
        "lake.shop.orders__history": "orders_history",
        "price": "v",
        "2026-11-30 12:00:00+00:00": moment,
        "2026-11-30 13:00:00+00:00": "2100-01-01 00:00:00+00:00",
        "000001.0000000007.00000000000000001234": state.place,
    }
    page = Path("docs/howto/history.md").read_text()
    queries = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    for old, new in texts.items():
        queries = [query.replace(old, new) for query in queries]
    by_time, by_position, present, changes, _ = (
        [tuple(row) for row in pipe.spark.sql(one).collect()] for one in queries
    )
    then = sorted((dict(row)["id"], dict(row)["v"]) for row in state.rows)
    assert sorted(by_time) == sorted(by_position) == then
    assert sorted(present) == sorted(query(pipe.connection, "SELECT id, v FROM t"))
    of_one = [(value, before) for id_, *_, value, before in changes if id_ == 1]
    assert of_one == [(1, None), (100, 1), (200, 100)]
    since_begin = queries[4].replace(moment, "2000-01-01 00:00:00+00:00")
    [(id_, value, _, why, _)] = [tuple(row) for row in pipe.spark.sql(since_begin).collect()]
    assert (id_, value, why) == (4, 4, "delete")
