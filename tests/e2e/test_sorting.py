"""Copies with a sort order, on a real server: each file is sorted, through merges and DDL; source = target."""

from collections.abc import Callable

import pytest

from lakeingest.commands.plan import plan
from lakeingest.commands.signal import ask
from lakeingest.core.waves.scope import WHOLE
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PartitionsDiffer, PreflightFailed
from tests.e2e.exact import comparer
from tests.e2e.pipe import Pipe
from tests.lake.shown import catalog_of
from tests.lake.sorted_files import sorted_files

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

TABLE = "CREATE TABLE orders (id INT PRIMARY KEY, `made at` DATETIME(3), country VARCHAR(9), v TEXT)"
ROWS = 60


@pytest.fixture(autouse=True)
def _on_iceberg(lake_format: str) -> None:
    if lake_format != "iceberg":
        pytest.skip("refused on Hudi (tests/config)")


def fill(pipe: Pipe) -> None:
    """Rows in no order of these columns, and rows with NULL."""
    days = ["NULL" if key % 7 == 0 else f"'2026-01-{key * 11 % 28 + 1:02} 12:00:00.{key % 10}'" for key in range(ROWS)]
    countries = ["NULL" if key % 5 == 0 else f"'{key * 7 % 13}'" for key in range(ROWS)]
    rows = [f"({key}, {days[key]}, {countries[key]}, 'v{key}')" for key in range(ROWS)]
    pipe.sql(TABLE, f"INSERT INTO orders VALUES {', '.join(rows)}")


def assert_sorted(pipe: Pipe, *by: tuple[str, bool]) -> None:
    """Source = target by `verify` and past our code, and each file is sorted."""
    pipe.assert_equal("orders")
    with (
        catalog_of(pipe.config.target) as catalog,
        comparer(pipe.administrator, pipe.database, pipe.config.tables) as compared,
    ):
        table = catalog.load_table((pipe.database, "orders"))
        assert compared.difference("orders", table.scan().to_arrow()) == ""
        assert sorted_files(table, by)


@pytest.mark.long("whole runs; lake/iceberg/test_sorting sorts files by each way of a commit in every run")
def test_every_file_of_a_sorted_copy_is_sorted(pipe_on: Callable[..., Pipe], any_server: LocalServer) -> None:
    """First copies, changes, re-snapshots, compactions and DDL; a dropped column stops the table by name."""
    pipe = pipe_on(any_server, chunk_rows=10, sort_by=["made at desc", "country"])
    fill(pipe)
    pipe.run()
    assert_sorted(pipe, ("made at", True), ("country", False))
    pipe.sql(
        "UPDATE orders SET `made at` = NULL WHERE id % 3 = 0",
        "UPDATE orders SET country = CONCAT(country, 'x') WHERE id % 4 = 1",
        "INSERT INTO orders (id, country) VALUES (100, 'z'), (101, NULL), (102, 'a')",
        "DELETE FROM orders WHERE id = 13",
        "ALTER TABLE orders RENAME COLUMN `made at` TO at, ADD COLUMN n INT NOT NULL DEFAULT 5",
        "UPDATE orders SET n = 6 WHERE id < 10",
    )
    pipe.run()
    assert_sorted(pipe, ("at", True), ("country", False))
    ask(pipe.config, "resnapshot", [f"{pipe.database}.orders"], scope=WHOLE, wait=False)
    pipe.run()
    [done] = ask(pipe.config, "maintain", [f"{pipe.database}.orders"], spark=pipe.spark)
    assert done.state == "done"
    assert_sorted(pipe, ("at", True), ("country", False))
    pipe.sql("ALTER TABLE orders DROP COLUMN at")
    with pytest.raises(PartitionsDiffer, match="its copy is sorted by at, made at, which DDL dropped"):
        pipe.run()


def test_a_pattern_that_means_other_tables_is_refused_by_name(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer
) -> None:
    """Such tables are not copied; the others are."""
    pipe = pipe_on(mysql_server, sort_by=["at desc"])
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY, at DATE)", "INSERT INTO a VALUES (1, '2026-01-01'), (2, NULL)")
    pipe.sql("CREATE TABLE b (id INT PRIMARY KEY, at DOUBLE)", "CREATE TABLE c (id INT PRIMARY KEY)")
    reasons = {planned.table.name: " ".join(planned.reasons) for planned in plan(pipe.config)}
    assert reasons["a"] == ""
    assert "sort_by: at is double, by which rows cannot be sorted" in reasons["b"]
    assert "sort_by names at, which is not a column" in reasons["c"]
    with pytest.raises(PreflightFailed):
        pipe.run()
    pipe.assert_equal("a")
