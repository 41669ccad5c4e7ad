"""`run --follow`: what the source writes is published as it comes, for as long as nobody stops it."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pydantic import SecretStr
from pymysql.constants import ER
from pyspark.sql import SparkSession

from lakeingest.commands.run import RunResult, run
from lakeingest.commands.status import status
from lakeingest.config import Config, Source
from lakeingest.config.place import Place
from lakeingest.config.tables import Tables
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.position import Place as BinlogPlace
from lakeingest.core.copies import due
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LeaseHeld, SourceAway
from lakeingest.files import file as files
from lakeingest.lake.formats import open_target
from lakeingest.mysql.connection import written_position
from lakeingest.pipeline.binlog import boundaries
from lakeingest.pipeline.events import Event, Following, Merged, Published, SourceLost, WaveCommitted
from lakeingest.pipeline.opening.opening import opened
from lakeingest.pipeline.rounds import away
from lakeingest.spool.spool import Spool
from lakeingest.state.lease import held, is_held
from tests.e2e.job import Job, until
from tests.e2e.pipe import Pipe
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

USER = "follower"  # of the run alone, so that a test can find its connections
SOON_SECONDS = 60.0


@pytest.fixture(scope="module")
def copied(
    mysql_server: LocalServer, lake_config: Config, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipe]:
    """A pipeline with two small tables that are copied, whose user is nobody else's."""
    server, name = mysql_server, "e2e_follow"
    source = Source(host=server.host, port=server.port, user=USER, password=SecretStr("secret"))
    tables = Tables(include=(f"{name}.*",))
    state = tmp_path_factory.mktemp("follow")
    config = lake_config.model_copy(update={"source": source, "tables": tables, "state": Place.of(state)})
    with pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    ) as connection:
        pipe = Pipe(config, name, connection, spark, [])
        pipe.sql(
            f"CREATE USER {USER} IDENTIFIED BY 'secret'",
            f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {USER}",
            f"CREATE DATABASE {name}",
            f"USE {name}",
            "CREATE TABLE busy (id INT PRIMARY KEY, v VARCHAR(40))",
            "CREATE TABLE quiet (id INT PRIMARY KEY)",
            "INSERT INTO busy VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "INSERT INTO quiet VALUES (1), (2)",
        )
        pipe.run()
        yield pipe
        pipe.sql(f"DROP DATABASE {name}", f"DROP USER {USER}")


@pytest.fixture
def shop(copied: Pipe) -> Pipe:
    """That pipeline, of which no event was seen yet."""
    copied.events.clear()
    return copied


def follow_while(pipe: Pipe, work: Callable[[], object]) -> RunResult:
    """A run that follows while the work is done, which begins when it has caught up. Spark is for the main thread."""
    ended = list[str]()

    def begin() -> None:
        try:
            soon(lambda: bool(pipe.seen(Following) or ended))
            assert not ended
            work()
        finally:
            ended.append("work")

    with ThreadPoolExecutor(1) as pool:
        worked = pool.submit(begin)
        try:
            return run(pipe.config, (), None, pipe.events.append, pipe.spark, follow=True, stopping=lambda: bool(ended))
        finally:
            ended.append("run")
            worked.result()


def soon(true: Callable[[], bool], seconds: float = SOON_SECONDS) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def shown(pipe: Pipe, table: str, place: BinlogPlace | None = None, seconds: float = SOON_SECONDS) -> None:
    """Wait until the table is published as of this place of the binlog (None: as of now), or later."""
    least = place or now(pipe)

    def is_it(event: Event) -> bool:
        match event:
            case Published() if event.table.name == table:
                return FilePosition.parse(event.position).place(1) >= least
        return False

    soon(lambda: any(map(is_it, pipe.events)), seconds)


def now(pipe: Pipe) -> BinlogPlace:
    """How far the binlog is written."""
    return written_position(pipe.connection).place(1)


