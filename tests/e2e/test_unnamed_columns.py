"""Sources whose rows in the binlog do not name their columns: the definition at their place says what they are."""

from collections.abc import Callable

import pytest

from lakeingest.commands.signal import ask
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import SchemaChanged
from lakeingest.mysql.connection import query
from lakeingest.pipeline.events import Event, Lifted, Planned, Spooled, StartedOver
from lakeingest.state.signals import SignalFolder
from tests.conftest import GTIDS
from tests.e2e.pipe import Pipe
from tests.e2e.test_state import WITHOUT_GTIDS

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

TABLE = (
    "CREATE TABLE t (a INT, id INT PRIMARY KEY, b INT, e ENUM('x','y'), w VARCHAR(9) CHARACTER SET latin1)",
    "INSERT INTO t VALUES (1, 1, 10, 'x', 'é'), (2, 2, 20, 'y', 'ü')",
    "CREATE TABLE o (id INT PRIMARY KEY, v INT)",
    "INSERT INTO o VALUES (1, 1)",
)
UNSEEN = {
    "exchange": "ALTER TABLE t CHANGE a b INT, CHANGE b a INT",
    "members": "ALTER TABLE t MODIFY e ENUM('y','x')",
    "another column": "ALTER TABLE t DROP b, ADD c INT AFTER id",
}

UNDO = UNSEEN | {
    "members": "ALTER TABLE t MODIFY e ENUM('x','y')",
    "another column": "ALTER TABLE t DROP c, ADD b INT AFTER id",
}


@pytest.fixture(params=[(MYSQL, "MINIMAL"), (MARIADB_11_4, "NO_LOG")], ids=["MINIMAL", "NO_LOG"])
def unnamed(
    request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]
) -> Pipe:
    """A pipeline on a server as it comes."""
    flavor: Flavor
    flavor, metadata = request.param
    pipe = pipe_on(server_of(flavor, server_id="59", binlog_row_metadata=metadata), chunk_rows=10)
    pipe.sql(*TABLE)
    return pipe


@pytest.mark.long("MariaDB, which every run has elsewhere", only=("NO_LOG",))
def test_rows_between_ddl_are_read_by_the_definition_at_their_place(unnamed: Pipe) -> None:
    """Also where two columns exchange their names, members their order, or a column gives its place to another."""
    pipe = unnamed
    pipe.run()
    pipe.sql(
        "INSERT INTO t VALUES (3, 3, 30, 'y', 'ä')",
        "ALTER TABLE t RENAME COLUMN a TO old, RENAME COLUMN b TO a",
        "INSERT INTO t VALUES (4, 4, 40, 'y', 'ö')",
        "ALTER TABLE t DROP a, ADD c INT AFTER id",
        "INSERT INTO t VALUES (5, 5, 50, 'x', 'ß')",
        "UPDATE t SET old = 9 WHERE id = 1",
    )
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    assert len(pipe.seen(Lifted)) == 2
    pipe.sql("ALTER TABLE t MODIFY e ENUM('y','x')", "INSERT INTO t VALUES (6, 6, 60, 'x', 'í')")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("the same on another server", only=("NO_LOG",))
def test_a_change_of_a_charset_alone_reads_the_table_again(unnamed: Pipe) -> None:
    """The rows of before and after it have one definition in the lake, and two in the binlog."""
    pipe = unnamed
    pipe.run()
    pipe.sql(
        "INSERT INTO t VALUES (3, 3, 30, 'y', 'ä')",
        "ALTER TABLE t DEFAULT CHARACTER SET utf8mb4",
        "ALTER TABLE t MODIFY w VARCHAR(9)",
        "INSERT INTO t VALUES (4, 4, 40, 'y', '中')",
    )
    assert pipe.run().stopped == ()
    assert pipe.seen(StartedOver)
    pipe.sql("INSERT INTO t VALUES (5, 5, 50, 'y', '文')")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.parametrize("named", UNSEEN)
