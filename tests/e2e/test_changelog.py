"""The changelog: replayed into an empty table it gives the source's, from wherever a reader begins."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakeingest import Pipeline
from lakeingest.commands.changelog import changelog_of
from lakeingest.commands.changelog_json import ChangelogJson
from lakeingest.commands.feed import feed
from lakeingest.config.changelog import Changelog as Settings
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ChangelogGone, UsageError
from lakeingest.mysql.connection import query, written_position
from lakeingest.pipeline.events import Event, WaveCommitted
from lakeingest.spool import archive
from lakeingest.spool.changelog import StoredChangelog
from tests.e2e import replay
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, soon
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

KEY = ("id",)


def keeping(pipe: Pipe, seconds: float) -> None:
    """Let the pipeline keep changes for so long."""
    settings = Settings.model_construct(keep=timedelta(seconds=seconds), table=False)
    pipe.config = pipe.config.model_copy(update={"changelog": settings})


def lines(pipe: Pipe, table: str = "t", since: str | None = None, form: str = "changelog-json") -> list[str]:
    """What the command prints."""
    out = BytesIO()
    feed(pipe.config, f"{pipe.database}.{table}", form, out, since)
    return out.getvalue().decode().splitlines()


def ops(printed: Sequence[str]) -> list[str]:
    """The kinds of rows."""
    return [str(json.loads(line)["op"]) for line in printed]


def position(line: str) -> str:
    """What `--since` takes to go on after a line."""
    return str(json.loads(line)["position"])


def source(pipe: Pipe, table: str = "t") -> list[tuple[Any, ...]]:
    """The rows of the source, sorted."""
    return sorted(query(pipe.connection, f"SELECT * FROM {table}"))


def replayed(printed: Sequence[str], rows: replay.Rows | None = None, *, strict: bool = True) -> list[tuple[Any, ...]]:
    """The rows that a reader has at the end, sorted."""
    return _rows(replay.flink(printed, KEY, rows, strict=strict))


def _rows(left: replay.Rows) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in left.values())


def change(pipe: Pipe) -> None:
    """A bit of everything."""
    pipe.sql(
        "BEGIN",
        "INSERT INTO t VALUES (9100, 'new'), (9101, 'gone soon')",
        "UPDATE t SET v = 'changed' WHERE id < 3",
        "COMMIT",
        "DELETE FROM t WHERE id IN (5, 9101)",
        "UPDATE t SET id = 9200 WHERE id = 7",
        "INSERT INTO t VALUES (5, 'back')",
    )


@pytest.fixture
def copied(pipe: Pipe) -> Pipe:
    """A table of 25 rows that is published."""
    keeping(pipe, 7 * 86_400)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(25))}",
    )
    pipe.run()
    return pipe


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_changelog_is_every_row_and_then_the_changes_in_order(copied: Pipe) -> None:
    """An update is -U and +U, a moved key too; positions ascend, and each change has its commit time and its GTID."""
    change(copied)
    copied.run()
    printed = lines(copied)
    assert ops(printed) == ["+I"] * 25 + ["+I"] * 2 + ["-U", "+U"] * 3 + ["-D"] * 2 + ["-U", "+U", "+I"]
    assert replayed(printed) == source(copied)
    docs = [json.loads(line) for line in printed]
    assert all(doc["position"] <= after["position"] for doc, after in pairwise(docs))
    assert len({doc["position"] for doc in docs}) == len(docs) - 23
    assert {(doc["committed_at"], doc["gtid"]) for doc in docs[:25]} == {(None, None)}
    server = query(copied.connection, "SELECT @@server_uuid")[0][0]
    assert all(doc["gtid"].startswith(server) for doc in docs[25:])
    since = [datetime.now(UTC) - datetime.fromisoformat(doc["committed_at"]) for doc in docs[25:]]
    assert all(timedelta(0) < age < timedelta(minutes=5) for age in since)
    assert docs[27]["data"] == {"id": 0, "v": None}
    assert docs[28]["data"] == {"id": 0, "v": "changed"}


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_without_any_time_to_keep_changes_it_is_the_rows_as_they_are(copied: Pipe) -> None:
    """Complete for any retention; what a reader that began earlier needs is gone, which an error names."""
    keeping(copied, 0)
    began = lines(copied)
    change(copied)
    copied.run()
    printed = lines(copied)
    assert ops(printed) == ["+I"] * len(source(copied))
    assert replayed(printed) == source(copied)
    with pytest.raises(ChangelogGone, match=r"\.t: the changes after .* the oldest position is 0{5}1\..*rows\.end-"):
        lines(copied, since=position(began[-1]))
    assert lines(copied, since=position(printed[-1])) == []


@pytest.mark.long("whole runs")
def test_changes_that_are_not_published_yet_are_in_it(copied: Pipe) -> None:
    """The end is that of the spool, which is ahead of what readers of the lake see where a gate failed."""
    change(copied)
    copied.sql("UPDATE t SET v = 'last' WHERE id = 1")
    copied.run()
    printed = lines(copied)
    # between any two lines, also within a transaction, and within the one that the spool ends with
    for at in (25, 26, 30, 31, 33, len(printed) - 2, len(printed) - 1):
        rows = replay.flink(printed[: at + 1], KEY)
        assert replayed(lines(copied, since=position(printed[at])), rows) == source(copied)
        assert lines(copied, since=position(printed[at])) == printed[at + 1 :]


@pytest.mark.long("whole runs")
def test_a_reader_that_ends_within_a_copy_gets_it_again(copied: Pipe) -> None:
    """Its lines say so by their position; rows that were deleted meanwhile do not stay."""
    keeping(copied, 7 * 86_400)
    printed = lines(copied)
    half = replay.flink(printed[:10], KEY)
    assert position(printed[9]).partition("-")[0].endswith(".rows")
    assert position(printed[-1]).partition("-")[0].endswith(".rows.end")
    change(copied)
    copied.run()
    rest = lines(copied, since=position(printed[9]))
    assert replayed(rest, half, strict=False) == source(copied)


@pytest.mark.long("whole runs")
def test_since_takes_times_and_positions_of_the_source(copied: Pipe) -> None:
    """A time, a duration, a GTID set, a file and its position; what is before all that is held is an error.

    A time before the first publish is the beginning: nobody can have read anything then.
    """
    change(copied)
    copied.run()
    between = datetime.now(UTC)
    at = written_position(copied.connection)
    gtids = query(copied.connection, "SELECT @@global.gtid_executed")[0][0].replace("\n", "")
    time.sleep(0.1)
    copied.sql("UPDATE t SET v = 'later' WHERE id = 10", "DELETE FROM t WHERE id = 11")
    copied.run()
    whole = lines(copied)
    for since in (between.isoformat(), between.strftime("%Y-%m-%dT%H:%M:%S.%f"), gtids, str(at)):
        assert lines(copied, since=since) == whole[-3:], since
    assert lines(copied, since="0s") == []
    for since in ("2020-01-01", "9w"):
        assert lines(copied, since=since) == whole, since
    for since in ("binlog.000000:5", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"):
        with pytest.raises(ChangelogGone, match="the oldest position is"):
            lines(copied, since=since)
    for since in ("yesterday", "binlog", "0-1-2"):
        with pytest.raises(UsageError, match=r"--since .*: wanted a position"):
            lines(copied, since=since)


def test_a_table_without_a_copy_has_no_changelog(pipe: Pipe) -> None:
    """Neither one that is not included nor one that no run has begun."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(UsageError):
        lines(pipe)


