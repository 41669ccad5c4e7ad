"""Copies with partitions, on real servers: rows that move, NULLs, DDL, re-snapshots, compactions; source = target."""

import shutil
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakeingest.commands.plan import plan
from lakeingest.commands.repair import repair
from lakeingest.commands.signal import ask
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PartitionsDiffer, PreflightFailed
from lakeingest.pipeline.events import TableStopped
from tests.e2e.exact import comparer
from tests.e2e.pipe import Pipe
from tests.lake.hudi.partitioned import places as places_on_hudi
from tests.lake.partitioned import places
from tests.lake.shown import catalog_of, shown

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.any_format]

TABLE = """
CREATE TABLE orders (
    id INT PRIMARY KEY, `made at` DATETIME(3), stamp TIMESTAMP NULL, country VARCHAR(9), amount DECIMAL(9, 2), v TEXT
)"""
DAYS = 4
ROWS = 60


def named(pipe: Pipe, *statements: str) -> tuple[str, ...]:
    """The statements with names that the lake format can have."""
    blank = "_" if pipe.config.target.format == "hudi" else " "
    return tuple(statement.replace("made at", f"made{blank}at") for statement in statements)


def fill(pipe: Pipe) -> None:
    """Rows of some days, before and after 1970, and rows whose partition is NULL."""
    rows = [
        f"({key}, {'NULL' if key % 7 == 0 else moment(key % DAYS)}, {'NULL' if key % 5 == 0 else moment(1 + key % 3)},"
        f" {'NULL' if key % 11 == 0 else quoted(key % 3)}, {key}.25, 'v{key}')"
        for key in range(ROWS)
    ]
    pipe.sql(*named(pipe, TABLE), f"INSERT INTO orders VALUES {', '.join(rows)}")


def moment(day: int) -> str:
    """A time of one of the days, in SQL: a moment before 1970 or a later one."""
    return f"'19{69 if day == 0 else 70 + day}-12-31 23:59:59.999'" if day < 2 else f"'2026-02-0{day} 12:00:00.5'"


def quoted(number: int) -> str:
    """A country."""
    return ("'DE'", "''", "'x/y=\\\\z'")[number]


# In one transaction each: rows move there, there and back, and over two partitions; new ones move before they are seen
MOVES = (
    (
        f"UPDATE orders SET `made at` = {moment(2)} WHERE id % 4 = 1",
        f"UPDATE orders SET `made at` = {moment(0)} WHERE id = 5",
        f"UPDATE orders SET `made at` = {moment(1)} WHERE id = 9",
        "UPDATE orders SET `made at` = NULL, country = NULL WHERE id IN (2, 3)",
        f"UPDATE orders SET `made at` = {moment(3)} WHERE id = 7",
        "DELETE FROM orders WHERE id IN (101, 102)",
        f"INSERT INTO orders (id, `made at`, country) VALUES (101, {moment(0)}, 'new'), (102, NULL, NULL)",
        f"UPDATE orders SET `made at` = {moment(3)} WHERE id IN (101, 102)",
        "DELETE FROM orders WHERE id = 102",
    ),
    (
        f"UPDATE orders SET `made at` = {moment(1)} WHERE id % 4 = 1",
        f"UPDATE orders SET id = id + 1000, `made at` = {moment(3)} WHERE id BETWEEN 20 AND 24",
        "DELETE FROM orders WHERE id = 13",
        f"INSERT INTO orders (id, `made at`, country, v) VALUES (13, {moment(3)}, 'DE', 'back')",
    ),
)


def move(pipe: Pipe, *numbers: int) -> None:
    """Transactions of MOVES, each at once."""
    for number in numbers:
        pipe.sql("START TRANSACTION", *named(pipe, *MOVES[number]), "COMMIT")


