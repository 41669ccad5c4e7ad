"""Another server takes over, and the same pipeline goes on with it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pydantic import SecretStr

from lakeingest.commands.check import check
from lakeingest.commands.signal import ask
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone, ChangelogGone, Retryable, SourceBehind, SourceDiverged, SourceReplaced
from lakeingest.monitoring.event_lines import line
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import Event, FailedOver, StartedOver, TableStopped, WaveCommitted
from lakeingest.spool.spool import Spool
from tests.e2e.pipe import Pipe
from tests.e2e.test_changelog import lines, position, replayed
from tests.e2e.test_follow import follow_while, shown
from tests.e2e.test_signals_killed_anywhere import Dead, mortal
from tests.servers.replication import Pair, addressed, administrator, replicating, replicating_domains

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source, and its replica that will be promoted."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.fixture
def pipe(pair: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on the source; chunks of 10 rows."""
    made = pipe_on(mysql_server_with(server_id="73"), chunk_rows=10)
    source = pair.source.model_copy(update={"replica": None})
    made.config = made.config.model_copy(update={"source": source})
    return made


def fail_over(pair: Pair, pipe: Pipe) -> Pipe:
    """The replica is the source from now on; the pipeline there."""
    source = pair.promote()
    query(pair.replica, f"USE {pipe.database}")
    return replace(pipe, config=pipe.config.model_copy(update={"source": source}), connection=pair.replica, events=[])


@contextmanager
def of_mariadb(server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]) -> Iterator[tuple[Pair, Pipe]]:
    """Two servers of MariaDB, and a pipeline on the first one; chunks of 10 rows."""
    with replicating_domains(server_of, MARIADB_11_4) as pair:
        server = server_of(MARIADB_11_4, server_id="83", log_slave_updates="ON", gtid_strict_mode="ON")
        pipe = pipe_on(server, chunk_rows=10)
        pipe.config = pipe.config.model_copy(update={"source": pair.source.model_copy(update={"replica": None})})
        yield pair, pipe


TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, v INT)",
    "INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE items (id INT PRIMARY KEY, v INT)",
    "INSERT INTO items VALUES (1, 1), (2, 2)",
)


@pytest.mark.long("publishes of both formats")
def test_a_copy_goes_on_with_a_promoted_replica(pair: Pair, pipe: Pipe) -> None:
    """Nothing is copied again: changes before the failover and after it are merged; a quiet table stays."""
    pipe.sql(*TABLES)
    pipe.run()
    pipe.sql("UPDATE orders SET v = 10 WHERE id = 1")
    pipe.run()
    pipe.sql("UPDATE orders SET v = 20 WHERE id = 2")
    pair.level()
    over = fail_over(pair, pipe)
    over.sql("DELETE FROM orders WHERE id = 3", "INSERT INTO orders VALUES (4, 40)")
    assert check(over.config, over.spark).problems == ()
    result = over.run()
    assert result.stopped == ()
    assert not over.seen(WaveCommitted)
    assert [event.tables for event in over.seen(FailedOver) if isinstance(event, FailedOver)] == [2]
    over.assert_equal()
    assert over.rows("orders") == [(1, 10), (2, 20), (4, 40)]
    over.sql("UPDATE items SET v = 9 WHERE id = 2")
    over.run()
    over.assert_equal()