@pytest.mark.parametrize("when", ["between runs", "within a run"])
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("between runs", "NO_LOG"))
@pytest.mark.long("another statement of the same kind", only=("exchange",))
@pytest.mark.long("one of the statements in turn", turn="named")
def test_ddl_that_the_binlog_lacks_stops_the_table_before_readers_see_it(unnamed: Pipe, named: str, when: str) -> None:
    """Alone, with its position; undoing it mends nothing that was read, and a copy of the whole table does."""
    pipe = unnamed
    pipe.run()
    rows = pipe.rows("t")
    change = ("INSERT INTO t VALUES (7, 7, 70, 'x', 'a')", "INSERT INTO o VALUES (2, 2)")
    left = [change]

    def within(event: Event) -> None:
        """After the definitions were read, before the binlog is."""
        if left and not isinstance(event, Planned | Spooled):
            left.clear()
            pipe.unlogged(UNSEEN[named])
            pipe.sql(*change)

    if when == "between runs":
        left.clear()
        pipe.unlogged(UNSEEN[named])
        pipe.sql(*change)
    with pytest.raises(SchemaChanged, match="changed its definition since it was copied"):
        pipe.run(observe=within)
    assert not left
    assert pipe.rows("t") == rows
    assert len(pipe.rows("o")) == 2
    pipe.unlogged(UNDO[named])
    with pytest.raises(SchemaChanged, match="its rows may have been read by a wrong one"):
        pipe.run()
    assert pipe.rows("t") == rows
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    wait_for_file(pipe)
    pipe.run()
    pipe.assert_equal()


def wait_for_file(pipe: Pipe) -> None:
    """Without GTIDs all rows are read from the next binlog file on: the run before it stops."""
    [(version,)] = query(pipe.connection, "SELECT VERSION()")
    if GTIDS and "MariaDB" not in str(version):
        with pytest.raises(SchemaChanged):
            pipe.run()
        pipe.begin_file()


@pytest.mark.parametrize("flushed", [False, True], ids=["flushed when asked for", "flushed"])
@pytest.mark.parametrize("undone", [False, True], ids=["left", "undone"])
@pytest.mark.parametrize("named", UNSEEN)
@pytest.mark.long(
    "a variant of an end-to-end case that every run has", only=("exchange", "another column", "undone", "flushed")
)
def test_without_gtids_the_rows_of_another_definition_are_not_read(
    pipe_on: Callable[..., Pipe],
    mysql_server_with: Callable[..., LocalServer],
    named: str,
    *,
    undone: bool,
    flushed: bool,
) -> None:
    """They are in the binlog file that a read begins with, so the whole table is read again from the next file on.

    If the DDL is not undone, it is enough to begin that file before the table is asked for.
    """
    pipe = pipe_on(mysql_server_with(server_id="202", **WITHOUT_GTIDS, binlog_row_metadata="MINIMAL"), chunk_rows=10)
    pipe.sql(*TABLE)
    pipe.run()
    rows = pipe.rows("t")
    pipe.sql("UPDATE t SET a = 3 WHERE id = 1", "SET sql_log_bin = 0", UNSEEN[named], "SET sql_log_bin = 1")
    pipe.sql("UPDATE t SET e = 'x'")
    with pytest.raises(SchemaChanged):
        pipe.run()
    if undone:
        pipe.sql("SET sql_log_bin = 0", UNDO[named], "SET sql_log_bin = 1")
    if flushed:
        pipe.sql("FLUSH BINARY LOGS", "UPDATE t SET id = id + 10")
    [signal] = ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    for _ in range(2 if undone or not flushed else 0):
        with pytest.raises(SchemaChanged):
            pipe.run()
        pipe.sql("UPDATE t SET id = id + 10")
        assert pipe.rows("t") == rows
        assert "FLUSH BINARY LOGS" in note(pipe, signal.number)
    if undone or not flushed:
        pipe.sql("FLUSH BINARY LOGS", "DELETE FROM t LIMIT 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal()


def note(pipe: Pipe, number: int) -> str:
    """What a signal waits for."""
    document = SignalFolder(pipe.state).one(number)
    assert document is not None
    return document.note


@pytest.mark.long("the same on another server", only=("NO_LOG",))
def test_ddl_that_the_binlog_lacks_before_logged_ddl_reads_the_table_again(unnamed: Pipe) -> None:
    """No DDL in the binlog explains the definition, so the rows between are not shown, and all are read again."""
    pipe = unnamed
    pipe.run()
    pipe.unlogged(UNSEEN["members"])
    pipe.sql("UPDATE t SET a = 9, e = 'x'", "ALTER TABLE t ADD d INT", "INSERT INTO t VALUES (8, 8, 80, 'y', 'a', 1)")
    shown: list[object] = []

    def look(event: Event) -> None:
        """What readers see until the rows are read again."""
        if isinstance(event, StartedOver):
            shown.extend(pipe.rows("t"))

    assert pipe.run(observe=look).stopped == ()
    assert shown == [(1, 1, 10, "x", "é"), (2, 2, 20, "y", "ü")]
    pipe.assert_equal()