def divide(pipe: Pipe, *texts: str) -> None:
    """Let new copies of `orders` have these partitions."""
    options = pipe.config.tables.options.get("*.*", TableOptions()).model_copy(
        update={"partition_by": TableOptions(partition_by=named(pipe, *texts)).partition_by}
    )
    tables = pipe.config.tables.model_copy(update={"options": {f"{pipe.database}.orders": options}})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


def drop_copy(pipe: Pipe) -> None:
    """Take the copy of `orders` away, as an operator does."""
    if pipe.config.target.format == "hudi":
        shutil.rmtree(pipe.config.target.folder(TableId(pipe.database, "orders")).path)
    else:
        pipe.spark.sql(f"DROP TABLE lake.{pipe.database}.orders")


def assert_exact(pipe: Pipe, fields: int) -> int:
    """Source = target by `verify` and past our code, and each file is in its partition. Returns the partitions."""
    pipe.assert_equal("orders")
    orders = TableId(pipe.database, "orders")
    if pipe.config.target.format == "hudi":
        rows = shown(pipe.spark, pipe.config.target, orders)._collect_as_arrow()  # noqa: SLF001 - Spark 3.5 has no toArrow
        with comparer(pipe.administrator, pipe.database, pipe.config.tables) as compared:
            assert compared.difference("orders", pa.Table.from_batches(rows)) == ""
        return len(set(places_on_hudi(pipe.config.target, orders).values()))
    with (
        catalog_of(pipe.config.target) as catalog,
        comparer(pipe.administrator, pipe.database, pipe.config.tables) as compared,
    ):
        table = catalog.load_table((pipe.database, "orders"))
        assert compared.difference("orders", table.scan().to_arrow()) == ""
        found = places(table)
    assert {len(partition) for _, partition in found.values()} == {fields}
    assert len(pipe.rows("orders")) == table.scan().count()
    return len(set(found.values()))


@pytest.mark.parametrize(
    "texts", [["days(`made at`)"], ["months(stamp)", "country"], ["bucket(3, id)"]], ids=" and ".join
)
@pytest.mark.long("many runs; tests/lake/test_partitions moves rows in every run")
def test_rows_that_move_are_once_in_the_copy(
    pipe_on: Callable[..., Pipe], any_server: LocalServer, texts: list[str]
) -> None:
    """From the first copy on: with changes while it is copied, re-snapshots, repairs, compactions and DDL."""
    pipe = pipe_on(any_server, chunk_rows=10)
    divide(pipe, *texts)
    fill(pipe)
    moved = iter((0, 1))
    pipe.run(observe=lambda _: move(pipe, *[number for number in [next(moved, None)] if number is not None]))
    partitions = assert_exact(pipe, len(texts))
    assert partitions > 2
    for number in (0, 1, 0):
        move(pipe, number)
        pipe.run()
        assert_exact(pipe, len(texts))
    # DDL: a column more with values for all rows, and the partition's column under another name, in one transaction
    pipe.sql("ALTER TABLE orders ADD COLUMN n INT NOT NULL DEFAULT 5", "UPDATE orders SET n = 6 WHERE id < 10")
    pipe.sql("ALTER TABLE orders RENAME COLUMN country TO nation, MODIFY v LONGTEXT")
    pipe.sql("ALTER TABLE orders RENAME COLUMN nation TO country", "INSERT INTO orders (id) VALUES (2000)")
    move(pipe, 1)
    pipe.run()
    assert_exact(pipe, len(texts))
    # changes that the binlog does not have, which a repair and a re-snapshot find
    pipe.unlogged(*named(pipe, f"UPDATE orders SET `made at` = {moment(2)}, country = 'un' WHERE id IN (1, 30)"))
    [result] = repair(pipe.config, [f"{pipe.database}.orders"], pipe.spark)
    assert result.equal
    assert_exact(pipe, len(texts))
    pipe.unlogged(f"UPDATE orders SET stamp = {moment(3)}, country = NULL WHERE id IN (4, 31)")
    pipe.begin_file()
    ask(pipe.config, "resnapshot", [f"{pipe.database}.orders"], scope=WHOLE, wait=False)
    move(pipe, 0)
    pipe.run()
    assert_exact(pipe, len(texts))
    [done] = ask(pipe.config, "maintain", [f"{pipe.database}.orders"], spark=pipe.spark)
    assert done.state == "done"
    move(pipe, 1)
    pipe.run()
    assert_exact(pipe, len(texts))