@pytest.mark.long("whole runs")
def test_a_table_whose_last_changes_the_new_server_lacks_stops_alone(pair: Pair, pipe: Pipe) -> None:
    """The quiet table goes on from its commit, though a later position was stated of it; the other one if asked for."""
    pipe.sql(*TABLES)
    pipe.run()
    pair.level()
    query(pair.replica, "STOP REPLICA")
    pipe.sql("UPDATE orders SET v = 10")
    pipe.run()
    over = fail_over(pair, pipe)
    over.sql("UPDATE items SET v = 7 WHERE id = 1", "UPDATE orders SET v = 5 WHERE id = 1")
    assert [one.name for one in check(over.config, over.spark).problems] == ["saved positions"]
    with pytest.raises(SourceDiverged, match=r"orders has diverged: .* lacks .*; `lakeingest resnapshot") as stopped:
        over.run()
    assert [one.table.name for one in stopped.value.result.stopped] == ["orders"]
    assert over.rows("items") == [(1, 7), (2, 2)]
    assert over.rows("orders") == [(1, 10), (2, 10), (3, 10)]
    ask(over.config, "resnapshot", [f"{over.database}.orders"], scope=WHOLE, wait=False)
    over.events.clear()
    assert over.run().stopped == ()
    said = [str(line(event)) for event in over.seen(TableStopped)]
    assert [("its rows are read again" in one, "resnapshot" in one) for one in said] == [(True, False)], said
    over.assert_equal()


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
def test_a_replica_that_lags_is_waited_for(pair: Pair, pipe: Pipe) -> None:
    """Nothing is changed meanwhile; the copy goes on with the source of before, or the replica once it is level."""
    pipe.sql(*TABLES)
    pipe.run()
    pair.level()
    query(pair.replica, "STOP REPLICA SQL_THREAD")
    pipe.sql("UPDATE orders SET v = 10 WHERE id = 1")
    pipe.run()
    early = replace(pipe, config=pipe.config.model_copy(update={"source": pair.other}), events=[])
    with pytest.raises(SourceBehind):
        early.run()
    assert [one.name for one in check(early.config, early.spark).problems] == ["saved positions"]
    pipe.sql("UPDATE orders SET v = 11 WHERE id = 1")
    assert pipe.run().stopped == ()
    assert not pipe.seen(StartedOver)
    query(pair.replica, "START REPLICA")
    pair.level()
    assert early.run().stopped == ()
    assert early.rows("orders") == [(1, 11), (2, 2), (3, 3)]


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
def test_a_table_that_an_errant_transaction_changed_stops_alone(pair: Pair, pipe: Pipe) -> None:
    """It stands before the last transaction that is copied; it was changed again after that, on the source."""
    pipe.sql(*TABLES)
    pair.level()
    query(pair.replica, f"USE {pipe.database}")
    query(pair.replica, "UPDATE orders SET v = 9 WHERE id = 1")
    pipe.run()
    pipe.sql("UPDATE orders SET v = 10 WHERE id = 1", "UPDATE items SET v = 10 WHERE id = 1")
    pipe.run()
    pair.level()
    over = fail_over(pair, pipe)
    over.sql("UPDATE items SET v = 11 WHERE id = 1")
    with pytest.raises(SourceDiverged, match="transactions of this server alone") as stopped:
        over.run()
    assert [one.table.name for one in stopped.value.result.stopped] == ["orders"]
    over.assert_equal("items")


@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize("key", ["INT", "VARCHAR(20)"])
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("VARCHAR(20)", "0"))
@pytest.mark.long("starts two servers; the decision has tests of its own")
def test_a_first_copy_goes_on_with_the_server_that_took_over(pair: Pair, pipe: Pipe, key: str, lost: int) -> None:
    """With the chunks that the spool proves: those of later waves may have seen more than the replica got."""
    over = over_in_the_first_copy(pair, pipe, key, lost)
    first, *_ = (event for event in over.seen(WaveCommitted) if isinstance(event, WaveCommitted))
    assert 1 < first.wave <= (lost + 1 if lost else 5)


def over_in_the_first_copy(pair: Pair, pipe: Pipe, key: str, lost: int) -> Pipe:
    """The replica takes over in the fifth wave, without what came after the wave `lost`; another run ends the copy."""
    pipe.sql(f"CREATE TABLE orders (id {key} PRIMARY KEY, v INT)", *TABLES[2:])
    pipe.sql(f"INSERT INTO orders VALUES {', '.join(f'({key}, {key})' for key in range(400))}")
    pipe.run("items")
    with addressed(pipe.config.source) as address:
        pipe.config = pipe.config.model_copy(update={"source": address.of(pair.source)})

        def switch(event: Event) -> None:
            if not isinstance(event, WaveCommitted):
                return
            if event.wave == lost:
                pair.level()
                query(pair.replica, "STOP REPLICA")
            pipe.sql(f"DELETE FROM orders WHERE id = {event.wave}", f"UPDATE orders SET v = -v WHERE id < {event.wave}")
            pipe.sql(f"UPDATE orders SET id = 1000 + id WHERE id = 399 - {event.wave}")
            if event.wave == 5:
                if not lost:
                    pair.level()
                address.lead_to(pair.promote())

        with pytest.raises(Retryable):
            pipe.run(observe=switch)
        query(pair.replica, f"USE {pipe.database}")
        over = replace(pipe, connection=pair.replica, events=[])
        over.sql("DELETE FROM orders WHERE id % 7 = 0", "UPDATE orders SET v = 0 WHERE id % 5 = 0")
        assert over.run().stopped == ()
        over.assert_equal()
        return over


