"""Shards: many databases and tables of a source in one table of the lake; source = what readers of it see."""

from collections.abc import Callable

import pytest

from lakeingest.core.schema import TableId
from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe
from tests.e2e.sharded import Sharded

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ORDERS = "(id INT PRIMARY KEY, amount DECIMAL(9, 2), v VARCHAR(40), made DATETIME(3))"
ROWS = 45


@pytest.fixture(autouse=True)
def _on_iceberg(lake_format: str) -> None:
    if lake_format != "iceberg":
        pytest.skip("refused on Hudi (tests/config)")


def fill(sharded: Sharded, table: str, definition: str = ORDERS, rows: int = ROWS) -> None:
    """Make a table `database.table` with rows whose keys other shards have, too."""
    values = ", ".join(f"({key}, {key}.25, '{table} {key}', '2026-01-02 03:04:05.678')" for key in range(rows))
    sharded.pipe.sql(f"CREATE TABLE {table} {definition}", f"INSERT INTO {table} (id, amount, v, made) VALUES {values}")


def change(sharded: Sharded, table: str) -> None:
    """Change rows, in one transaction: new ones, deletes, moves of keys."""
    sharded.pipe.sql(
        "START TRANSACTION",
        f"UPDATE {table} SET v = CONCAT(v, '!'), amount = amount + 1 WHERE id % 3 = 0",
        f"DELETE FROM {table} WHERE id % 7 = 1",
        f"UPDATE {table} SET id = id + 1000 WHERE id BETWEEN 20 AND 24",
        f"INSERT INTO {table} (id, v) VALUES (2000 + (SELECT COUNT(*) FROM (SELECT id FROM {table}) AS t), 'new')",
        "COMMIT",
    )


def test_equal_keys_of_shards_are_rows_of_their_own(
    pipe_on: Callable[..., Pipe], any_server: LocalServer
) -> None:
    """In the first copy and after it; a shard without changes stays, and so does one that is read again."""
    with Sharded.on(pipe_on, any_server, 2, chunk_rows=10) as sharded:
        first, second = sharded.databases
        tables = [f"{first}.orders", f"{first}.orders_2025", f"{second}.orders"]
        for table in tables:
            fill(sharded, table)
        sharded.pipe.run()
        assert sharded.assert_exact().num_rows == 3 * ROWS
        for table in tables[:2]:
            change(sharded, table)
        sharded.pipe.run()
        sharded.assert_exact()
        with sharded.table() as shared:
            key = {shared.schema().find_column_name(number) for number in shared.schema().identifier_field_ids}
        assert key == {"id", "_lakeingest_database", "_lakeingest_table"}
        # a new shard joins, and another one is re-read
        fill(sharded, f"{second}.orders_2025", rows=7)
        change(sharded, tables[2])
        sharded.pipe.run()
        sharded.assert_exact()
        assert TableId(second, "orders_2025") in sharded.shards
