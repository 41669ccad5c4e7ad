"""Shards with a global key: whole runs, in which rows move between shards, and doubles come and go."""

import time
from collections.abc import Callable

import pytest

from lakeingest.commands.status import status
from lakeingest.commands.verify import verify
from lakeingest.demo.server import LocalServer
from lakeingest.errors import KeyDoubled
from lakeingest.pipeline.events import TableStopped
from tests.e2e.pipe import Pipe
from tests.e2e.sharded import Sharded

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ORDERS = "(id INT PRIMARY KEY, v VARCHAR(40))"


@pytest.fixture(autouse=True)
def _on_iceberg(lake_format: str) -> None:
    if lake_format != "iceberg":
        pytest.skip("refused on Hudi (tests/config)")


def fill(sharded: Sharded, table: str, first: int, rows: int = 30) -> None:
    """Make a table `database.table` with rows whose keys begin at `first`."""
    values = ", ".join(f"({key}, '{table}')" for key in range(first, first + rows))
    sharded.pipe.sql(f"CREATE TABLE {table} {ORDERS}", f"INSERT INTO {table} VALUES {values}")


def move(sharded: Sharded, keys: str, source: str, to: str, *, at_once: bool = True) -> None:
    """Move rows from shard to shard, in one transaction or in two."""
    steps = [f"INSERT INTO {to} SELECT * FROM {source} WHERE id {keys}", f"DELETE FROM {source} WHERE id {keys}"]
    sharded.pipe.sql(*(("START TRANSACTION", *steps, "COMMIT") if at_once else steps))


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_rows_move_between_shards_in_any_direction(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> None:
    """In one transaction or in two, and two may change places. No shard stops, and no key is there twice."""
    with Sharded.on(pipe_on, any_server, 3, chunk_rows=10, global_key=True) as sharded:
        first, second, third = [f"{database}.orders" for database in sharded.databases]
        for number, table in enumerate((first, second, third)):
            fill(sharded, table, 100 * number)
        sharded.pipe.run()
        assert sharded.assert_exact().num_rows == 90
        move(sharded, "= 5", first, second)
        move(sharded, "= 105", second, first)
        move(sharded, "= 110", second, third)
        move(sharded, "= 210", third, first)
        move(sharded, "IN (11, 12)", first, third, at_once=False)
        sharded.pipe.run()
        rows = sharded.assert_exact()
        assert len(set(rows["id"].to_pylist())) == rows.num_rows == 90
        move(sharded, "= 220", third, second)  # of a shard that is published later
        sharded.pipe.run()
        sharded.assert_exact()
        assert sharded.pipe.seen(TableStopped) == []
        with sharded.table() as shared:
            key = {shared.schema().find_column_name(number) for number in shared.schema().identifier_field_ids}
        assert key == {"id"}


@pytest.mark.long("whole runs; tests/lake/iceberg/test_global_keys.py shows what happens in the lake")
def test_a_double_stops_a_shard_by_name_until_it_is_gone(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """The other shards go on; DDL and changes of the stopped one are followed, and shown once the double is gone."""
    with Sharded.on(pipe_on, mysql_server, 2, chunk_rows=10, global_key=True) as sharded:
        first, second = [f"{database}.orders" for database in sharded.databases]
        fill(sharded, first, 0)
        fill(sharded, second, 20)
        with pytest.raises(KeyDoubled, match=rf"^{second}: its key id = \d+ is a key of {first}, too"):
            sharded.pipe.run()
        sharded.assert_exact(but=sharded.shards[1:])
        sharded.pipe.sql(f"DELETE FROM {first} WHERE id >= 20")
        sharded.pipe.run()
        sharded.assert_exact()
        sharded.pipe.sql(f"INSERT INTO {second} VALUES (1, 'double')", f"UPDATE {first} SET v = 'new' WHERE id = 2")
        for _ in range(2):
            with pytest.raises(KeyDoubled, match=rf"^{second}: its key id = 1 is a key of {first}, too"):
                sharded.pipe.run()
            sharded.assert_exact(but=sharded.shards[1:])
        found = {str(one.table): one for one in status(sharded.pipe.config)}
        assert "is a key of" in str(found[second].stopped)
        sharded.pipe.sql(
            f"ALTER TABLE {second} ADD COLUMN w INT NOT NULL DEFAULT 3",
            f"UPDATE {first} SET v = 'newer' WHERE id = 2",
            f"INSERT INTO {second} (id, v) VALUES (70, 'beside the double')",
        )
        with pytest.raises(KeyDoubled):
            sharded.pipe.run()
        sharded.assert_exact(but=sharded.shards[1:])
        sharded.pipe.sql(f"DELETE FROM {second} WHERE id = 1")
        sharded.pipe.run()
        sharded.assert_exact()
        assert all(result.equal for result in verify(sharded.pipe.config, (), sharded.pipe.spark))


@pytest.mark.long("16 tables")
def test_what_a_global_key_costs(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, record_property: Callable[[str, object], None]
) -> None:
    """The first copy of 16 shards, and a change in each, without a global key and with one; keys of all are mixed."""
    for global_key in (False, True):
        with Sharded.on(pipe_on, mysql_server, 16, global_key=global_key) as sharded:
            tables = [f"{database}.orders" for database in sharded.databases]
            for number, table in enumerate(tables):
                values = ", ".join(f"({key}, '{table}')" for key in range(number, 160_000, 16))
                sharded.pipe.sql(f"CREATE TABLE {table} {ORDERS}", f"INSERT INTO {table} VALUES {values}")
            for name in ("first copy", "a change in each"):
                began = time.monotonic()
                sharded.pipe.run()
                kind = "global key" if global_key else "no global key"
                record_property(f"16 shards of 10,000 rows, {kind}, {name}", f"{time.monotonic() - began:.1f} s")
                sharded.assert_exact()
                if name == "first copy":
                    for number, table in enumerate(tables):
                        sharded.pipe.sql(f"INSERT INTO {table} VALUES ({200_000 + number}, 'new')")