class Killed(Exception):
    """The end of a run in between."""


def killed_at_wave(pipe: Pipe, wave: int, between: Callable[[int], None] = lambda _: None) -> None:
    """A run of a table that is new, until so many waves are committed; `between` is called after each."""

    def watch(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            between(event.wave)
            if event.wave == wave:
                raise Killed

    with pytest.raises(Killed):
        pipe.run(observe=watch)


@pytest.mark.formats
@pytest.mark.long("waits for waves of a copy")
def test_a_table_in_its_bootstrap_has_the_rows_of_its_finished_splits(pipe: Pipe) -> None:
    """As of the spool's end; with what comes after the position a reader has the table once it is published."""
    keeping(pipe, 0)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(600))}",
    )
    seen = [(written_position(pipe.connection).place(1), source(pipe))]

    def write(wave: int) -> None:
        for statement in (
            f"UPDATE t SET v = 'wave {wave}' WHERE id % 5 = {wave}",
            f"DELETE FROM t WHERE id % 20 = {wave + 5}",
            f"INSERT INTO t VALUES ({1000 + len(seen)}, 'late'), (-{len(seen)}, 'early')",
            f"UPDATE t SET id = id + 2000 WHERE id IN ({wave + 30}, {wave + 170})",
        ):
            pipe.sql(statement)
            seen.append((written_position(pipe.connection).place(1), source(pipe)))

    killed_at_wave(pipe, 4, write)
    printed = lines(pipe)
    assert set(ops(printed)) == {"+I"}
    at = ReadTo.parse(position(printed[-1]))
    assert at.copying
    [*_, there] = [rows for place, rows in seen if place <= at.place]
    begun = replayed(printed)
    assert 20 <= len(begun) < len(there)
    assert begun == [row for row in there if row[0] <= begun[-1][0]]
    reader = replay.flink(printed, KEY)
    killed_at_wave(pipe, 5, write)
    while_copying = lines(pipe, since=position(printed[-1]))  # only changes: the table is not published yet
    assert "+U" in ops(while_copying)
    replay.flink(while_copying, KEY, reader, strict=False)
    pipe.run()
    write(2)
    pipe.run()
    late = {key: dict(row) for key, row in reader.items()}
    for since, rows in ((printed[-1], replay.flink(printed, KEY)), (while_copying[-1], late)):
        keeping_on = lines(pipe, since=position(since)) if held_from(pipe) <= position(since) else None
        assert keeping_on is None or replayed(keeping_on, rows, strict=False) == source(pipe)


