"""Whole runs whose rows come from a replica."""

import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import connect, query
from lakeingest.pipeline.events import WaveCommitted
from tests.e2e.pipe import Pipe
from tests.faults.beside import beside
from tests.servers.replication import WRITER, Pair, administrator, replicating

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 300


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """A source and its replica."""
    with replicating(mysql_server_with) as both:
        yield both


@pytest.fixture
def pipe(pair: Pair, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Pipe:
    """A pipeline whose chunks, of 10 rows, are read from the replica."""
    made = pipe_on(mysql_server_with(server_id="71"), chunk_rows=10)
    made.config = made.config.model_copy(update={"source": pair.source})
    return made


@pytest.mark.long("copies a table while its replica lags")
def test_a_table_that_changes_while_a_lagging_replica_is_read_is_copied_exactly(
    pair: Pair, pipe: Pipe, mysql_server_with: Callable[..., LocalServer]
) -> None:
    """Keys are inserted, changed, moved and deleted while the replica applies nothing for half of the time."""
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "CREATE TABLE shown (id INT PRIMARY KEY)")
    pipe.sql(f"INSERT INTO orders VALUES {', '.join(f'({i}, 0)' for i in range(ROWS))}")
    pair.level()
    pair.unlogged(f"INSERT INTO {pipe.database}.shown VALUES (1)")

    def write(number: int, is_over: Callable[[], bool]) -> None:
        chance = Random(number)
        with connect(pair.source.model_copy(update=WRITER)) as connection:
            query(connection, f"USE {pipe.database}")
            while not is_over():
                old, new = chance.randrange(ROWS), chance.randrange(ROWS)
                statement = chance.choice(
                    [
                        f"INSERT INTO orders VALUES ({old}, {new}) ON DUPLICATE KEY UPDATE v = v + 1",
                        f"UPDATE IGNORE orders SET id = {new}, v = v + 1 WHERE id = {old}",
                        f"DELETE FROM orders WHERE id = {old}",
                    ]
                )
                query(connection, statement)
                time.sleep(0.005)

    def lag(_: int, is_over: Callable[[], bool]) -> None:
        with administrator(mysql_server_with(server_id="72")) as connection:
            while not is_over():
                query(connection, "STOP REPLICA SQL_THREAD")
                time.sleep(0.3)
                query(connection, "START REPLICA SQL_THREAD")
                time.sleep(0.3)

    with beside(write, 1), beside(lag, 1):
        pipe.run()
    assert len(pipe.seen(WaveCommitted)) > 3
    pipe.run()
    pipe.assert_equal("orders")
    assert pipe.rows("shown") == [(1,)]  # only the replica has it
