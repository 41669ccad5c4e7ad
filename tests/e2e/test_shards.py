"""Shards: many databases and tables of a source in one table of the lake; source = what readers of it see."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.commands.verify import verify
from lakeingest.config.target import History
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.errors import ForeignWrite, NotBuiltYet, UnsupportedTable
from lakeingest.lake.formats import open_points
from lakeingest.lake.iceberg.shards.shared_tables import SharedTables
from lakeingest.pipeline.events import TableStopped
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
        f"UPDATE {table} SET amount = amount + 1 WHERE id % 3 = 0",
        f"DELETE FROM {table} WHERE id % 7 = 1",
        f"UPDATE {table} SET id = id + 1000 WHERE id BETWEEN 20 AND 24",
        f"INSERT INTO {table} (id, amount) SELECT MAX(id) + 1, 7 FROM {table}",
        "COMMIT",
    )


@contextmanager
def two_copied(pipe_on: Callable[..., Pipe], server: LocalServer) -> Iterator[tuple[Sharded, str, str]]:
    """Two shards that a run has copied, and the names of their tables."""
    with Sharded.on(pipe_on, server, 2, chunk_rows=10) as sharded:
        first, second = [f"{database}.orders" for database in sharded.databases]
        fill(sharded, first)
        fill(sharded, second)
        sharded.pipe.run()
        yield sharded, first, second


@pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_equal_keys_of_shards_are_rows_of_their_own(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> None:
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


class Died(BaseException):
    """A process ends here."""


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_a_run_that_dies_between_the_two_steps_of_a_publish_is_finished(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the shard as it was before; the next run shows it, even if the source has not changed since."""
    with Sharded.on(pipe_on, mysql_server, 2, chunk_rows=10) as sharded:
        tables = [f"{database}.orders" for database in sharded.databases]
        for table in tables:
            fill(sharded, table)

        def die(*_: Any) -> None:
            raise Died

        for seen in (0, 2 * ROWS):
            with monkeypatch.context() as patch:
                patch.setattr(SharedTables, "show", die)
                with pytest.raises(Died):
                    sharded.pipe.run()
            if seen:
                with sharded.table() as shared:
                    assert shared.scan().count() == seen
            sharded.pipe.run()
            sharded.assert_exact()
            for table in tables:
                change(sharded, table)


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_ddl_of_a_shard_is_followed_beside_shards_that_do_not_have_it(
    pipe_on: Callable[..., Pipe], any_server: LocalServer
) -> None:
    """A column that a shard lacks is NULL in its rows, also if it had the column, or gets it again."""
    with Sharded.on(pipe_on, any_server, 3, chunk_rows=10) as sharded:
        first, second, third = tables = [f"{database}.orders" for database in sharded.databases]
        for table in tables[:2]:
            fill(sharded, table)
        fill(
            sharded, third, "(made DATETIME(3), v VARCHAR(40), extra INT, id BIGINT PRIMARY KEY, amount DECIMAL(12, 2))"
        )
        sharded.pipe.run()
        sharded.assert_exact()
        ddl = [
            (first, "ADD COLUMN w INT", f"UPDATE {first} SET w = id"),
            (second, "ADD COLUMN w INT NOT NULL DEFAULT 5", f"UPDATE {second} SET w = 6 WHERE id < 9"),
            (first, "DROP COLUMN v", f"UPDATE {first} SET amount = 1 WHERE id = 3"),
            (second, "RENAME COLUMN v TO extra_text", f"DELETE FROM {second} WHERE id = 2"),
            (first, "ADD COLUMN v VARCHAR(40)", f"UPDATE {first} SET v = 'again' WHERE id = 4"),
            (first, "MODIFY id BIGINT", f"INSERT INTO {first} (id) VALUES (5000000000)"),
            (third, "DROP COLUMN extra", f"DELETE FROM {third} WHERE id = 1"),
            (first, "RENAME COLUMN w TO extra", f"UPDATE {first} SET extra = 0 WHERE id = 6"),
        ]
        for table, alteration, then in ddl:
            sharded.pipe.sql(f"ALTER TABLE {table} {alteration}", then)
            change(sharded, second if table == third else third)
            sharded.pipe.run()
            sharded.assert_exact()
        sharded.pipe.sql(f"TRUNCATE TABLE {second}", f"INSERT INTO {second} (id) VALUES (1)")
        sharded.pipe.run()
        sharded.assert_exact()
        stops = [event for event in sharded.pipe.seen(TableStopped) if isinstance(event, TableStopped)]
        # rows are read again for another type of the key alone, as of each copy
        assert [(str(stop.table), stop.again) for stop in stops] == [(first, True)]


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_a_shard_with_another_type_or_key_stops_alone(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> None:
    """Before a row of it moves; and at its DDL. The other shards go on."""
    with Sharded.on(pipe_on, mysql_server, 3, chunk_rows=10) as sharded:
        first, second, third = [f"{database}.orders" for database in sharded.databases]
        fill(sharded, first)
        fill(sharded, second)
        sharded.pipe.run()
        fill(sharded, third, "(id INT, amount DECIMAL(9, 2), v VARCHAR(40), made DATETIME(3), PRIMARY KEY (id, v))")
        change(sharded, first)
        with pytest.raises(UnsupportedTable, match=r"its key is .*, and that of the other shards is"):
            sharded.pipe.run()
        sharded.assert_exact(but=[sharded.shards[2]])
        sharded.pipe.sql(f"DROP TABLE {third}")
        fill(sharded, third, "(id INT PRIMARY KEY, amount VARCHAR(20), v VARCHAR(40), made DATETIME(3))")
        with pytest.raises(UnsupportedTable, match=r"amount is string, and decimal\(9, 2\) in the other shards"):
            sharded.pipe.run()
        sharded.pipe.sql(f"DROP TABLE {third}", f"ALTER TABLE {second} ADD COLUMN w INT")
        sharded.pipe.run()
        sharded.pipe.sql(f"ALTER TABLE {first} ADD COLUMN w VARCHAR(9)")
        change(sharded, second)
        with pytest.raises(UnsupportedTable, match="w is string, and int in the other shards"):
            sharded.pipe.run()
        sharded.assert_exact()  # what readers see of the first is as of its DDL, which changed no row


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_commands_work_on_a_shard_alone(pipe_on: Callable[..., Pipe], mysql_server: LocalServer) -> None:
    """It is read again, verified, repaired, maintained and shown by `status`, beside another one with the same keys."""
    with two_copied(pipe_on, mysql_server) as (sharded, first, second):
        config, spark = sharded.pipe.config, sharded.pipe.spark
        sharded.pipe.unlogged(f"DELETE FROM {first} WHERE id = 7", f"UPDATE {first} SET v = 'unseen' WHERE id = 8")
        assert [(str(result.table), result.equal) for result in verify(config, (), spark)] == [
            (first, False),
            (second, True),
        ]
        ask(config, "resnapshot", [first], scope=WHOLE, spark=spark)
        sharded.pipe.run()
        sharded.assert_exact()
        assert all(result.equal for result in verify(config, (), spark))
        [_] = ask(config, "maintain", [first], spark=spark)
        sharded.assert_exact()
        found = {str(one.table): one for one in status(config)}
        assert {name: one.rows for name, one in found.items()} == {first: ROWS - 1, second: ROWS}
        assert {one.target for one in found.values()} == {f"lake.{sharded.pipe.database}_lake.all"}
        with pytest.raises(NotBuiltYet, match="points"):
            open_points(config)


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_changes_of_the_shared_table_by_others_are_found(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Before anything of ours replaces them. A compaction by others has changed no row, so the next commit goes on."""
    with two_copied(pipe_on, mysql_server) as (sharded, first, second):
        name = f"lake.{sharded.pipe.database}_lake.all"
        sharded.pipe.spark.sql(
            f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
        )
        change(sharded, first)
        sharded.pipe.run()
        sharded.assert_exact()
        with sharded.table() as shared:
            before = shared.metadata.current_snapshot_id
        sharded.pipe.spark.sql(f"DELETE FROM {name} WHERE id = 5")
        with pytest.raises(ForeignWrite, match="someone else wrote snapshot"):
            sharded.pipe.run()
        sharded.pipe.spark.sql(f"CALL lake.system.set_current_snapshot(table => '{name}', snapshot_id => {before})")
        change(sharded, second)
        sharded.pipe.run()
        sharded.assert_exact()
        sharded.pipe.spark.sql(f"ALTER TABLE {name} ADD COLUMN theirs INT")
        with pytest.raises(ForeignWrite, match="someone else changed the columns"):
            sharded.pipe.run()


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
@pytest.mark.parametrize(
    ("pattern", "shared"), [("{table}", ["orders", "orders_2025"]), ("of_{database}", None)], ids=["table", "database"]
)
def test_one_field_of_the_name_may_be_left_out(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, pattern: str, shared: list[str] | None
) -> None:
    """Then a shared table has the tables of one name, or those of one database."""
    with Sharded.on(pipe_on, mysql_server, 2, pattern, chunk_rows=10) as sharded:
        for database in sharded.databases:
            fill(sharded, f"{database}.orders")
            fill(sharded, f"{database}.orders_2025")
        sharded.pipe.run()
        for name in shared or [f"of_{database}" for database in sharded.databases]:
            others = [one for one in sharded.shards if name not in {one.name, f"of_{one.database}"}]
            assert sharded.assert_exact(but=others, name=name).num_rows == 2 * ROWS


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_older_commits_of_the_shared_table_stay_readable_while_it_has_them(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Whatever the shards have merged, compacted and expired since; later their files go."""
    with Sharded.on(pipe_on, mysql_server, 2, chunk_rows=10) as sharded:
        first, second = [f"{database}.orders" for database in sharded.databases]
        soon = History.model_validate({"keep": "0s", "readers": "0s", "least": 3})
        target = sharded.pipe.config.target.model_copy(update={"history": soon})
        sharded.pipe.config = sharded.pipe.config.model_copy(update={"target": target})
        fill(sharded, first)
        fill(sharded, second)
        sharded.pipe.run()
        for number in range(24):
            sharded.pipe.sql(f"UPDATE {first} SET v = 'round {number}' WHERE id % 2 = {number % 2}")
            sharded.pipe.run()
            if number % 8 == 7:
                [_] = ask(sharded.pipe.config, "maintain", [first], spark=sharded.pipe.spark)
            with sharded.table() as shared:
                for snapshot in shared.metadata.snapshots:
                    assert shared.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows in {ROWS, 2 * ROWS}
        sharded.assert_exact()
        with sharded.table() as shared, sharded.catalog() as catalog:
            namespace = f"{sharded.pipe.database}_lake_all__lakeingest_{sharded.databases[0]}"
            copy = catalog.load_table((namespace, "orders"))
            assert len(shared.metadata.snapshots) < 24
            assert len(copy.metadata.snapshots) < 60


@pytest.mark.long("whole runs; tests/lake/iceberg/test_shards.py shows what happens in the lake")
def test_rows_of_a_shard_leave_when_its_own_table_is_dropped(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """An excluded shard stays as it was, until an operator drops its table; then `maintain` lets its rows leave."""
    with two_copied(pipe_on, mysql_server) as (sharded, first, second):
        config = sharded.pipe.config
        tables = config.tables.model_copy(update={"exclude": (second,)})
        sharded.pipe.config = config.model_copy(update={"tables": tables})
        change(sharded, first)
        sharded.pipe.run()
        sharded.assert_exact()  # nothing has changed in the second one
        with sharded.catalog() as catalog:
            catalog.drop_table((f"{sharded.pipe.database}_lake_all__lakeingest_{sharded.databases[1]}", "orders"))
        change(sharded, first)
        sharded.pipe.run()
        sharded.assert_exact()
        ask(sharded.pipe.config, "maintain", [first], spark=sharded.pipe.spark)
        [left, _] = sharded.shards
        with sharded.table() as shared:
            found = shared.scan().to_arrow()
        assert set(found["_lakeingest_database"].to_pylist()) == {left.database}
        sharded.pipe.config = config  # it is included again: it is copied again
        sharded.pipe.run()
        sharded.assert_exact()


@pytest.mark.long("64 tables")
def test_sixty_four_shards(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, record_property: Callable[[str, object], None]
) -> None:
    """The first copy, a change in each, a change in one, and nothing to do."""
    with Sharded.on(pipe_on, mysql_server, 16) as sharded:
        tables = [f"{database}.orders_{number}" for database in sharded.databases for number in range(4)]
        for table in tables:
            fill(sharded, table, rows=100)
        rounds: list[tuple[str, list[str]]] = [
            ("first copy", []),
            ("a change in each", tables),
            ("a change in one", tables[:1]),
            ("nothing to do", []),
        ]
        for name, changed in rounds:
            for table in changed:
                change(sharded, table)
            began, cpu = time.monotonic(), time.process_time()
            sharded.pipe.run()
            seconds, of_cpu = time.monotonic() - began, time.process_time() - cpu
            record_property("64 shards", f"{name}: {seconds:.1f} s, {of_cpu:.1f} CPU s of the run's own process")
            sharded.assert_exact()
