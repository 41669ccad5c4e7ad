"""What is not built yet stops the stream by name, with the position intact and readers undisturbed."""

from collections.abc import Callable

import pytest

from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.core.waves.scope import OVER_GAP
from lakeingest.demo.server import LocalServer
from lakeingest.errors import (
    LakeIngestError,
    PreflightFailed,
    SchemaChanged,
    UnsupportedEvent,
    UnsupportedValue,
)
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ORDERS = ("CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(40), d DATE)", "INSERT INTO orders VALUES (1, 'a', NULL)")
STREAM = {
    "TRUNCATE": ("TRUNCATE orders",),
    "DDL": ("CREATE TABLE others LIKE orders", "RENAME TABLE orders TO kept, others TO orders"),
    "image": ("SET binlog_row_image = MINIMAL", "UPDATE orders SET v = 'x'"),
    "UPDATE": ("SET binlog_format = STATEMENT", "UPDATE beside JOIN orders USING (id) SET j = '1'"),
    "PARTIAL": (
        'INSERT INTO beside VALUES (1, \'{"a": 1, "b": 2}\')',
        "SET binlog_row_value_options = PARTIAL_JSON",
        "UPDATE beside SET j = JSON_SET(j, '$.a', 7)",
    ),
}


# What is done to a server all the time, and changes no row, column or key of a copied table
HARMLESS = (
    "CREATE INDEX by_v ON orders (v)",
    "ALTER TABLE orders ADD INDEX by_d (d), COMMENT 'orders of the shop'",
    "ALTER TABLE orders ADD UNIQUE u (v, id), DROP INDEX by_d",
    "ALTER TABLE orders FORCE",
    "ALTER TABLE orders ENGINE = InnoDB, AUTO_INCREMENT = 1000",
    "DROP INDEX by_v ON orders",
    "ANALYZE TABLE orders",
    "OPTIMIZE TABLE orders",
    "CREATE TRIGGER tr BEFORE INSERT ON orders FOR EACH ROW SET NEW.v = UPPER(NEW.v)",
    "CREATE VIEW shown AS SELECT * FROM orders",
    "CREATE TABLE beside LIKE orders",
    "ALTER TABLE beside ADD COLUMN c INT, DROP COLUMN d",
    "INSERT INTO beside (id) VALUES (1)",
    "TRUNCATE beside",
    "RENAME TABLE beside TO others",
    "ALTER TABLE others RENAME TO beside",
    "CREATE TABLE filled AS SELECT * FROM orders",
    "RENAME TABLE beside TO x, filled TO beside, x TO filled",
    "DROP TABLE beside, filled",
    "DROP VIEW shown",
    "DROP TRIGGER tr",
)


def stops(pipe: Pipe, error: type[LakeIngestError], named: str) -> None:
    """A run stops with this error, each time; what readers see and the position do not move."""
    [before] = status(pipe.config, [f"{pipe.database}.orders"])
    rows = pipe.rows("orders")
    for _ in range(2):
        with pytest.raises(error, match=f"(?i){named}") as raised:
            pipe.run("orders")
        assert raised.value.exit_code == 3
        assert "\n" not in str(raised.value)
    [after] = status(pipe.config, [f"{pipe.database}.orders"])
    assert (after.state, after.position) == ("published", before.position)
    assert pipe.rows("orders") == rows