def held_from(pipe: Pipe) -> str:
    """The oldest position that is held."""
    found = StoredChangelog(pipe.state / "spool").held()
    assert found is not None
    return str(found.stretch(TableId(pipe.database, "t")).start)


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_position_in_mid_bootstrap_leads_to_the_whole_table(pipe: Pipe, quiet: bool) -> None:  # noqa: FBT001
    """The changes, then every row at the first published position, then the changes after it; also of a quiet source.

    There the first published position is the one that the reader has.
    """
    keeping(pipe, 7 * 86_400)
    pipe.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'({n}, NULL)' for n in range(600))}",
    )

    def write(wave: int) -> None:
        if not quiet:
            pipe.sql(f"UPDATE t SET v = {wave} WHERE id % 5 = {wave}", f"DELETE FROM t WHERE id = {wave}")

    killed_at_wave(pipe, 3, write)
    printed = lines(pipe)
    debezium = lines(pipe, form="debezium-json")
    assert len(printed) >= 20
    write(4)
    pipe.run()
    rest = lines(pipe, since=position(printed[-1]))
    assert ops(rest)[-len(source(pipe)) :] == ["+I"] * len(source(pipe))
    assert replayed(rest, replay.flink(printed, KEY), strict=False) == source(pipe)
    assert lines(pipe, since=position(rest[-1])) == []
    change(pipe)
    pipe.run()
    later = lines(pipe, since=position(printed[-1]))
    assert later[: len(rest)] == rest
    assert replayed(later, replay.flink(printed, KEY), strict=False) == source(pipe)
    within = len(rest) - 5
    again = lines(pipe, since=position(rest[within]))
    reader = replay.flink([*printed, *rest[: within + 1]], KEY, strict=False)
    assert replayed(again, reader, strict=False) == source(pipe)
    rows = replay.debezium(debezium, KEY)
    answer = json.loads(debezium[-1])["payload"]["source"]["sequence"]
    replay.debezium(lines(pipe, since=answer, form="debezium-json"), KEY, rows)
    assert sorted(tuple(row.values()) for row in rows.values()) == source(pipe)


