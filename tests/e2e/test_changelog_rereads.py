"""The changelog of a table whose rows are read again: replayed from anywhere, it gives what the lake has."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from lakeingest import Pipeline
from lakeingest.commands.repair import repair
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.spool.reread_files import FOLDER
from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.e2e.signalled import soon
from tests.e2e.test_changelog import KEY, following, keeping, lines, ops, position, replayed, source
from tests.e2e.test_resnapshot import read_again
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40) NOT NULL, n DECIMAL(6,2))"


def filled(pipe: Pipe) -> Pipe:
    """A table of 60 rows that is copied, and has some changes since."""
    keeping(pipe, 7 * 86_400)
    pipe.sql(TABLE, f"INSERT INTO t VALUES {', '.join(f'({n}, {n}, {n})' for n in range(60))}")
    pipe.run()
    pipe.sql("UPDATE t SET v = 'changed' WHERE id IN (5, 6, 50)", "DELETE FROM t WHERE id = 51")
    pipe.run()
    return pipe


@pytest.fixture
def copied(pipe: Pipe) -> Pipe:
    """Such a table."""
    return filled(pipe)


def lose(pipe: Pipe) -> None:
    """Changed, deleted and new rows that are not in the binlog."""
    pipe.unlogged(
        "UPDATE t SET v = 'lost' WHERE id IN (5, 25, 45)",
        "DELETE FROM t WHERE id IN (6, 26, 46)",
        "INSERT INTO t VALUES (70, 'new', 7), (71, 'new', NULL)",
    )


def resnapshot(pipe: Pipe, **scope: Any) -> None:
    """Read these rows again, and wait until they are published."""
    [done] = Pipeline(pipe.config, pipe.spark).resnapshot(f"{pipe.database}.t", **scope)
    assert done.state == "done"


def end(pipe: Pipe) -> str:
    """The position of a reader that has read all that is spooled, and nothing that was read again."""
    held = StoredChangelog(pipe.state / "spool").held()
    assert held is not None
    return str(ReadTo(held.end.place, log=held.name))


class Readers:
    """Readers that stopped at these positions, in both formats; each goes on, and has the rows of the copy then."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        printed = lines(pipe)
        events = lines(pipe, form="debezium-json")
        self.stopped: list[tuple[str | None, replay.Rows, replay.Rows]] = [(None, {}, {})]
        for at in (position(printed[20]), position(printed[-2]), position(printed[-1]), end(pipe)):
            rows = replay.flink([one for one in printed if position(one) <= at], KEY, strict=False)
            read = [one for one in events if json.loads(one)["payload"]["source"]["sequence"] <= at]
            self.stopped.append((at, rows, replay.debezium(read, KEY)))

    def assert_equal(self, rows: list[tuple[Any, ...]]) -> None:
        """Each of them has these rows in the end."""
        for at, flink, debezium in self.stopped:
            rest = lines(self.pipe, since=at)
            assert replayed(rest, dict(flink), strict=False) == rows, at
            events = lines(self.pipe, since=at, form="debezium-json")
            left = replay.debezium(events, KEY, dict(debezium), strict=False)
            assert sorted(tuple(row.values()) for row in left.values()) == rows, at
        assert lines(self.pipe, since=position(rest[-1])) == []
        assert lines(self.pipe, since=position(rest[-2])) == rest[-1:]


