"""Another server takes over, and the same pipeline goes on with it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lakeingest.commands.check import check
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import WaveCommitted
from tests.e2e.pipe import Pipe
from tests.replication import Pair, replicating

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


TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, v INT)",
    "INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE items (id INT PRIMARY KEY, v INT)",
    "INSERT INTO items VALUES (1, 1), (2, 2)",
)


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
    over.assert_equal()
    assert over.rows("orders") == [(1, 10), (2, 20), (4, 40)]
    over.sql("UPDATE items SET v = 9 WHERE id = 2")
    over.run()
    over.assert_equal()