@pytest.mark.long("waits for waves of a copy")
def test_keys_that_only_the_server_can_order_come_when_the_table_is_published(pipe: Pipe) -> None:
    """Before that nobody can tell which of their changes a row has seen."""
    keeping(pipe, 7 * 86_400)
    pipe.sql(
        "CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO t VALUES {', '.join(f'(CONCAT(CHAR(65 + {n} % 26), {n}), {n})' for n in range(300))}",
    )
    killed_at_wave(pipe, 2)
    assert lines(pipe) == []
    pipe.run()
    pipe.sql("UPDATE t SET id = LOWER(id) WHERE v = '7'", "DELETE FROM t WHERE v = '9'")
    pipe.run()
    assert replayed(lines(pipe)) == source(pipe)


@contextmanager
def following(pipe: Pipe) -> Iterator[list[str]]:
    """The lines of a reader of `t` that follows while the block runs; the list grows meanwhile."""
    ended, got = list[str](), list[str]()

    def read() -> None:
        log = changelog_of(pipe.config, f"{pipe.database}.t")
        form = ChangelogJson(log.name)
        for part in log.read(follow=True, stopping=lambda: bool(ended)):
            got.extend(form.lines(part))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield got
        finally:
            ended.append("block")
        reader.result(timeout=30)