@pytest.mark.long("whole runs")
def test_changes_are_published_as_they_come(shop: Pipe) -> None:
    """Inserts, updates, deletes and moved keys, also behind a rotation; nobody else may run meanwhile."""

    def work() -> None:
        shop.sql("INSERT INTO busy VALUES (4, 'd')", "UPDATE busy SET v = 'changed' WHERE id = 1")
        shown(shop, "busy")
        shop.sql("FLUSH BINARY LOGS", "DELETE FROM busy WHERE id = 2", "FLUSH BINARY LOGS")
        shop.sql("UPDATE busy SET id = 5 WHERE id = 3", "INSERT INTO quiet VALUES (3)")
        shown(shop, "busy")
        shown(shop, "quiet")
        with pytest.raises(LeaseHeld), held(shop.state):
            pass

    result = follow_while(shop, work)
    assert (result.caught_up, result.followed) == (True, True)
    assert all(table.published for table in result.tables)
    assert [row for row in shop.rows("busy") if row[0] in range(6)] == [(1, "changed"), (4, "d"), (5, "c")]
    assert (3,) in shop.rows("quiet")


@pytest.mark.long("follows for some seconds")
def test_publishes_are_as_far_apart_as_the_configuration_says(shop: Pipe) -> None:
    """Whatever the source writes meanwhile: the next round has all of it."""
    target = shop.config.target.model_copy(update={"publish_every": timedelta(seconds=3)})
    paced = replace(shop, config=shop.config.model_copy(update={"target": target}))
    published: list[int] = []

    def work() -> None:
        shop.sql("UPDATE busy SET v = 'paced' WHERE id = 1")
        shown(shop, "busy")
        shop.events.clear()
        for i in range(80):
            shop.sql(f"UPDATE busy SET v = 'paced {i}' WHERE id = 1")
            time.sleep(0.1)
        of_busy = [one for one in shop.events if isinstance(one, Published) and one.table.name == "busy"]
        published.append(len(of_busy))
        shown(shop, "busy")

    follow_while(paced, work)
    assert 2 <= published[0] <= 4  # in eight seconds
    assert (1, "paced 79") in shop.rows("busy")


