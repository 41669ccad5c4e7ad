"""Servers take over from each other while they are written to, at any moment of a run or between two.

LAKEINGEST_FAILOVERS sets their number.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pymysql
import pytest

from lakeingest.config import Source
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.mysql.connection import connect, query
from lakeingest.pipeline.events import Event, Merged, Published, Spooled, StartedOver, WaveCommitted
from tests.e2e.pipe import Pipe
from tests.e2e.semi_sync import SemiSyncPair
from tests.faults.beside import beside
from tests.servers.replication import WRITER, Address

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

FAILOVERS = int(os.environ.get("LAKEINGEST_FAILOVERS", "2"))
ROWS = 120
TRIES = 4  # of a run, which ends where another server answers
MOMENTS: dict[str, tuple[type[Event], ...]] = {
    "between runs": (),
    "in a first copy": (WaveCommitted,),
    "in a catch-up": (Spooled, Merged, Published),
}


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
@pytest.mark.long("several failovers under load")
def test_no_change_is_lost_when_servers_take_over_under_load(
    semi_sync: SemiSyncPair, address: Address, pipe_there: Pipe, moment: str
) -> None:
    """In each round one takes over, and the copies are equal when the writers rest. None was copied twice.

    In every second round the source was killed before.
    """
    chance, now, switches, pipe = Random(moment), semi_sync, 0, pipe_there
    for table in ("orders", "items", "others"):
        fill(pipe, table)
    writers = Writers(pipe.config.source.model_copy(update=WRITER), pipe.database, threading.Event())

    def switch() -> None:
        nonlocal now, switches
        now = now.kill(address) if switches % 2 else now.swap(address)
        switches += 1

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
