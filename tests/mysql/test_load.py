"""The load of a source, as its own numbers tell it."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakeingest.config import Source
from lakeingest.core.figures.load import Load
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.connection import connect, query
from lakeingest.mysql.load import LoadMeter, history_list_length, threads_running
from tests.mysql.database import Db
from tests.servers.accounts import copier_of
from tests.servers.replication import Pair, replicating

pytestmark = pytest.mark.mysql

LAG = Load(replica_lag=30)


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source and its replica."""
    with replicating(mysql_server_with) as both:
        yield both


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_running_threads_are_counted(any_server: LocalServer) -> None:
    """By a user with the documented rights."""
    source = copier_of(any_server)

    def sleep(seconds: float) -> None:
        with connect(source) as one:
            query(one, f"SELECT SLEEP({seconds})")

    with connect(source) as connection, ThreadPoolExecutor(4) as pool:
        before = threads_running(connection)
        done = [pool.submit(sleep, 3.0) for _ in range(4)]
        deadline = time.monotonic() + 3.0
        while threads_running(connection) < before + 3:  # others may end meanwhile
            assert time.monotonic() < deadline
        for each in done:
            each.result()


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_kept_row_versions_are_counted(any_db: Db) -> None:
    """An open read view keeps the versions of every transaction after it; on MySQL the user needs a right."""
    any_db.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0)")
    with connect(any_db.source) as reader:
        query(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        any_db.run(*["UPDATE t SET v = v + 1"] * 300)
        assert history_list_length(any_db.connection) >= 290


def test_the_right_for_kept_row_versions_is_named(mysql_server: LocalServer) -> None:
    """The user with the documented rights lacks it, and the error has the GRANT statement."""
    needed = pytest.raises(OperatorNeeded, match=r"GRANT PROCESS ON \*\.\* TO 'copier'")
    with connect(copier_of(mysql_server)) as connection, needed:
        history_list_length(connection)


def test_a_number_that_the_server_does_not_count_is_not_believed(uncounting: Db) -> None:
    """The metric is switched off: its number stays as it was."""
    with pytest.raises(OperatorNeeded, match="innodb_monitor_enable"):
        history_list_length(uncounting.connection)


@pytest.fixture
def uncounting(mysql_db: Db) -> Iterator[Db]:
    """A server that does not count the kept row versions."""
    mysql_db.run("SET GLOBAL innodb_monitor_disable = trx_rseg_history_len")
    yield mysql_db
    mysql_db.run("SET GLOBAL innodb_monitor_enable = trx_rseg_history_len")


@pytest.mark.long("a replica of its own")
def test_the_lag_of_a_replica_is_the_age_of_what_it_lacks(pair: Pair) -> None:
    """Also while its replication is stopped, where the server itself says NULL."""
    meter = LoadMeter(pair.source, LAG)
    query(pair.primary, "CREATE DATABASE late")
    pair.level()
    with connect(pair.source) as primary:
        assert meter.measure(primary) == Load(replica_lag=0.0)
        query(pair.replica, "STOP REPLICA SQL_THREAD")
        query(pair.primary, "CREATE TABLE late.t (id INT PRIMARY KEY)")
        meter.measure(primary)
        time.sleep(0.5)
        query(pair.primary, "INSERT INTO late.t VALUES (1)")
        lag = meter.measure(primary).replica_lag
        assert lag is not None
        assert 0.5 <= lag < 10
        query(pair.replica, "START REPLICA SQL_THREAD")
        pair.level()
        assert meter.measure(primary) == Load(replica_lag=0.0)


@pytest.mark.long("a replica of its own")
def test_the_load_is_that_of_the_server_that_rows_are_read_from(pair: Pair) -> None:
    """The threads of the replica count, not those of its source."""
    meter = LoadMeter(pair.source, Load(threads_running=5))

    def sleep(source: Source) -> None:
        with connect(source) as one:
            query(one, "SELECT SLEEP(2)")

    with connect(pair.source) as primary, ThreadPoolExecutor(6) as pool:
        done = [pool.submit(sleep, pair.source.of_rows) for _ in range(6)]
        deadline = time.monotonic() + 2
        while (meter.measure(primary).threads_running or 0) < 7:
            assert time.monotonic() < deadline
        for each in done:
            each.result()
