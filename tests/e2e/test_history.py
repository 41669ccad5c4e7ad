"""A source whose binlog is another one under the same names: reset, or restored, and grown past our position again."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.waves.scope import WHOLE, Scope
from lakeingest.demo.flavor import MARIADB_10_11, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone
from lakeingest.mysql.connection import clock, written_position
from lakeingest.mysql.continuity import wait_until_over
from lakeingest.pipeline.binlog import boundaries, ingest
from lakeingest.pipeline.events import Event, Opened, RowsReread, WaveCommitted
from lakeingest.pipeline.opening.opening import opened
from lakeingest.spool.spool import Spool
from tests.e2e.mortal import Mortal
from tests.e2e.pipe import Pipe
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


@dataclass(frozen=True)
class Mode:
    """A server, and the statement that resets its binlog."""

    flavor: Flavor
    settings: dict[str, str]
    reset: str


RESET = "RESET BINARY LOGS AND GTIDS"
MODES = {
    "GTID": Mode(MYSQL, {}, RESET),
    "no GTID": Mode(MYSQL, {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}, RESET),
    "MariaDB": Mode(MARIADB_10_11, {}, "RESET MASTER"),
}
ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))"


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    """With GTIDs, without, and MariaDB."""
    return MODES[request.param]


@pytest.fixture
def shop(pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], mode: Mode) -> Pipe:
    """A copied table of 20 rows, alone in a binlog that may be reset."""
    pipe = pipe_on(server_of(mode.flavor, server_id="201", **mode.settings), chunk_rows=100)
    pipe.sql(ORDERS, mode.reset)
    insert(pipe, range(20))
    pipe.run()
    return pipe


def insert(pipe: Pipe, ids: range) -> None:
    """Rows of equal size, each a transaction of its own: they end at the same places in any binlog."""
    pipe.sql(*(f"INSERT INTO orders VALUES ({i}, 'abc')" for i in (id_ + 100 for id_ in ids)))


def stops(pipe: Pipe) -> None:
    """A run stops, `check` and `verify` say the same, and readers keep what they had."""
    [before], rows = status(pipe.config), pipe.rows("orders")
    for command in (pipe.run, pipe.verify):
        with pytest.raises(BinlogGone, match=r"is not the one that our position .* was read from.*copy the tables"):
            command()
    [finding] = [one.finding for one in check(pipe.config, pipe.spark).problems]
    assert finding is not None
    assert "it was reset, or the server was restored from a backup" in finding
    [after] = status(pipe.config)
    assert (after.state, after.position, pipe.rows("orders")) == (before.state, before.position, rows)


@pytest.mark.long("the same on other servers", only=("no GTID",))
@pytest.mark.long("the same on another server", only=("MariaDB",))
def test_a_reset_binlog_that_grew_to_the_same_places_is_noticed(shop: Pipe, mode: Mode) -> None:
    """Transactions of equal size end where ours did, so uuid, file, length, GTIDs and boundaries are all the same."""
    shop.sql(mode.reset)
    insert(shop, range(20, 60))
    stops(shop)


@pytest.mark.long("a server of its own, for another place of the same proof")
def test_a_reset_binlog_is_noticed_at_the_start_of_a_file(shop: Pipe, mode: Mode) -> None:
    """Our position is right behind a rotation, where no transaction of its file comes before it.

    All happens within a second, if the run lets it.
    """
    wait_until_over(shop.connection, clock(shop.connection))
    shop.sql("FLUSH BINARY LOGS")
    shop.run()
    [table] = status(shop.config)
    assert table.position is not None
    assert (table.position.at.number, table.position.at.pos < 500) == (2, True)
    shop.sql(mode.reset)
    insert(shop, range(20, 50))
    shop.sql("FLUSH BINARY LOGS")
    insert(shop, range(50, 60))
    stops(shop)


@pytest.mark.long("a server of its own, for another place of the same proof")
def test_a_reset_binlog_is_noticed_without_the_state_folder(shop: Pipe, mode: Mode) -> None:
    """Each table's own position, which its commit carries, names its history as well."""
    for file in everything(shop.state / "spool"):
        if file.suffix == ".json":
            file.delete()
    shop.sql(mode.reset)
    insert(shop, range(20, 60))
    stops(shop)


