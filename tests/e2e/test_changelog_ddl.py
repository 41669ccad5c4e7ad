"""The changelog across DDL: a line of its own, rows before it with the old columns, rows after it with the new ones."""

import json
from typing import Any

import pytest

from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import KEY, keeping, lines, ops, position, source

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

DDL = {
    "truncate": ["TRUNCATE t"],
    "swap of names": ["ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v"],
    "a default": ["ALTER TABLE t ADD z INT DEFAULT 4"],
    "drop and add": ["ALTER TABLE t DROP w", "ALTER TABLE t ADD w INT DEFAULT 7"],
    "key": ["ALTER TABLE t RENAME COLUMN id TO no"],
    "several": ["ALTER TABLE t ADD a VARCHAR(9) NOT NULL DEFAULT 'ä' FIRST", "ALTER TABLE t MODIFY v BIGINT, DROP w"],
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


def assert_every_prefix_leads_to(pipe: Pipe, rows: list[tuple[Any, ...]]) -> None:
    """A reader that stopped anywhere has these rows when it has read on, in both formats."""
    printed, events = lines(pipe), lines(pipe, form="debezium-json")
    for at in range(len(printed) + 1):
        before, since = printed[:at], position(printed[at - 1]) if at else None
        if since is not None and ".rows-" in since:
            continue  # within a copy, which is sent again
        rest = lines(pipe, since=since)
        assert rest == printed[at:] or not at
        read = replay.flink(before, KEY)
        found = replay.flink(rest, replay.key_after(before, KEY), read)
        assert sorted(tuple(row.values()) for row in found.values()) == rows, since
    for at in range(len(events) + 1):
        read, key = replay.debezium(events[:at], KEY), KEY
        for one in events[:at]:
            changes = json.loads(one)["payload"].get("tableChanges")
            key = tuple(changes[0]["table"]["primaryKeyColumnNames"]) if changes else key
        since = debezium_position(events[at - 1]) if at else None
        if since is None or ".rows-" not in since:
            found = replay.debezium(lines(pipe, since=since, form="debezium-json"), key, read)
            assert sorted(tuple(row.values()) for row in found.values()) == rows, since


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
@pytest.mark.parametrize("ddl", DDL.values(), ids=DDL)
def test_rows_have_the_old_columns_before_ddl_and_the_new_ones_after_it(pipe: Pipe, ddl: list[str]) -> None:
    """Right after the run that follows it, one run later, and with changes after it."""
    copied(pipe)
    pipe.sql("INSERT INTO t VALUES (5, 5, 55)", "UPDATE t SET v = 3 WHERE id = 2", *ddl)
    for more in (
        (),
        (),
        ("INSERT INTO t SELECT * FROM (SELECT * FROM t LIMIT 0) AS none",),
        ("DELETE FROM t LIMIT 1",),
    ):
        pipe.sql(*more)
        pipe.run()
        assert_every_prefix_leads_to(pipe, source(pipe))
    kinds = ops(lines(pipe))
    assert [kind for kind in kinds if kind in {"DDL", "TRUNCATE"}] == (
        ["TRUNCATE"] if ddl == DDL["truncate"] else ["DDL"] * len(ddl)
    )