@pytest.mark.long("whole runs; lake/test_partitions refuses such DDL on each format in every run")
def test_ddl_that_takes_a_partition_away_stops_its_table_alone(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """A copy goes on under a new name of its column; after a drop it is made again with other partitions."""
    pipe = pipe_on(mysql_server, chunk_rows=50)
    divide(pipe, "day(made at)")
    fill(pipe)
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    [planned] = plan(pipe.config, [f"{pipe.database}.orders"])
    assert (planned.state, planned.partitions) == ("new", named(pipe, "day(made at)"))
    pipe.run()
    pipe.sql(
        *named(pipe, "ALTER TABLE orders RENAME COLUMN `made at` TO at"),
        f"UPDATE orders SET at = {moment(3)} WHERE id < 9",
    )
    pipe.run()
    assert_exact(pipe, 1)
    before = pipe.rows("orders")
    pipe.sql("ALTER TABLE orders DROP COLUMN at", "INSERT INTO items VALUES (2)", "UPDATE orders SET v = 'later'")
    for _ in range(2):
        with pytest.raises(PartitionsDiffer, match=r"is divided by at, made.at, which DDL dropped"):
            pipe.run()
        assert pipe.rows("items") == [(1,), (2,)]
        assert pipe.rows("orders") == before
    assert [event.table.name for event in pipe.events if isinstance(event, TableStopped)] == ["orders"] * 2
    drop_copy(pipe)
    with pytest.raises(PreflightFailed, match=r"partition_by names made.at, which is not a column"):
        pipe.run("orders")
    divide(pipe, "country")
    pipe.run()
    assert_exact(pipe, 1)


def test_a_pattern_that_means_other_tables_is_refused_by_name(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Such tables are not copied without partitions; the others are."""
    pipe = pipe_on(mysql_server, partition_by=["day(at)"])
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY, at DATE)", "INSERT INTO a VALUES (1, '2026-01-01'), (2, NULL)")
    pipe.sql("CREATE TABLE b (id INT PRIMARY KEY, at VARCHAR(9))", "CREATE TABLE c (id INT PRIMARY KEY)")
    reasons = {planned.table.name: " ".join(planned.reasons) for planned in plan(pipe.config)}
    assert reasons["a"] == ""
    assert "at is varchar(9), which day cannot take" in reasons["b"]
    assert "partition_by names at, which is not a column" in reasons["c"]
    with pytest.raises(PreflightFailed):
        pipe.run()
    assert pipe.rows("a") == [(1, pipe.rows("a")[0][1]), (2, None)]
    pipe.assert_equal("a")


def test_a_column_of_another_type_stops_its_table_by_name(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Each run says the same, until the copy is dropped; then it is made with the new type. Hudi's copy follows it."""
    pipe = pipe_on(mysql_server, partition_by=["country"])
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, country VARCHAR(9))", "INSERT INTO orders VALUES (1, '1')")
    pipe.run()
    pipe.sql("ALTER TABLE orders MODIFY country INT", "INSERT INTO orders VALUES (2, 2)")
    if pipe.config.target.format == "hudi":
        pipe.run()
        assert assert_exact(pipe, 1) == 2
        return
    for _ in range(2):
        with pytest.raises(PartitionsDiffer, match="is divided by country, which DDL dropped or gave another type"):
            pipe.run()
        assert pipe.rows("orders") == [(1, "1")]
    drop_copy(pipe)
    pipe.run()
    assert_exact(pipe, 1)