@pytest.mark.long("follows for some seconds")
def test_the_waves_of_a_new_table_do_not_change_the_pace(pipe: Pipe) -> None:
    """Only the end of its first copy does: readers see the new table at once, and other tables as seldom as before."""
    pipe.sql("CREATE TABLE busy (id INT PRIMARY KEY, v INT)", "INSERT INTO busy VALUES (1, 0)")
    pipe.run()
    pipe.events.clear()
    target = pipe.config.target.model_copy(update={"publish_every": timedelta(hours=1)})
    paced = replace(pipe, config=pipe.config.model_copy(update={"target": target}))

    def work() -> None:
        values = ", ".join(f"({i}, {i})" for i in range(400))
        pipe.sql("CREATE TABLE later (id INT PRIMARY KEY, v INT)", f"INSERT INTO later VALUES {values}")
        deadline = time.monotonic() + SOON_SECONDS
        while not any(isinstance(one, Published) and one.table.name == "later" for one in pipe.events):
            assert time.monotonic() < deadline
            pipe.sql("UPDATE busy SET v = v + 1")
            time.sleep(0.05)

    follow_while(paced, work)
    waves = [one for one in pipe.events if isinstance(one, WaveCommitted) and one.table.name == "later"]
    of_busy = [one for one in pipe.events if isinstance(one, Published) and one.table.name == "busy"]
    assert len(waves) > 3
    assert len(of_busy) <= 2  # as the run begins to follow, and with the new table


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_run_that_follows_ends_when_its_time_is_up(shop: Pipe) -> None:
    """As a bounded one does, with what it has published; without time it does not even catch up."""
    result = run(shop.config, spark=shop.spark, follow=True, max_minutes=0)
    assert (result.caught_up, result.followed) == (False, True)
    began = time.monotonic()
    result = run(shop.config, spark=shop.spark, follow=True, max_minutes=0.1)
    assert time.monotonic() - began > 0.1 * 60
    assert result.caught_up


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_quiet_table_is_not_committed_while_another_one_is_busy(shop: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its position follows now and then, so that neither its lag nor the spool grows; that is no merge."""

    def version() -> int:
        staged = open_target(shop.config).inspect(TableId(shop.database, "quiet"))
        assert staged is not None
        return staged.version

    def work() -> None:
        before, commits = version(), len(shop.seen(Published))
        for i in range(3):
            shop.sql(f"INSERT INTO busy VALUES ({i + 10}, 'more')")
            shown(shop, "busy")
        assert len(shop.seen(Published)) == commits + 3
        assert version() == before
        monkeypatch.setattr(due, "QUIET_SECONDS", 0.5)
        shop.sql("INSERT INTO busy VALUES (20, 'last')")
        shown(shop, "busy")
        soon(lambda: not everything(shop.state / "spool" / "segments"))
        assert version() == before
        assert [one.lag_bytes for one in status(shop.config)] == [0, 0]

    follow_while(shop, work)
    merged = [event for event in shop.seen(Merged) if isinstance(event, Merged)]
    assert {event.table.name for event in merged if event.applied} == {"busy"}


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_run_whose_connections_are_killed_goes_on(shop: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again: it connects anew each time, and publishes what was written meanwhile."""
    monkeypatch.setattr(boundaries, "EVERY_SECONDS", 0.1)

    def work() -> None:
        for i in range(4):
            shop.sql(f"INSERT INTO busy VALUES ({i + 30}, 'more')")
            with shop.connection.cursor() as cursor:
                cursor.execute("SHOW PROCESSLIST")
                for connection, user, *_ in cursor.fetchall():
                    if user == USER:
                        kill(shop, int(connection))
            time.sleep(0.7)
        shown(shop, "busy")

    follow_while(shop, work)
    assert shop.seen(SourceLost)
    shop.assert_equal()


def kill(pipe: Pipe, connection: int) -> None:
    """End a connection, which may have ended by itself."""
    try:
        pipe.sql(f"KILL {connection}")
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.NO_SUCH_THREAD:
            raise


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_source_that_stays_away_ends_the_run(shop: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few tries, each of them reported with its reason; one that is there again in time does not."""
    monkeypatch.setattr(away, "PAUSES_SECONDS", (0.5, 0.6, 0.7))
    failures = [3]

    def work() -> str:
        failures[0] -= 1
        if failures[0] >= 0:
            raise SourceAway("the source is away: gone; run the same command again when it is back")
        return "done"

    with opened(shop.config, (), shop.events.append, shop.spark) as run:
        assert away.persistently(run, lambda: False, work) == "done"
        assert [event.pause for event in shop.seen(SourceLost) if isinstance(event, SourceLost)] == [0.5, 0.6, 0.7]
        failures[0] = 4
        with pytest.raises(SourceAway):
            away.persistently(run, lambda: False, work)
        failures[0] = 4
        assert away.persistently(run, lambda: failures[0] == 2, work) is None


def test_the_end_of_the_binlog_is_noted_while_a_run_is_at_work(shop: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog within one file is cut there, by this run and by one that comes after it was killed."""
    monkeypatch.setattr(boundaries, "EVERY_SECONDS", 0.1)
    ends = []
    with opened(shop.config, (), shop.events.append, shop.spark) as run:
        for i in range(3):
            shop.sql(f"INSERT INTO busy VALUES ({i + 40}, 'more')")
            ends.append(written_position(shop.connection))
            soon(lambda: ends[-1] in run.binlog.spool.boundaries)
    loaded = Spool.load(shop.state / "spool")
    assert loaded is not None
    assert set(ends) <= set(loaded.boundaries)


@pytest.mark.long("whole runs")
def test_sigterm_ends_a_run_that_follows_well(tmp_path: Path, mysql_server: LocalServer, lake_format: str) -> None:
    """It ends with 0 after what it has in hand; last_run.json is kept current meanwhile, and says so at the end."""
    job = Job(tmp_path / "job", mysql_server, "follow_job", lake_format=lake_format).write()
    table = f"{job.database}.items"
    job.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))", f"INSERT INTO {table} VALUES (1, 'a')")
    process = job.start("run", "--follow")
    until(process, "caught up with the source")
    job.sql(f"INSERT INTO {table} VALUES (2, 'b')")
    until(process, "items: published 2 rows")

    def outcome() -> dict[str, Any]:
        found: dict[str, Any] = files.document(job.state / "last_run.json")
        return found

    soon(lambda: bool(outcome()["caught_up"]))
    assert (outcome()["exit"], outcome()["error"], outcome()["tables"][0]["table"]) == (None, None, table)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "caught up with the source and followed it" in said.splitlines()[-1]
    assert "Traceback" not in said
    ended = outcome()
    assert (ended["exit"], ended["caught_up"], ended["followed"], ended["tables"][0]["rows"]) == (0, True, True, 2)
    assert job.published("items") == job.source("items")
    assert not is_held(job.state)
    job.sql(f"DROP DATABASE {job.database}")