@pytest.mark.formats("iceberg")
@pytest.mark.long("waits half a minute for a run to notice the other server")
def test_a_run_that_follows_ends_where_another_server_answers(pair: Pair, pipe: Pipe) -> None:
    """The scheduler starts the next one, which goes on."""
    pipe.sql(*TABLES)
    pipe.run()
    with addressed(pipe.config.source) as address:
        pipe.config = pipe.config.model_copy(update={"source": address.of(pair.source)})

        def switch() -> None:
            pipe.sql("UPDATE orders SET v = 8 WHERE id = 1")
            shown(pipe, "orders")
            pair.level()
            address.lead_to(pair.promote())
            time.sleep(30)

        with pytest.raises(SourceReplaced):
            follow_while(pipe, switch)
        query(pair.replica, f"USE {pipe.database}")
        over = replace(pipe, connection=pair.replica, events=[])
        over.sql("UPDATE orders SET v = 9 WHERE id = 2")
        assert over.run().stopped == ()
        over.assert_equal()
        assert over.rows("orders") == [(1, 8), (2, 9), (3, 3)]


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
def test_readers_of_the_changelog_begin_anew(pair: Pair, pipe: Pipe) -> None:
    """The one that began before has to; one that begins now gets the whole table, and what comes after it."""
    pipe.sql(*TABLES)
    pipe.run()
    pipe.sql("UPDATE orders SET v = 10 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    pipe.run()
    before = lines(pipe, "orders")
    assert replayed(before) == [(1, 10), (3, 3)]
    pipe.sql("UPDATE orders SET v = 20 WHERE id = 1")
    pair.level()
    over = fail_over(pair, pipe)
    over.sql("INSERT INTO orders VALUES (4, 4)")
    over.run()
    with pytest.raises(ChangelogGone, match="begun anew"):
        lines(over, "orders", position(before[-1]))
    after = lines(over, "orders")
    assert replayed(after) == [(1, 20), (3, 3), (4, 4)]
    over.sql("DELETE FROM orders WHERE id = 3")
    over.run()
    rest = lines(over, "orders", position(after[-1]))
    assert [json.loads(line)["op"] for line in rest] == ["-D"]


@pytest.mark.long("whole runs")
@pytest.mark.formats("iceberg")
def test_a_server_of_another_history_is_refused(pipe: Pipe, mysql_server: LocalServer) -> None:
    """Though it has tables of these names. Nothing is changed, and the source of before goes on."""
    pipe.sql(*TABLES)
    pipe.run()
    with administrator(mysql_server) as other:
        for statement in (f"CREATE DATABASE {pipe.database}", f"USE {pipe.database}", *TABLES):
            query(other, statement)
        account = {"host": mysql_server.host, "port": mysql_server.port, "user": mysql_server.user}
        source = pipe.config.source.model_copy(update=account | {"password": SecretStr(mysql_server.password)})
        wrong = replace(pipe, config=pipe.config.model_copy(update={"source": source}))
        with pytest.raises(BinlogGone, match="no transaction in common"):
            wrong.run()
        query(other, f"DROP DATABASE {pipe.database}")
    pipe.sql("UPDATE orders SET v = 10 WHERE id = 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.formats("iceberg")
@pytest.mark.long("starts two more servers")
def test_a_copy_goes_on_with_a_promoted_replica_of_mariadb(
    server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]
) -> None:
    """Where its numbers are in order."""
    with of_mariadb(server_of, pipe_on) as (pair, pipe):
        pipe.sql(*TABLES)
        pipe.run()
        pipe.sql("UPDATE orders SET v = 10 WHERE id = 1")
        pipe.run()
        pipe.sql("UPDATE orders SET v = 20 WHERE id = 2")
        pair.level()
        over = fail_over(pair, pipe)
        over.sql("DELETE FROM orders WHERE id = 3", "UPDATE items SET v = 9 WHERE id = 2")
        assert over.run().stopped == ()
        assert not over.seen(WaveCommitted)
        over.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_first_copy_goes_on_with_a_replica_of_mariadb(
    server_of: Callable[..., LocalServer], pipe_on: Callable[..., Pipe]
) -> None:
    """Its low watermarks are places of the server of before, which nobody finds on this one."""
    with of_mariadb(server_of, pipe_on) as (pair, pipe):
        over = over_in_the_first_copy(pair, pipe, "INT", 0)
        first, *_ = (event for event in over.seen(WaveCommitted) if isinstance(event, WaveCommitted))
        assert first.wave > 1


def dies(pipe: Pipe, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run, and die at this step, if the run has so many; whether it died."""
    with mortal(pipe, step) as mortality, monkeypatch.context() as patch:
        patch.setattr(Spool, "open", mortality.after(Spool.open))
        try:
            pipe.run()
        except Dead:
            return True
    return False


@pytest.mark.long("a run for each step of a run")
def test_a_run_that_fails_over_may_die_at_any_step(pair: Pair, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes on, over the same failover or back to the server of before. Nothing is copied again."""
    pipe.sql(*TABLES)
    pipe.run()
    now, step, died = pair, 0, True
    with addressed(pair.source) as address:
        pipe.config = pipe.config.model_copy(update={"source": address.of(pair.source)})
        while died:
            step += 1
            now = now.swap(address)
            query(now.primary, f"USE {pipe.database}")
            for statement in (f"UPDATE orders SET v = {step}", f"INSERT INTO items VALUES ({100 + step}, {step})"):
                query(now.primary, statement)
            died = dies(pipe, step, monkeypatch)
            if step % 3 == 0:
                now = now.swap(address)
            assert pipe.run().stopped == ()
            pipe.assert_equal()
        now.part()
    assert step > 10
    assert not pipe.seen(StartedOver)
    assert len(pipe.seen(WaveCommitted)) == len(TABLES) // 2


@pytest.mark.long("a run for each step of a run")
def test_a_first_copy_that_fails_over_may_die_at_any_step(
    pair: Pair, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run goes on, or copies the table again; in most of them chunks of the server before are kept."""
    pipe.sql(*TABLES)
    pipe.run()
    now, step, died, kept = pair, 0, True, 0

    class Stop(Exception):
        """Ends a run in the middle of a first copy."""

    def stop(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            query(now.primary, f"DELETE FROM big{step} WHERE id = {event.wave}")
            if event.wave == 3:
                raise Stop

    with addressed(pair.source) as address:
        pipe.config = pipe.config.model_copy(update={"source": address.of(pair.source)})
        while died:
            step += 1
            query(now.primary, f"USE {pipe.database}")
            query(now.primary, f"CREATE TABLE big{step} (id INT PRIMARY KEY, v INT)")
            query(now.primary, f"INSERT INTO big{step} VALUES {', '.join(f'({key}, {key})' for key in range(320))}")
            with pytest.raises(Stop):
                pipe.run(observe=stop)
            now = now.swap(address)
            query(now.primary, f"UPDATE {pipe.database}.big{step} SET v = -v WHERE id < 30")
            pipe.events.clear()
            died = dies(pipe, step, monkeypatch)
            assert pipe.run().stopped == ()
            pipe.assert_equal()
            kept += all(event.wave > 1 for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted))
            query(now.primary, f"DROP TABLE {pipe.database}.big{step}")
        now.part()
    assert step > 10
    assert kept > step // 2