@pytest.mark.long("whole runs")
@pytest.mark.parametrize("named", STREAM)
def test_the_stream_stops_by_name(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], named: str
) -> None:
    """On a watched table or beside it, each is refused when it comes in the binlog, though preflight saw nothing."""
    pipe = pipe_on(mysql_server_with(server_id="55"), chunk_rows=10)
    pipe.sql(*ORDERS, "CREATE TABLE beside (id INT PRIMARY KEY, j JSON)")
    pipe.freeze()
    pipe.run("orders")
    pipe.sql(*STREAM[named])
    stops(pipe, UnsupportedEvent, named)


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_a_change_in_statement_format_stops_only_its_own_table(any_pipe: Pipe) -> None:
    """One of a table that is not copied stops nothing, as a checksum of tables writes it, where triggers are seen."""
    pipe = any_pipe
    pipe.config = pipe.config.model_copy(update={"source": pipe.administrator})
    pipe.sql(*ORDERS, "CREATE TABLE others (id INT PRIMARY KEY, v INT)", "INSERT INTO others VALUES (1, 1)")
    pipe.run("orders", "others")
    pipe.sql("CREATE TABLE checksums (t CHAR(64) PRIMARY KEY, crc BIGINT)")
    pipe.sql(
        "INSERT INTO others VALUES (2, 2)",
        "SET binlog_format = STATEMENT",
        "REPLACE INTO checksums SELECT 'orders', BIT_XOR(CRC32(CONCAT(id, v))) FROM orders",
        "SET binlog_format = ROW",
        "UPDATE orders SET v = 'b'",
    )
    assert pipe.run("orders", "others").stopped == ()
    pipe.assert_equal("orders", "others")
    pipe.sql(
        "SET binlog_format = STATEMENT",
        "UPDATE orders SET v = 'c' WHERE id = 1",
        "SET binlog_format = ROW",
        "INSERT INTO others VALUES (3, 3)",
    )
    with pytest.raises(UnsupportedEvent, match="a change in statement format \\(UPDATE"):
        pipe.run("orders", "others")
    pipe.assert_equal("others")
    assert pipe.rows("orders") == [(1, "b", None)]
    pipe.sql(
        "SET binlog_format = STATEMENT",
        "UPDATE others JOIN orders USING (id) SET others.v = 4",
        "SET binlog_format = ROW",
    )
    for _ in range(2):
        with pytest.raises(UnsupportedEvent, match="a change in statement format"):
            pipe.run("orders", "others")
    for table in ("orders", "others"):
        ask(pipe.config, "resnapshot", [f"{pipe.database}.{table}"], scope=OVER_GAP, wait=False)
    pipe.run("orders", "others")
    pipe.assert_equal("orders", "others")


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_ddl_that_changes_no_copied_table_stops_nothing(any_pipe: Pipe) -> None:
    """Indexes and comments of a copied one, anything done to others: while it is copied, and when it is caught up."""
    pipe = any_pipe
    pipe.sql(ORDERS[0], f"INSERT INTO orders VALUES {', '.join(f'({n}, NULL, NULL)' for n in range(100))}")
    left = list(HARMLESS)

    def go_on(event: Event) -> None:
        """One after each wave."""
        if isinstance(event, WaveCommitted) and left:
            pipe.sql(left.pop(0), f"UPDATE orders SET v = 'wave' WHERE id IN ({len(left)}, {100 - len(left)})")

    pipe.run("orders", observe=go_on)
    assert len(left) < len(HARMLESS)
    for number, statement in enumerate(left):
        pipe.sql(
            f"UPDATE orders SET v = 'a' WHERE id = {number}", statement, f"DELETE FROM orders WHERE id = {number + 50}"
        )
    pipe.run("orders")
    assert pipe.run("orders").caught_up
    pipe.assert_equal("orders")
    assert len(pipe.rows("orders")) == 100 - len(left)


@pytest.mark.long("whole runs")
def test_a_changed_definition_stops_the_run(pipe: Pipe) -> None:
    """DDL on a copied table is named, whether it changed the columns or only stands in the binlog."""
    pipe.freeze()
    pipe.sql(*ORDERS)
    pipe.run()
    pipe.sql("ALTER TABLE orders ADD c INT")
    stops(pipe, SchemaChanged, "orders: DDL or tables.options changed")
    pipe.sql("ALTER TABLE orders DROP c")
    stops(pipe, UnsupportedEvent, "DDL .*ALTER TABLE orders")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("binlog_row_value_options", "PARTIAL_JSON"),
        ("binlog_format", "STATEMENT"),
        ("binlog_order_commits", "OFF"),
    ],
)
@pytest.mark.long("another setting; tests/mysql/preflight has each", only=("PARTIAL_JSON",))
def test_preflight_stops_by_name(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer], variable: str, value: str
) -> None:
    """A server on which the stream would stop is refused before anything is made."""
    pipe = pipe_on(mysql_server_with(server_id="57"), chunk_rows=10)
    pipe.sql(*ORDERS, f"SET @old = @@global.{variable}", f"SET GLOBAL {variable} = '{value}'")
    try:
        with pytest.raises(PreflightFailed, match=variable) as raised:
            pipe.run()
        assert raised.value.exit_code == 3
        [table] = status(pipe.config)
        assert table.state == "not copied yet"
    finally:
        pipe.sql(f"SET GLOBAL {variable} = @old")


def test_columns_that_are_not_exact_yet_are_refused_by_name(pipe: Pipe) -> None:
    """A table with such a column, or without a key, is never half copied."""
    pipe.sql(
        "CREATE TABLE a (id INT PRIMARY KEY, _lakeingest_j INT, _lakeingest_t INT)",
        "CREATE TABLE b (id VARCHAR(5))",
    )
    with pytest.raises(
        PreflightFailed, match=r"column _lakeingest_j is int: names.*column _lakeingest_t is int: names"
    ):
        pipe.run("a")
    with pytest.raises(PreflightFailed, match="b: it has neither a primary key"):
        pipe.run("b")


@pytest.mark.parametrize("path", ["snapshot", "binlog"])
def test_a_zero_date_is_refused_on_both_paths(pipe: Pipe, path: str) -> None:
    """It has no exact place in the target: named, and nothing of it is published."""
    zero = ("SET sql_mode = ''", "INSERT INTO orders VALUES (9, 'zero', '0000-00-00')")
    pipe.sql(*ORDERS, *(zero if path == "snapshot" else ()))
    if path == "snapshot":
        with pytest.raises(UnsupportedValue, match=rf"{pipe.database}\.orders: column d"):
            pipe.run()
        return
    pipe.run()
    pipe.sql(*zero)
    stops(pipe, UnsupportedValue, "orders.*column d")
