"""The changelog across DDL: a line of its own, rows before it with the old columns, rows after it with the new ones."""

import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest

from lakeingest import Pipeline
from lakeingest.commands.feed import feed
from lakeingest.commands.run import run
from lakeingest.commands.status import status
from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ApprovalNeeded, ChangelogGone
from lakeingest.mysql.connection import query
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.state.definition import _keep, definition
from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import KEY, keeping, lines, ops, position, replayed, source

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

DDL = {
    "swap of names": ["ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v"],
    "drop and add": ["ALTER TABLE t DROP w", "ALTER TABLE t ADD w INT DEFAULT 7"],
    "truncate": ["TRUNCATE t"],
    "a default": ["INSERT INTO t (id) VALUES (9)", "ALTER TABLE t ADD z INT DEFAULT 4"],  # no row, no known value
    "key": ["ALTER TABLE t RENAME COLUMN id TO no"],
    "several": ["ALTER TABLE t ADD a VARCHAR(9) NOT NULL DEFAULT 'ä' FIRST", "ALTER TABLE t MODIFY v BIGINT"],
}
WEEK = 7 * 86_400


def copied(pipe: Pipe, seconds: float = WEEK) -> Pipe:
    """A table of two rows that is published, and keeps changes for so long."""
    keeping(pipe, seconds)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 1, 11), (2, 2, 22)")
    pipe.run()
    return pipe


def debezium_position(line: str) -> str:
    """What `--since` takes to go on after an event."""
    return str(json.loads(line)["payload"]["source"]["sequence"])


def key_of_copy(printed: list[str]) -> tuple[str, ...]:
    """The key of the rows that a reader begins with: where no change from before the DDL is held, its new name."""
    return KEY if not printed or "id" in json.loads(printed[0])["data"] else ("no",)


def assert_every_prefix_leads_to(pipe: Pipe, rows: list[tuple[Any, ...]]) -> None:
    """A reader that stopped anywhere has these rows when it has read on, in both formats."""
    printed, events = lines(pipe), lines(pipe, form="debezium-json")
    first = key_of_copy(printed)
    for at in range(len(printed) + 1):
        before, since = printed[:at], position(printed[at - 1]) if at else None
        if since is not None and ".rows-" in since:
            continue  # within a copy, which is sent again
        rest = lines(pipe, since=since)
        assert rest == printed[at:] or not at
        read = replay.flink(before, first)
        found = replay.flink(rest, replay.key_after(before, first), read)
        assert sorted(tuple(row.values()) for row in found.values()) == rows, since
    for at in range(len(events) + 1):
        read, key = replay.debezium(events[:at], first), first
        for one in events[:at]:
            changes = json.loads(one)["payload"].get("tableChanges")
            key = tuple(changes[0]["table"]["primaryKeyColumnNames"]) if changes else key
        since = debezium_position(events[at - 1]) if at else None
        if since is None or ".rows-" not in since:
            found = replay.debezium(lines(pipe, since=since, form="debezium-json"), key, read)
            assert sorted(tuple(row.values()) for row in found.values()) == rows, since


@pytest.mark.formats
@pytest.mark.long("several runs in a row; other tests have each step")
def test_rows_have_the_old_columns_before_ddl_and_the_new_ones_after_it(pipe: Pipe) -> None:
    """Right after the run that follows it, one run later, and with changes after it, from wherever a reader goes on."""
    copied(pipe)
    pipe.sql("INSERT INTO t VALUES (5, 5, 55)", "UPDATE t SET v = 3 WHERE id = 2")
    for statements in DDL.values():  # a run each: the source tells the default of a column while it has the column
        pipe.sql(*statements)
        pipe.run()
    assert_every_prefix_leads_to(pipe, source(pipe))
    kinds = [kind for kind in ops(lines(pipe)) if kind in {"DDL", "TRUNCATE"}]
    assert kinds == ["DDL", "DDL", "DDL", "TRUNCATE", "DDL", "DDL", "DDL", "DDL"]
    names = ", ".join(row[0] for row in query(pipe.connection, "SHOW COLUMNS FROM t"))
    pipe.run()
    pipe.sql(f"INSERT INTO t ({names}) VALUES ('a', 1, 2, 3, 4)", "UPDATE t SET v = 4")
    pipe.run()
    assert_every_prefix_leads_to(pipe, source(pipe))


