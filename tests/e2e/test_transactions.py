"""What clients do within a transaction: however rows are changed, the copy has what the source has."""

from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest

from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import Event, WaveCommitted
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROWS = 60
HUGE = 5_000_000


@pytest.fixture
def shop(pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], request: pytest.FixtureRequest) -> Pipe:
    """Orders with a second unique key, whose triggers write another table of the pipeline."""
    flavor: Flavor = getattr(request, "param", MYSQL)
    rows = ", ".join(f"({key}, '{key}', 0)" for key in range(ROWS))
    pipe = pipe_on(server_of(flavor, server_id="231", local_infile="ON"), chunk_rows=7)
    pipe.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, code VARCHAR(9) UNIQUE, v INT NOT NULL DEFAULT 0)",
        "CREATE TABLE log (n INT PRIMARY KEY AUTO_INCREMENT, id INT, what VARCHAR(9))",
        *(
            f"CREATE TRIGGER on_{what} AFTER {what.upper()} ON orders FOR EACH ROW"
            f" INSERT INTO log (id, what) VALUES ({row}.id, '{what}')"
            for what, row in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD"))
        ),
        f"INSERT INTO orders VALUES {rows}",
    )
    return pipe


def work(pipe: Pipe, folder: Path, number: int) -> None:
    """Every kind of change, to keys that no other number changes."""
    first, pipe_sql = number * 10, pipe.sql
    pipe_sql(
        *("BEGIN", f"UPDATE orders SET v = 1 WHERE id = {first}", "SAVEPOINT a"),
        *(f"DELETE FROM orders WHERE id = {first}", f"INSERT INTO orders VALUES ({first + 1000}, NULL, 1)"),
        *("SAVEPOINT b", f"UPDATE orders SET v = 2 WHERE id = {first + 1}", "ROLLBACK TO a"),
        *(f"UPDATE orders SET v = 3 WHERE id = {first + 2}", "RELEASE SAVEPOINT a", "COMMIT"),
        *("BEGIN", f"UPDATE orders SET v = 4 WHERE id = {first + 3}", "ROLLBACK"),
        f"REPLACE INTO orders VALUES ({first + 4}, '{first + 5}', 5)",  # it takes two rows out, and puts one in
        f"INSERT INTO orders VALUES ({first + 6}, 'x', 1), ({first + 2000}, 'y{number}', 1)"
        " ON DUPLICATE KEY UPDATE v = 6",
        f"INSERT IGNORE INTO orders VALUES ({first + 6}, 'z', 7), ({first + 2001}, 'z{number}', 7)",
        f"UPDATE orders a JOIN orders b ON a.id = b.id + 1 SET a.v = 8, b.v = 9 WHERE a.id = {first + 8}",
        f"DELETE a FROM orders a JOIN orders b ON a.id = b.id + 1 WHERE a.id = {first + 4}",
        f"UPDATE orders SET id = id + 3000, code = NULL WHERE id = {first + 9}",
        f"INSERT INTO orders SELECT id + 4000, NULL, v FROM orders WHERE id BETWEEN {first} AND {first + 9}",
    )
    file = folder / f"{number}.tsv"
    file.write_text(f"{first + 5000}\ta{number}\t1\n{first + 5001}\tb{number}\t2\n{first}\t{first}\t3\n")
    server = pipe.administrator
    with pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password.get_secret_value(),
        database=pipe.database,
        local_infile=True,
    ) as loading:
        loading.cursor().execute(f"LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE orders")
        loading.commit()


@pytest.mark.formats
@pytest.mark.parametrize("shop", [MYSQL, MARIADB_11_4], ids=["MySQL", "MariaDB"], indirect=True)
@pytest.mark.long("a variant of an end-to-end case that every run has", only=("MariaDB",))
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_each_kind_of_change_is_copied_in_a_bootstrap_and_in_a_catch_up(shop: Pipe, tmp_path: Path) -> None:
    """Rolled back to a savepoint or as a whole, replaced, upserted, joined, loaded from a file, made by a trigger."""
    pipe, numbers = shop, iter(range(6))

    def change(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "orders" and event.wave < 3:
            work(pipe, tmp_path, next(numbers))

    pipe.run(observe=change)
    pipe.assert_equal()
    for number in numbers:
        work(pipe, tmp_path, number)
    pipe.run()
    pipe.assert_equal()


@pytest.mark.formats
@pytest.mark.long("five million rows")
def test_a_transaction_of_five_million_rows_is_copied(
    pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]
) -> None:
    """It is one segment, and one merge."""
    pipe = pipe_on(mysql_server_with(server_id="232", innodb_buffer_pool_size="1G"), chunk_rows=1000)
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (0, 0), (7, 7)")
    pipe.run()
    pipe.sql(
        f"SET cte_max_recursion_depth = {HUGE}",
        f"REPLACE INTO orders WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {HUGE})"
        " SELECT i, i % 1000 FROM n",
    )
    [orders] = pipe.run().tables
    assert orders.rows == HUGE + 1
    pipe.assert_equal()