@pytest.mark.formats
@pytest.mark.long("several runs in a row; other tests have each step")
def test_rows_that_were_read_again_are_in_the_changelog(copied: Pipe) -> None:
    """Keys, a range and the whole table: a reader from the beginning, from any position, and from the spool's end."""
    readers = Readers(copied)
    lose(copied)
    resnapshot(copied, keys=[5, 6, 71, 9999])
    rows = copied.rows("t")
    assert {5: "lost", 25: "25"}.items() <= {row[0]: row[1] for row in rows}.items()
    readers.assert_equal(rows)
    resnapshot(copied, from_=20, to=30)
    resnapshot(copied)
    assert copied.rows("t") == source(copied)
    readers.assert_equal(source(copied))
    copied.sql("UPDATE t SET v = 'later' WHERE id IN (5, 70)", "INSERT INTO t VALUES (6, 'back', 1)")
    copied.run()
    readers.assert_equal(source(copied))


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_repair_is_in_the_changelog(copied: Pipe) -> None:
    """What `verify --repair` reads again; a reader that was at the end gets these rows and nothing else."""
    at = end(copied)
    reader = replay.flink(lines(copied), KEY)
    lose(copied)
    [done] = repair(copied.config, [f"{copied.database}.t"], copied.spark)
    assert done.equal
    printed = lines(copied, since=at)
    assert sorted(json.loads(line)["data"]["id"] for line in printed) == [5, 6, 25, 26, 45, 46, 70, 71]
    assert replayed(printed, reader, strict=False) == source(copied)


@pytest.mark.long("several runs in a row; other tests have each step")
def test_changes_while_rows_are_read_again_win(any_pipe: Pipe) -> None:
    """Of the same keys, after their row was read and before the merge, and those that come after it.

    On MariaDB the place of the next transaction is one byte after the stop of the merge.
    """
    pipe = filled(any_pipe)
    readers = Readers(pipe)
    lose(pipe)
    turn = iter(range(1, 1000))

    def write() -> None:
        n = next(turn)
        pipe.sql(
            f"UPDATE t SET v = 'logged {n}' WHERE id < 30",
            f"INSERT INTO t VALUES ({1000 + n}, 'later', 1)",
            f"DELETE FROM t WHERE id IN (70, {n * 7})",
            f"UPDATE t SET id = id + 2000 WHERE id = {n * 5}",
        )

    read_again(pipe, "t", WHOLE, between=write)
    pipe.run()
    assert pipe.rows("t") == source(pipe)
    readers.assert_equal(source(pipe))