@pytest.mark.formats
@pytest.mark.long("several runs of each DDL")
@pytest.mark.parametrize("seconds", [WEEK, 0])
@pytest.mark.parametrize("ddl", DDL.values(), ids=DDL)
def test_the_changelog_is_that_of_the_copy_right_after_ddl(pipe: Pipe, ddl: list[str], seconds: float) -> None:
    """Until the next change of the table, and after it; however long changes are kept."""
    copied(pipe, seconds)
    pipe.sql("INSERT INTO t VALUES (5, 5, 55)", *ddl)
    for more in ((), (), ("DELETE FROM t LIMIT 1",)):
        pipe.sql(*more)
        pipe.run()
        assert_every_prefix_leads_to(pipe, source(pipe))


@pytest.mark.long("whole runs")
def test_lines_of_ddl(pipe: Pipe) -> None:
    """What it changed, in each form; a row before it has the old columns, and one after it the new ones."""
    copied(pipe)
    statement = "ALTER TABLE t ADD z VARCHAR(9) DEFAULT 'ä''b' FIRST, RENAME COLUMN w TO x"
    pipe.sql("UPDATE t SET v = 9 WHERE id = 1", statement, "UPDATE t SET x = 7 WHERE id = 1")
    pipe.run()
    pipe.sql("TRUNCATE t")
    pipe.run()
    *_, before, ddl, _, after, truncate = docs = [json.loads(line) for line in lines(pipe)]
    assert [before["data"], after["data"]] == [{"id": 1, "v": 9, "w": 11}, {"z": "ä'b", "id": 1, "v": 9, "x": 7}]
    [server] = query(pipe.connection, "SELECT @@server_uuid")[0]
    assert {name: ddl[name] for name in ("op", "data", "statement", "key", "columns")} == {
        "op": "DDL",
        "data": None,
        "statement": statement,
        "key": ["id"],
        "columns": [
            {"name": "z", "type": "varchar(9)", "nullable": True, "was": None, "fill": "ä'b"},
            {"name": "id", "type": "int", "nullable": False, "was": "id"},
            {"name": "v", "type": "int", "nullable": True, "was": "v"},
            {"name": "x", "type": "int", "nullable": True, "was": "w"},
        ],
    }
    assert ddl["gtid"] is None or ddl["gtid"].startswith(server)
    assert before["committed_at"] <= ddl["committed_at"] <= after["committed_at"]
    assert (truncate["op"], truncate["data"], truncate["statement"]) == ("TRUNCATE", None, "TRUNCATE t")
    positions = [doc["position"] for doc in docs[1:]]
    assert positions == sorted(set(positions))

    events = [json.loads(line) for line in lines(pipe, form="debezium-json")]
    *_, changed, updated, emptied = [one["payload"] for one in events]
    assert (changed["ddl"], changed["databaseName"]) == (statement, pipe.database)
    [table] = changed["tableChanges"]
    assert (table["type"], table["id"]) == ("ALTER", f'"{pipe.database}"."t"')
    assert [one["typeExpression"] for one in table["table"]["columns"]] == ["varchar(9)", "int", "int", "int"]
    assert [one["previousName"] for one in table["table"]["columns"]] == [None, "id", "v", "w"]
    assert changed["fill"] == {"z": "ä'b"}
    assert changed["source"]["sequence"] == ddl["position"]
    assert (updated["op"], updated["before"]["x"], updated["after"]["x"]) == ("u", 11, 7)
    assert (emptied["op"], emptied["before"], emptied["after"]) == ("t", None, None)

    batches = list(Pipeline(pipe.config).changelog(f"{pipe.database}.t"))
    [one] = [batch for batch in batches if batch["_lakeingest_op"].to_pylist() == ["DDL"]]
    assert one.schema.names[4:] == ["z", "id", "v", "x"]
    assert one["_lakeingest_position"].to_pylist() == [ddl["position"]]
    assert json.loads(one.schema.metadata[b"lakeingest.ddl"]) == ddl


@pytest.mark.long("whole runs")
def test_a_table_that_waits_before_ddl_can_be_read_up_to_there(pipe: Pipe) -> None:
    """With the columns of before, however long changes are kept; it goes on once the copy follows."""
    copied(pipe, 0)
    pipe.config = pipe.config.model_copy(update={"schema_changes": SchemaChanges(changes="approve")})
    pipe.sql("UPDATE t SET v = 9 WHERE id = 1")
    rows = source(pipe)
    pipe.sql("ALTER TABLE t ADD z INT DEFAULT 4", "UPDATE t SET z = 5 WHERE id = 2")
    with pytest.raises(ApprovalNeeded):
        pipe.run()
    printed = lines(pipe)
    assert replayed(printed) == rows
    assert lines(pipe, since=position(printed[-1])) == []
    pipe.config = pipe.config.model_copy(update={"schema_changes": SchemaChanges()})
    keeping(pipe, WEEK)
    pipe.run()
    rest = lines(pipe, since=position(printed[-1]))
    assert ops(rest) == ["DDL", "-U", "+U"]
    assert replayed(rest, replay.flink(printed, KEY)) == source(pipe)