@pytest.mark.long("the same on other servers", only=("no GTID", "MariaDB"))
def test_a_binlog_that_is_reset_while_a_run_is_at_work_is_noticed(shop: Pipe, mode: Mode) -> None:
    """After the run has proven its position: the reader of the binlog proves it once more."""
    insert(shop, range(20, 30))

    def reset(event: Event) -> None:
        if isinstance(event, Opened):
            shop.sql(mode.reset)
            insert(shop, range(30, 70))

    with pytest.raises(BinlogGone):
        shop.run(observe=reset)
    assert len(shop.rows("orders")) == 20


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_what_was_seen_of_the_binlog_does_not_change_while_it_grows(shop: Pipe) -> None:
    """Rotations, a purge of the last transaction's file, statements, and quiet runs: each run goes on."""
    for statements in (
        ["FLUSH BINARY LOGS"],
        [],
        ["INSERT INTO orders VALUES (1, 'a')", "FLUSH BINARY LOGS"],
        ["CREATE TABLE beside (id INT PRIMARY KEY)"],
        ["UPDATE orders SET v = 'b' WHERE id < 110", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS"],
        ["DELETE FROM orders WHERE id = 1"],
    ):
        shop.sql(*statements)
        shop.run()
        assert check(shop.config, shop.spark).ok
        if statements[-1:] == ["FLUSH BINARY LOGS"]:
            shop.sql(f"PURGE BINARY LOGS TO '{written_position(shop.connection).file}'")
    shop.run()
    shop.assert_equal("orders")


@pytest.mark.long("the same on other servers", only=("no GTID", "MariaDB"))
def test_positions_of_the_previous_version_are_gone_on_with(shop: Pipe) -> None:
    """They do not tell their history; the next commit of each does."""
    spool = Spool.load(shop.state / "spool")
    assert spool is not None
    forgetful = spool.position.to_json()
    del forgetful["history"]
    Spool.open(spool.folder, type(spool.position).from_json(forgetful))
    insert(shop, range(20, 25))
    shop.run()
    [table] = status(shop.config)
    assert table.position is not None
    assert table.position.history is not None
    shop.assert_equal()


@pytest.mark.long("a server that is killed and starts again")
def test_a_server_that_is_restored_from_an_older_image_is_noticed(
    mortal: Mortal, pipe_on: Callable[..., Pipe], tmp_path: Path
) -> None:
    """It has the same uuid, and after a while the same GTIDs in a file of the same name."""
    pipe = pipe_on(mortal.server)
    pipe.sql(ORDERS)
    mortal.die()
    mortal.save(tmp_path / "image")
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}")
    insert(pipe, range(20))
    pipe.run()
    mortal.die()
    mortal.restore(tmp_path / "image")
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}")
    insert(pipe, range(20, 60))
    stops(pipe)


def truncate(mortal: Mortal, at: FilePosition) -> None:
    """Kill the server, and take the end of its binlog away, as a crash of its machine may without sync_binlog."""
    mortal.die()
    os.truncate(mortal.data / at.file, at.pos)


