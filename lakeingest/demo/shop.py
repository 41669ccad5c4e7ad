"""A sample shop: customers, orders, order items (with a composite key), inventory, and events (only inserts)."""

from dataclasses import dataclass

import pymysql

DATABASE = "shop"
TABLES = {
    "customers": """
        id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(120) NULL,
        tier ENUM('basic', 'silver', 'gold') NOT NULL, credit DECIMAL(12,2) NOT NULL, born DATE NULL,
        joined_at DATETIME NOT NULL""",
    "orders": """
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, customer_id INT UNSIGNED NOT NULL,
        status ENUM('new', 'paid', 'shipped', 'returned') NOT NULL, amount DECIMAL(18,4) NOT NULL, weight DOUBLE NULL,
        note TEXT NULL, placed_at DATETIME(3) NOT NULL,
        updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
        KEY customer (customer_id)""",
    "order_items": """
        order_id BIGINT NOT NULL, line SMALLINT NOT NULL, sku CHAR(10) NOT NULL, quantity SMALLINT UNSIGNED NOT NULL,
        price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line)""",
    "inventory": """
        sku_id BIGINT UNSIGNED NOT NULL PRIMARY KEY, stock INT NOT NULL, ratio FLOAT NULL, code VARBINARY(8) NOT
        NULL""",
    "events": """
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, kind VARCHAR(20) NOT NULL, customer_id INT UNSIGNED
        NOT NULL, payload VARCHAR(200) NULL, at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)""",
}
FAR = 9_000_000_000_000_000_000  # half of the keys of `inventory` begin here, after a huge gap
_ITEMS_PER_ORDER = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of rows that each table begins with."""

    customers: int
    orders: int
    items: int
    inventory: int
    events: int

    @property
    def total(self) -> int:
        """The number of rows of all tables together."""
        return self.customers + self.orders + self.items + self.inventory + self.events


def sizes(rows: int) -> Sizes:
    """Divide this number of rows among the tables. All tables but `order_items` get at least one row."""
    items = rows * 40 // 100
    # at least 1 of each, because the workload draws ids from 1 to the size
    customers, orders, inventory = (max(1, rows * share // 100) for share in (10, 30, 5))
    return Sizes(customers, orders, items, inventory, max(1, rows - customers - orders - items - inventory))


def build(connection: pymysql.Connection, rows: int, seed: int) -> Sizes:
    """Create the shop and fill it with `rows` rows, as `sizes` divides them. Returns these sizes.

    The server generates the values. The same seed gives the same rows, except for the columns with the present time.
    """
    size = sizes(rows)
    statements = (
        f"CREATE DATABASE {DATABASE}",
        f"USE {DATABASE}",
        *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()),
        "SET SESSION cte_max_recursion_depth = 4294967295",
        f"INSERT INTO customers {_numbers(size.customers)} SELECT n, CONCAT('Customer ', n, ' é'),"
        f" IF(n % 7 = 0, NULL, CONCAT('c', n, '@example.com')), ELT(1 + n % 3, 'basic', 'silver', 'gold'),"
        f" ROUND(RAND({seed}) * 5000, 2), IF(n % 5 = 0, NULL, DATE '1950-01-01' + INTERVAL n % 20000 DAY),"
        " TIMESTAMP '2020-01-01 00:00:00' + INTERVAL n MINUTE FROM numbers",
        f"INSERT INTO orders {_numbers(size.orders)} SELECT n, 1 + n % {size.customers},"
        f" ELT(1 + n % 4, 'new', 'paid', 'shipped', 'returned'), ROUND(RAND({seed + 1}) * 900, 4),"
        f" IF(n % 9 = 0, NULL, RAND({seed + 2}) * 40), IF(n % 3 = 0, NULL, REPEAT('größe ', 1 + n % 9)),"
        " TIMESTAMP '2023-01-01 00:00:00' + INTERVAL n SECOND, CURRENT_TIMESTAMP(6) FROM numbers",
        f"INSERT INTO order_items {_numbers(size.items)} SELECT 1 + (n - 1) DIV {_ITEMS_PER_ORDER},"
        f" 1 + (n - 1) % {_ITEMS_PER_ORDER}, CONCAT('SKU', LPAD(n % 10000, 7, '0')), 1 + n % 5,"
        f" ROUND(RAND({seed + 3}) * 99, 2) FROM numbers",
        f"INSERT INTO inventory {_numbers(size.inventory)} SELECT IF(n % 2, n * 10, {FAR} + n), n % 1000,"
        f" IF(n % 4 = 0, NULL, RAND({seed + 4})), UNHEX(LPAD(HEX(n), 8, '0')) FROM numbers",
        f"INSERT INTO events {_numbers(size.events)} SELECT n, ELT(1 + n % 3, 'view', 'cart', 'buy'),"
        f" 1 + n % {size.customers}, IF(n % 6 = 0, NULL, REPEAT('x', n % 120)), CURRENT_TIMESTAMP(6) FROM numbers",
        *(f"ANALYZE TABLE {name}" for name in TABLES),
    )
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    return size


def _numbers(count: int) -> str:
    """SQL that names a table `numbers`, whose column `n` has the numbers from 1 to `count`."""
    return f"WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