@pytest.mark.long("whole runs")
def test_a_time_before_the_copy_begins_with_the_copy(pipe: Pipe) -> None:
    """All rows, also where nothing was changed for longer; a time after it begins with the changes."""
    copied(pipe)
    assert ops(lines(pipe, since="2h")) == ["+I"] * 2
    assert ops(lines(pipe, since="2020-01-01")) == ["+I"] * 2
    time.sleep(1.1)  # the first publish is known to the second
    now = datetime.now(UTC).isoformat()
    pipe.sql("UPDATE t SET v = 9")
    pipe.run()
    assert ops(lines(pipe, since=now)) == ["-U", "+U"] * 2
    assert ops(lines(pipe, since="2h")) == ["+I"] * 2 + ["-U", "+U"] * 2


@pytest.mark.long("whole runs")
@pytest.mark.local("removes files of the state folder")
def test_a_spool_that_lost_files_is_read_from_the_position_that_is_named(pipe: Pipe) -> None:
    """From the beginning too: a later version of the copy needs none of them."""
    copied(pipe)
    printed = lines(pipe)
    for number in range(3):
        pipe.sql(f"UPDATE t SET v = 100 + {number}")
        pipe.run()
    found = StoredChangelog(pipe.state / "spool").held()
    assert found is not None
    table = TableId(pipe.database, "t")
    lost = [entry for one in found.segments if (entry := one.tables[table])][1]
    (pipe.state / "spool" / lost[0]).delete()
    with pytest.raises(ChangelogGone, match="the oldest position is") as gone:
        lines(pipe, since=position(printed[-1]))
    [oldest] = re.findall(r"the oldest position is (\S+);", str(gone.value))
    assert ops(lines(pipe, since=oldest)) == ["-U", "+U"] * 2
    whole = lines(pipe)
    assert ops(whole)[:2] == ["+I"] * 2
    assert replayed(whole) == source(pipe)


@pytest.mark.long("whole runs")
@pytest.mark.formats
def test_a_database_with_a_dot_has_a_changelog(pipe: Pipe) -> None:
    """Its tables are named as SQL quotes them."""
    copied(pipe)
    name = f"{pipe.database}.x"
    tables = pipe.config.tables.model_copy(update={"include": (f"re:`{re.escape(name)}`\\..*",)})
    pipe.config = pipe.config.model_copy(update={"tables": tables, "state": pipe.config.state / "dotted"})
    pipe.sql(f"CREATE DATABASE `{name}`", f"CREATE TABLE `{name}`.t (id INT PRIMARY KEY)")
    pipe.sql(f"INSERT INTO `{name}`.t VALUES (1)")
    try:
        run(pipe.config, [f"`{name}`.`t`"], spark=pipe.spark)
        for named in (f"`{name}`.t", f"`{name}`.`t`"):
            out = BytesIO()
            feed(pipe.config, named, "changelog-json", out)
            assert [json.loads(line)["data"] for line in out.getvalue().splitlines()] == [{"id": 1}]
            assert [one.state for one in status(pipe.config, [named], offline=True)] == ["published"]
    finally:
        pipe.sql(f"DROP DATABASE `{name}`")


@pytest.mark.long("several runs in a row; other tests have each step")
def test_what_an_earlier_version_stored_is_read_by_the_definition_of_before_ddl(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files do not say by which definition their rows were read; nor does it keep the time of the first publish."""
    with monkeypatch.context() as patched:
        patched.setattr("lakeingest.spool.segment_files.stored", lambda fields, _: fields)
        copied(pipe)
        pipe.sql("UPDATE t SET v = 3 WHERE id = 1")
        pipe.run()
    known = definition(pipe.state, TableId(pipe.database, "t"))
    assert known is not None
    _keep(pipe.state, replace(known, first_at=None))
    assert ops(lines(pipe)) == ops(lines(pipe, since="2h")) == ["+I", "+I", "-U", "+U"]
    pipe.sql(*DDL["swap of names"], "UPDATE t SET v = 7 WHERE id = 2")
    pipe.run()
    assert_every_prefix_leads_to(pipe, source(pipe))