@pytest.mark.long("whole runs")
def test_lines_of_rows_that_were_read_again(copied: Pipe) -> None:
    """+I of a row, -D with the key alone; a read and a delete in Debezium's form; each with its position, in order."""
    at = end(copied)
    copied.unlogged("UPDATE t SET v = 'lost' WHERE id = 5", "DELETE FROM t WHERE id = 6")
    resnapshot(copied, keys=[5, 6])
    docs = [json.loads(line, parse_float=Decimal) for line in lines(copied, since=at)]
    place, _, log = at.partition(".end-")
    assert docs == [
        {
            "op": op,
            "data": data,
            "position": f"{place}.reread.{number:010d}-{log}",
            "committed_at": None,
            "gtid": None,
        }
        for number, (op, data) in enumerate(
            [("+I", {"id": 5, "v": "lost", "n": Decimal("5.00")}), ("-D", {"id": 6, "v": None, "n": None})]
        )
    ]
    events = [json.loads(line) for line in lines(copied, since=at, form="debezium-json")]
    payloads = [one["payload"] for one in events]
    assert [one["op"] for one in payloads] == ["r", "d"]
    assert (payloads[0]["before"], payloads[0]["after"]["v"]) == (None, "lost")
    assert (payloads[1]["before"], payloads[1]["after"]) == ({"id": 6, "v": None, "n": None}, None)
    source = payloads[0]["source"]
    assert (source["snapshot"], source["gtid"], source["sequence"]) == ("incremental", None, docs[0]["position"])
    assert source["ts_ms"] > 1_700_000_000_000
    optional = [{one["field"]: one["optional"] for one in event["schema"]["fields"][0]["fields"]} for event in events]
    assert optional == [{"id": False, "v": False, "n": True}, {"id": False, "v": True, "n": True}]
    rows = [
        row for one in Pipeline(copied.config).changelog(f"{copied.database}.t", since=at) for row in one.to_pylist()
    ]
    assert [(row["_lakeingest_op"], row["id"], row["v"], row["_lakeingest_committed_at"]) for row in rows] == [
        ("+I", 5, "lost", None),
        ("-D", 6, None, None),
    ]
    assert [row["_lakeingest_position"] for row in rows] == [doc["position"] for doc in docs]


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_other_kinds_of_since_reach_rows_that_were_read_again(copied: Pipe) -> None:
    """GTIDs, a place of the binlog, and a time after the last transaction: these rows come after all of them."""
    lose(copied)
    gtids = query(copied.connection, "SELECT @@global.gtid_executed")[0][0].replace("\n", "")
    resnapshot(copied)
    wanted = lines(copied, since=end(copied))
    assert len(wanted) == len([5, 25, 45, 6, 26, 46, 70, 71])
    held = StoredChangelog(copied.state / "spool").held()
    assert held is not None
    for since in (gtids, str(held.end.at), "0s"):
        assert lines(copied, since=since) == wanted, since


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_row_that_is_marked_as_deleted_goes_with_its_last_values(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """With `deletes: soft` the copy keeps the row; the changelog is that of the source's table."""
    pipe = filled(pipe_on(mysql_server, chunk_rows=10, deletes="soft"))
    readers = Readers(pipe)
    at = end(pipe)
    lose(pipe)
    resnapshot(pipe)
    readers.assert_equal(source(pipe))
    gone = [json.loads(line)["data"] for line in lines(pipe, since=at) if json.loads(line)["op"] == "-D"]
    assert sorted((row["id"], row["v"]) for row in gone) == [(6, "changed"), (26, "26"), (46, "46")]


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_merge_that_ends_before_its_commit_is_made_again(copied: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in the changelog before they are in the copy; changes that come meanwhile win."""
    readers = Readers(copied)
    lose(copied)

    class Killed(Exception):
        """The end of a run in between."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("lakeingest.lake.iceberg.target.IcebergTarget.commit_merge", killed)
        with pytest.raises(Killed):
            resnapshot(copied, keys=[5, 6, 25, 26, 45, 46, 70, 71])
    assert {5: "changed", 25: "25"}.items() <= {row[0]: row[1] for row in copied.rows("t")}.items()
    readers.assert_equal(source(copied))
    copied.sql("UPDATE t SET v = 'logged' WHERE id IN (5, 26)", "DELETE FROM t WHERE id = 45")
    copied.run()
    assert copied.rows("t") == source(copied)
    readers.assert_equal(source(copied))


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_rows_that_were_read_again_stay_as_long_as_changes(copied: Pipe) -> None:
    """Without any time to keep changes they go with the next ones: no reader can be before them."""
    keeping(copied, 0)
    lose(copied)
    resnapshot(copied)
    at, folder = end(copied), copied.state / "spool" / FOLDER
    assert lines(copied, since=at)
    assert replayed(lines(copied), strict=False) == source(copied)
    copied.sql("UPDATE t SET v = 'later' WHERE id = 5")
    copied.run()
    assert everything(folder) == []
    assert replayed(lines(copied)) == source(copied)


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_reader_that_follows_gets_rows_that_were_read_again(copied: Pipe) -> None:
    """All the while, also where the binlog stands still; each line once."""
    with following(copied) as got:
        for number in range(1, 4):
            lose(copied) if number == 1 else copied.unlogged(f"UPDATE t SET v = 'lost {number}' WHERE id = 9")
            resnapshot(copied, **({} if number < 3 else {"keys": [9]}))
            soon(lambda: replayed(list(got), strict=False) == source(copied))
            if number == 2:
                copied.sql("UPDATE t SET v = 'logged' WHERE id = 11")
    names = [position(line) for line in got[60:]]
    assert len(set(names)) == len(names)
    assert names == sorted(names)
    assert set(ops(got)) == {"+I", "-U", "+U", "-D"}