@pytest.mark.parametrize("seconds", [0, 86_400])
@pytest.mark.long("waits for several polls", only=("86400", "0"))
def test_a_reader_that_follows_gets_each_change_once(pipe: Pipe, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a run that follows, from before the table is copied on, while segments are archived and put together."""
    keeping(pipe, seconds)
    monkeypatch.setattr(archive, "JOIN", 4)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    pipe.run()

    def work() -> None:
        for n in range(25):
            pipe.sql(
                f"INSERT INTO t VALUES ({n + 10}, 'more')",
                f"UPDATE t SET v = {n} WHERE id = {n % 7 + 10}",
                f"DELETE FROM t WHERE id = {n + 5}",
            )
            time.sleep(0.3)
        wanted = source(pipe)
        soon(lambda: replayed(list(got)) == wanted)

    with following(pipe) as got:
        follow_while(pipe, work)
    assert replayed(got) == source(pipe)
    names = [position(line) for line in got[2:]]
    assert len(set(names)) == len(names)
    if not seconds:
        assert len(everything(pipe.state / "spool" / "data")) < 30


@pytest.mark.long("whole runs")
def test_arrow_batches_are_the_same_changelog(copied: Pipe) -> None:
    """For those who read it in Python; without Spark."""
    change(copied)
    copied.run()
    batches = list(Pipeline(copied.config).changelog(f"{copied.database}.t"))
    rows = [row for batch in batches for row in batch.to_pylist()]
    printed = [json.loads(line) for line in lines(copied)]
    assert [row["_lakeingest_op"] for row in rows] == [doc["op"] for doc in printed]
    assert [row["_lakeingest_position"] for row in rows] == [doc["position"] for doc in printed]
    assert [{"id": row["id"], "v": row["v"]} for row in rows] == [doc["data"] for doc in printed]
    assert {row["_lakeingest_committed_at"] is None for row in rows[25:]} == {False}
    rest = Pipeline(copied.config).changelog(f"{copied.database}.t", since=printed[-2]["position"])
    assert [row["id"] for batch in rest for row in batch.to_pylist()] == [5]


@pytest.mark.long("a stream of Spark starts for each batch")
def test_a_stream_of_spark_replays_it(copied: Pipe, tmp_path: Path) -> None:
    """Structured Streaming reads the lines as files and merges each batch of them into a table of its own."""
    folder, spark = tmp_path / "lines", copied.spark
    folder.mkdir()
    mine = f"lake.{copied.database}.replayed"
    spark.sql(f"CREATE TABLE {mine} (id INT, v STRING) USING iceberg")
    since = None
    for number in range(3):
        printed = lines(copied, since=since)
        (folder / f"{number}.json").write_text("\n".join(printed))
        since = position(printed[-1])
        change_again(copied, number)
        copied.run()

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("changes")
        batch.sparkSession.sql(
            f"""MERGE INTO {mine} AS t USING (
                SELECT op, data.* FROM (SELECT *, row_number() OVER (PARTITION BY data.id ORDER BY position DESC) AS n
                FROM changes) WHERE n = 1) AS s ON t.id = s.id
            WHEN MATCHED AND s.op IN ('-U', '-D') THEN DELETE
            WHEN MATCHED AND s.op NOT IN ('-U', '-D') THEN UPDATE SET t.v = s.v
            WHEN NOT MATCHED AND s.op NOT IN ('-U', '-D') THEN INSERT (id, v) VALUES (s.id, s.v)"""
        )

    for _ in range(2):
        stream = spark.readStream.schema("op STRING, data STRUCT<id: INT, v: STRING>, position STRING")
        writer = stream.option("maxFilesPerTrigger", 1).json(str(folder)).writeStream.foreachBatch(merge)
        writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()
        if _ == 0:
            (folder / "9.json").write_text("\n".join(lines(copied, since=since)))
    assert sorted(tuple(row) for row in spark.table(mine).collect()) == source(copied)
    spark.sql(f"DROP TABLE {mine}")


def change_again(pipe: Pipe, number: int) -> None:
    """Other rows each time."""
    pipe.sql(
        f"INSERT INTO t VALUES ({9300 + number}, 'new')",
        f"UPDATE t SET v = {number} WHERE id % 3 = {number}",
        f"DELETE FROM t WHERE id = {number + 8}",
    )


@pytest.mark.long("whole runs")
def test_debezium_events_give_the_table(copied: Pipe) -> None:
    """Rows of the copy are reads, an update is one event, one that moves a key is a delete and a create."""
    change(copied)
    copied.run()
    printed = lines(copied, form="debezium-json")
    payloads = [json.loads(line)["payload"] for line in printed]
    assert [one["op"] for one in payloads] == ["r"] * 25 + ["c"] * 2 + ["u"] * 3 + ["d"] * 2 + ["d", "c", "c"]
    assert [one["source"]["snapshot"] for one in payloads] == ["true"] * 24 + ["last"] + ["false"] * 10
    assert _rows(replay.debezium(printed, KEY)) == source(copied)
    update = payloads[27]
    assert (update["before"], update["after"]) == ({"id": 0, "v": None}, {"id": 0, "v": "changed"})
    answer = update["source"]
    assert (answer["db"], answer["table"], answer["name"]) == (copied.database, "t", copied.config.name)
    files = [row[0] for row in query(copied.connection, "SHOW BINARY LOGS")]
    assert answer["file"] in files
    assert lines(copied, since=answer["sequence"], form="debezium-json")[0].count('"op":"u"') == 1
    for number in range(25, len(printed)):  # a reader may stop after each line, also between those of a moved key
        since = payloads[number - 1]["source"]["sequence"]
        rest = lines(copied, since=since, form="debezium-json")
        assert [json.loads(line)["payload"]["op"] for line in rest] == [one["op"] for one in payloads[number:]]
        assert _rows(replay.debezium(rest, KEY, replay.debezium(printed[:number], KEY))) == source(copied)