@pytest.mark.long("a server that is killed and starts again")
def test_a_boundary_in_a_lost_end_of_the_binlog_stops_nothing(
    mortal: Mortal, pipe_on: Callable[..., Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has lost nothing, so the run goes on; the binlog is not cut where nothing ends any more."""
    monkeypatch.setattr(boundaries, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(ingest, "LEAST_BYTES", 1)
    pipe = pipe_on(mortal.server)
    pipe.sql(ORDERS, "CREATE DATABASE elsewhere", "CREATE TABLE elsewhere.t (id INT PRIMARY KEY)")
    pipe.run()
    with opened(pipe.config, (), pipe.events.append, pipe.spark) as run:
        end = run.binlog.spool.position.at
        pipe.sql(*(f"INSERT INTO elsewhere.t VALUES ({i})" for i in range(20)))
        deadline = time.monotonic() + 20
        while not run.binlog.spool.boundaries:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    truncate(mortal, end)
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}")
    insert(pipe, range(40))
    pipe.run()
    pipe.assert_equal()


@contextmanager
def writes(mortal: Mortal, statement: str) -> Iterator[None]:
    """A client that runs a statement again and again."""
    done = threading.Event()

    def write() -> None:
        with mortal.connect() as connection, connection.cursor() as cursor:
            while not done.is_set():
                cursor.execute(statement)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


@pytest.mark.long("a server that is killed and starts again")
def test_a_chunk_that_saw_a_lost_end_of_the_binlog_is_read_again(mortal: Mortal, pipe_on: Callable[..., Pipe]) -> None:
    """Its high watermark is behind the end of its file now, where nobody can read the changes up to it."""
    pipe = pipe_on(mortal.server, chunk_rows=10)
    pipe.sql(ORDERS, "CREATE TABLE beside (id INT PRIMARY KEY AUTO_INCREMENT)")
    insert(pipe, range(300))

    class Stop(Exception):
        """Ends a run where a crash could."""

    def stop(event: Event) -> None:
        if isinstance(event, WaveCommitted):
            raise Stop

    with writes(mortal, f"INSERT INTO {pipe.database}.beside VALUES ()"), pytest.raises(Stop):
        pipe.run("orders", observe=stop)
    spool = Spool.load(pipe.state / "spool")
    assert spool is not None
    truncate(mortal, spool.position.at)
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}", "DELETE FROM orders WHERE id % 3 = 0")
    pipe.run("orders")
    waves = [event.wave for event in pipe.seen(WaveCommitted) if isinstance(event, WaveCommitted)]
    assert waves.count(1) == 2
    pipe.assert_equal("orders")


@pytest.mark.long("a server that is killed and starts again")
def test_rows_that_were_read_again_in_a_lost_end_of_the_binlog_stop_their_table(
    mortal: Mortal, pipe_on: Callable[..., Pipe]
) -> None:
    """They wait for the next merge, which would need the lost changes. A new copy of the table mends it."""
    pipe = pipe_on(mortal.server, chunk_rows=50)
    pipe.sql(ORDERS, "CREATE TABLE beside (id INT PRIMARY KEY AUTO_INCREMENT)")
    pipe.sql("CREATE DATABASE elsewhere", "CREATE TABLE elsewhere.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    insert(pipe, range(100))
    pipe.run()
    orders = f"{pipe.database}.orders"

    class Stop(Exception):
        """Ends a run where a crash could."""

    def stop(event: Event) -> None:
        if isinstance(event, RowsReread):
            raise Stop

    pipe.unlogged("UPDATE orders SET v = 'lost' WHERE id = 150")
    ask(pipe.config, "resnapshot", [orders], scope=Scope(range=KeyRange((110,), (190,))), wait=False)
    with writes(mortal, "INSERT INTO elsewhere.t VALUES ()"), pytest.raises(Stop):
        pipe.run(observe=stop)
    spool = Spool.load(pipe.state / "spool")
    assert spool is not None
    truncate(mortal, spool.position.at)
    pipe.connection = mortal.rise()
    pipe.sql(f"USE {pipe.database}", "INSERT INTO beside VALUES ()")
    with pytest.raises(BinlogGone, match="read again in a lost part") as stopped:
        pipe.run()
    [orders_stop] = stopped.value.result.stopped
    assert (orders_stop.table.name, orders_stop.error) == ("orders", "BinlogGone")
    pipe.assert_equal("beside")
    ask(pipe.config, "resnapshot", [orders], scope=WHOLE, spark=pipe.spark)
    pipe.assert_equal()
