"""tables.include that grows and shrinks between runs: the other tables are not touched, and a copy stays as it is."""

import time
from collections.abc import Callable

import pytest

from lakeingest.commands.status import status
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL
from lakeingest.demo.server import LocalServer
from lakeingest.errors import BinlogGone
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.events import Merged, Published, WaveCommitted
from lakeingest.spool.spool import Spool
from tests.e2e.pipe import Pipe
from tests.servers.stores import everything

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ON_EACH = pytest.mark.parametrize("shop", ["GTIDs", "no GTIDs", "MariaDB"], indirect=True)


@pytest.fixture
def shop(request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A pipeline with one of two tables; the copied one was altered earlier in the binlog.

    The test names the kind of server; otherwise it has GTIDs.
    """
    kind = getattr(request, "param", "GTIDs")
    settings = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"} if kind == "no GTIDs" else {}
    server = server_of(MARIADB_11_4 if kind == "MariaDB" else MYSQL, server_id="97", **settings)
    pipe = pipe_on(server, chunk_rows=10)
    for name in ("old", "new"):
        pipe.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)")
    pipe.sql("FLUSH BINARY LOGS", "ALTER TABLE old ADD v INT", "INSERT INTO old VALUES (3, 3)")
    include(pipe, "old")
    if kind == "no GTIDs":  # where a table is watched from the start of the file, which has that change
        pipe.sql("FLUSH BINARY LOGS")
    pipe.run()
    pipe.events.clear()
    return pipe


def include(pipe: Pipe, *names: str) -> None:
    """Name these tables in tables.include."""
    patterns = tuple(f"{pipe.database}.{name}" for name in names)
    tables = pipe.config.tables.model_copy(update={"include": patterns})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


def version(pipe: Pipe, name: str) -> tuple[int, object]:
    """The last commit of a copy, and its position."""
    staged = open_target(pipe.config).inspect(TableId(pipe.database, name))
    assert staged is not None
    return staged.version, staged.progress.position


def spooled(pipe: Pipe) -> Spool:
    """The spool that is there."""
    spool = Spool.load(pipe.state / "spool")
    assert spool is not None
    return spool


@ON_EACH
@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB", "no GTIDs"))
def test_a_table_that_is_included_later_is_copied_and_the_other_goes_on_where_it_is(shop: Pipe) -> None:
    """It is not read again, its changes are applied once, and nothing of the binlog is read for it twice."""
    before, stood = version(shop, "old"), spooled(shop).position.place
    include(shop, "old", "new")
    shop.sql("INSERT INTO old VALUES (4, 4)", "INSERT INTO new VALUES (4)")
    shop.run()
    assert {event.table.name for event in shop.seen(WaveCommitted) if isinstance(event, WaveCommitted)} == {"new"}
    merged = [event for event in shop.seen(Merged) if isinstance(event, Merged) and event.table.name == "old"]
    assert [(one.read, one.inserted) for one in merged] == [(1, 1)]
    assert version(shop, "old") != before
    assert spooled(shop).position.place > stood
    shop.assert_equal()
    assert [len(shop.rows(name)) for name in ("old", "new")] == [4, 3]


@ON_EACH
@pytest.mark.long("the same on other servers", only=("MariaDB", "no GTIDs"))
@pytest.mark.long("the way back of what every run has", only=("GTIDs",))
def test_a_table_that_is_excluded_stays_as_it_is_and_goes_on_when_it_is_included_again(shop: Pipe) -> None:
    """`status` names it, the spool keeps nothing for it, and its changes come out of the binlog later."""
    include(shop, "old", "new")
    shop.run()
    include(shop, "old")
    left = version(shop, "new")
    shop.sql("INSERT INTO new VALUES (5)", "INSERT INTO old VALUES (5, 5)")
    shop.run()
    assert version(shop, "new") == left
    assert not everything(shop.state / "spool" / "segments")
    found = status(shop.config)
    [new] = [one for one in found if one.table.name == "new"]
    assert (new.included, new.state, new.rows, new.in_source) == (False, "published", 2, None)
    assert "published, no longer included" in repr(found)
    assert f"{shop.database}.new: no longer included" in found.note
    assert [one.included for one in found if one.table.name == "old"] == [True]

    shop.sql("INSERT INTO new VALUES (6)", "DELETE FROM new WHERE id = 1")
    include(shop, "old", "new")
    shop.events.clear()
    shop.run()
    assert not shop.seen(WaveCommitted)
    shop.assert_equal()
    assert shop.rows("new") == [(2,), (5,), (6,)]
    assert all(one.included for one in status(shop.config))


@pytest.mark.long("whole runs")
def test_a_table_that_is_included_again_too_late_stops_alone(shop: Pipe) -> None:
    """The binlog that it needs is gone: its copy stays, the error names the way out, and the other table goes on."""
    include(shop, "old", "new")
    shop.run()
    include(shop, "old")
    shop.sql("INSERT INTO new VALUES (5)", "FLUSH BINARY LOGS", "INSERT INTO old VALUES (5, 5)")
    shop.run()
    with shop.connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        newest = cursor.fetchall()[-1][0]
    shop.sql(f"PURGE BINARY LOGS TO '{newest}'")
    time.sleep(0.1)
    include(shop, "old", "new")
    shop.sql("INSERT INTO old VALUES (6, 6)")
    left = version(shop, "new")
    with pytest.raises(BinlogGone):
        shop.run()
    assert version(shop, "new") == left
    assert {event.table.name for event in shop.seen(Published)[-1:] if isinstance(event, Published)} == {"old"}
    shop.assert_equal("old")
    stopped = {one.table.name: one.stopped and one.stopped.error for one in status(shop.config)}
    assert stopped == {"new": "BinlogGone", "old": None}
