"""Servers take over from each other while they are written to, at any moment of a run or between two.

LAKEINGEST_FAILOVERS sets their number.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pymysql
import pytest

from lakeingest.config import Source
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.mysql.connection import connect, query
from lakeingest.pipeline.events import Event, Merged, Published, Spooled, StartedOver, WaveCommitted
from tests.beside import beside
from tests.e2e.pipe import Pipe
from tests.replication import Address, Pair, addressed, replicating

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

FAILOVERS = int(os.environ.get("LAKEINGEST_FAILOVERS", "2"))
ROWS = 120
TRIES = 4  # of a run, which ends where another server answers
MOMENTS: dict[str, tuple[type[Event], ...]] = {
    "between runs": (),
    "in a first copy": (WaveCommitted,),
    "in a catch-up": (Spooled, Merged, Published),
}


@pytest.fixture
def pair(mysql_server_with: Callable[..., LocalServer]) -> Iterator[Pair]:
    """Two servers that take over from each other."""
    with replicating(mysql_server_with, ("73", "74")) as both:
        yield both


@pytest.fixture
def address(pair: Pair) -> Iterator[Address]:
    """Leads to the one that is the source now."""
    with addressed(pair.source) as one:
        yield one


@pytest.fixture
def pipe(
    pair: Pair, address: Address, pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> Iterator[Pipe]:
    """A pipeline on the address; chunks of 20 rows."""
    made = pipe_on(mysql_server_with(server_id="73"), chunk_rows=20)
    first = made.connection
    made.config = made.config.model_copy(update={"source": address.of(pair.source)})
    yield made
    pair.part()
    made.connection = first


@dataclass
class Writers:
    """They write to whichever server is the source, but not while `calm`."""

    source: Source
    database: str
    calm: threading.Event
    written: int = 0

    def write(self, number: int, is_over: Callable[[], bool]) -> None:
        """Transactions of a few changes; a server that is away, or takes no writes, is tried again."""
        chance = Random(number)
        while not is_over():
            with suppress(LakeIngestError, pymysql.err.MySQLError, OSError), connect(self.source) as connection:
                query(connection, f"USE {self.database}")
                while not is_over():
                    if self.calm.is_set():
                        time.sleep(0.01)
                        continue
                    for statement in self._transaction(chance):
                        query(connection, statement)
                    self.written += 1
                    time.sleep(0.01)
            time.sleep(0.05)

    def _transaction(self, chance: Random) -> list[str]:
        one, other, value = (chance.randrange(ROWS * 2) for _ in range(3))
        return [
            "BEGIN",
            f"INSERT INTO orders VALUES ({one}, {value}) ON DUPLICATE KEY UPDATE v = v + {value}",
            f"UPDATE IGNORE orders SET id = {other}, v = v + 1 WHERE id = {one}",
            f"DELETE FROM items WHERE id = {other}",
            f"INSERT IGNORE INTO items VALUES ({value}, {one})",
            f"UPDATE others SET v = v + 1 WHERE id = {other}",
            "ROLLBACK" if chance.random() < 0.1 else "COMMIT",
        ]


def fill(pipe: Pipe, table: str) -> None:
    """Make a table of several chunks."""
    pipe.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    pipe.sql(f"INSERT INTO {table} VALUES {', '.join(f'({key}, {key})' for key in range(ROWS))}")


def run(pipe: Pipe, moments: tuple[type[Event], ...], count: int, switch: Callable[[], None]) -> None:
    """Run until a run comes to its end; at the event of that number, of these kinds, the source is switched."""
    left = count

    def observe(event: Event) -> None:
        nonlocal left
        if isinstance(event, moments):
            left -= 1
            if left == 0:
                switch()

    for _ in range(TRIES):
        try:
            assert pipe.run(observe=observe).stopped == ()
        except Retryable:
            continue
        if left > 0 and moments:
            switch()
        return
    raise AssertionError("the run never came to its end")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.long("a round for each moment and format", only=("between runs", "in a first copy", "hudi"))
def test_no_change_is_lost_when_servers_take_over_under_load(
    pair: Pair, address: Address, pipe: Pipe, moment: str
) -> None:
    """In each round one takes over, and the copies are equal when the writers rest. None was copied twice."""
    chance, now = Random(moment), pair
    for table in ("orders", "items", "others"):
        fill(pipe, table)
    writers = Writers(pipe.config.source, pipe.database, threading.Event())

    def switch() -> None:
        nonlocal now
        now = now.swap(address)

    with beside(writers.write, 3):
        run(pipe, (), 0, switch)
        for number in range(FAILOVERS):
            writers.calm.clear()
            written = writers.written
            pipe.connection = now.primary
            pipe.sql(f"USE {pipe.database}")
            if moment == "in a first copy":
                fill(pipe, f"copied_{number}")
            if moment == "between runs":
                switch()
            run(pipe, MOMENTS[moment], chance.randint(1, 4), switch)
            time.sleep(0.3)
            writers.calm.set()
            time.sleep(0.5)
            run(pipe, (), 0, switch)
            pipe.assert_equal()
            assert writers.written > written
    assert all(event.compared for event in pipe.seen(StartedOver) if isinstance(event, StartedOver))
