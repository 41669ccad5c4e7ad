"""The state folder: of one pipeline and one server, and kept for all tables when one more joins."""

from collections.abc import Callable

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.run import run
from lakeingest.config import Config
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import NotOurState
from lakeingest.files.file import File
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import written_position
from lakeingest.pipeline.events import Planned, Spooled
from lakeingest.spool.spool import Spool
from lakeingest.state.lease import held
from lakeingest.state.owner import StateOwner, claim, owner_of
from tests.e2e.pipe import Pipe
from tests.servers.stores import everything, remove

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ORDERS = ("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (1, 1), (2, 2)")
WITHOUT_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


def content(folder: File) -> dict[str, bytes]:
    """All files of a folder, without the lease that a store keeps."""
    return {str(file): file.read() for file in everything(folder) if file.name != "lease.json"}


@pytest.mark.long("whole runs")
@pytest.mark.parametrize("other", ["name", "server"])
@pytest.mark.parametrize("owner", ["named", "removed"])
def test_a_state_folder_is_of_one_pipeline_and_one_server(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], pipe: Pipe, other: str, owner: str
) -> None:
    """Another name, and the same name with another server, are refused by name before anything is touched."""
    pipe.sql(*ORDERS)
    pipe.run()
    server = server_of(MYSQL, server_id="203") if other == "server" else None
    second = pipe_on(server, chunk_rows=10) if server else None
    config: Config = (second or pipe).config.model_copy(update={"state": pipe.config.state})
    if other == "name":
        config = config.model_copy(update={"name": "another"})
    if second is not None:
        second.sql(*ORDERS)
    if owner == "removed":
        (pipe.state / "owner.json").delete()
        if other == "name":  # the first run adopts it
            pipe.run()
    before = content(pipe.state)
    with pytest.raises(NotOurState, match=r"belongs to .*a folder of its own in pipeline\.yml"):
        run(config, spark=pipe.spark)
    assert content(pipe.state) == before
    assert [one.name for one in check(config, pipe.spark).problems] == ["owner of the state folder"]
    pipe.sql("DELETE FROM orders WHERE id = 1")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_folder_that_has_no_copies_goes_to_the_server_that_took_over(pipe: Pipe) -> None:
    """A first run had ended before it read anything."""
    with held(pipe.state):
        claim(pipe.state, StateOwner(pipe.config.name, "00000000-0000-0000-0000-000000000001"))
    pipe.sql(*ORDERS)
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    found = owner_of(pipe.state)
    assert found is not None
    assert found.server == server_state(pipe.connection).uuid


@pytest.mark.long("many waves")
def test_a_table_that_joins_leaves_the_spool_to_the_others(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """Without GTIDs its low watermark is the start of a file, but the source has purged where the spool begins."""
    pipe = pipe_on(mysql_server_with(server_id="202", **WITHOUT_GTIDS), chunk_rows=10)
    pipe.sql(*ORDERS, "CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipe.run()
    pipe.sql("UPDATE orders SET v = v + 1", "FLUSH BINARY LOGS", "DELETE FROM orders WHERE id = 1")
    pipe.sql("CREATE TABLE late (id INT PRIMARY KEY, v INT)", "INSERT INTO late VALUES (1, 1), (2, 2)")
    pipe.run("items")  # orders stay behind, and need the spool
    pipe.sql(f"PURGE BINARY LOGS TO '{written_position(pipe.connection).file}'")
    pipe.sql("UPDATE late SET v = 7 WHERE id = 2", "UPDATE orders SET v = v + 1")
    spool = Spool.load(pipe.state / "spool")
    assert spool is not None
    assert spool.opened.at.number < spool.position.at.number
    pipe.events.clear()
    pipe.run()
    pipe.assert_equal()
    read = [event.rows for event in pipe.seen(Spooled) if isinstance(event, Spooled)]
    assert sum(read) == 2  # the update of orders, and nothing that was spooled before; `late` is read by itself
    pipe.sql("INSERT INTO late VALUES (3, 3)")
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_what_was_logged_before_a_table_joined_is_in_its_part_of_the_spool(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """A transaction in the current file may be committed after the chunk was read, however long ago it was logged."""
    pipe = pipe_on(mysql_server_with(server_id="202", **WITHOUT_GTIDS), chunk_rows=10)
    pipe.sql(*ORDERS, "CREATE TABLE items (id INT PRIMARY KEY)")
    pipe.run()
    pipe.sql("FLUSH BINARY LOGS", "UPDATE orders SET v = 5", "CREATE TABLE late (id INT PRIMARY KEY)")
    pipe.sql("INSERT INTO late VALUES (1), (2), (3)")
    pipe.run("items")
    joined = TableId(pipe.database, "late")

    def look(event: object) -> None:
        if isinstance(event, Planned):  # it has joined, and nothing is merged yet
            spool = Spool.load(pipe.state / "spool")
            assert spool is not None
            found.append(spool.backlog(joined, spool.start))

    found: list[int] = []
    pipe.run(observe=look)
    assert found[0] == 3
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_table_that_joins_when_the_state_is_lost_is_covered(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """Without GTIDs the new spool begins where the file begins, which is the low watermark of what joins."""
    pipe = pipe_on(mysql_server_with(server_id="202", **WITHOUT_GTIDS), chunk_rows=10)
    pipe.sql(*ORDERS)
    pipe.run()
    remove(pipe.state)
    pipe.sql("CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1)", "DELETE FROM orders WHERE id = 1")
    pipe.run()
    pipe.assert_equal()
