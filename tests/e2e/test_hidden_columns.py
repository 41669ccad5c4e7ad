"""MariaDB adds hidden columns to a table with a unique key that it keeps as a hash: rows in the binlog have them."""

from collections.abc import Callable

import pytest

from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark, pytest.mark.any_format]

TABLES = {
    "text": "(id INT PRIMARY KEY, u TEXT, UNIQUE (u))",
    "wide": "(id INT PRIMARY KEY, u VARCHAR(3000) CHARACTER SET utf8mb4 UNIQUE)",
    "hashed": "(id INT PRIMARY KEY, u VARCHAR(9), UNIQUE (u) USING HASH)",
    "two": "(id INT PRIMARY KEY, u TEXT, v TEXT, UNIQUE (u), UNIQUE (v, u))",
    "later": "(id INT PRIMARY KEY, u TEXT)",
    "gone": "(id INT PRIMARY KEY, u TEXT, UNIQUE u (u))",
}


NAMED = "named (id INT PRIMARY KEY, DB_ROW_HASH_1 BIGINT, u TEXT, UNIQUE (u))"


@pytest.fixture(params=["FULL", "NO_LOG"])
def pipe(request: pytest.FixtureRequest, pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> Pipe:
    """A pipeline on a MariaDB whose rows name their columns, and on one with its vendor's default."""
    return pipe_on(server_of(MARIADB_11_4, binlog_row_metadata=request.param))


@pytest.mark.long("several servers")
def test_hidden_columns_are_left_out(pipe: Pipe) -> None:
    """In the first copy, in changes, and where the key comes or goes later."""
    pipe.sql(*(f"CREATE TABLE {name} {columns}" for name, columns in TABLES.items()))
    pipe.sql(*(f"INSERT INTO {name} (id, u) VALUES (1, 'a'), (2, 'b')" for name in TABLES))
    pipe.run()
    pipe.sql(*(f"UPDATE {name} SET u = 'c' WHERE id = 2" for name in TABLES))
    pipe.sql(*(f"INSERT INTO {name} (id, u) VALUES (3, NULL)" for name in TABLES), "DELETE FROM two WHERE id = 1")
    pipe.run()
    pipe.assert_equal()
    pipe.sql("ALTER TABLE later ADD UNIQUE (u)", "ALTER TABLE gone DROP KEY u", "ALTER TABLE text ADD n INT DEFAULT 3")
    pipe.sql(*(f"INSERT INTO {name} (id, u) VALUES (4, 'd')" for name in TABLES))
    pipe.run()
    pipe.sql(*(f"UPDATE {name} SET u = 'e' WHERE id = 4" for name in TABLES))
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("whole runs")
def test_a_column_of_the_user_may_have_the_name_of_a_hidden_one(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]
) -> None:
    """MariaDB takes another name for its own."""
    pipe = pipe_on(server_of(MARIADB_11_4, binlog_row_metadata="FULL"))
    pipe.sql(f"CREATE TABLE {NAMED}", "INSERT INTO named VALUES (1, 1, 'a'), (2, 2, 'b')")
    pipe.run()
    pipe.sql("UPDATE named SET u = 'c', DB_ROW_HASH_1 = 3 WHERE id = 2")
    pipe.run()
    pipe.assert_equal()
