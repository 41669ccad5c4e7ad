"""The table that is copied, made anew from the orders for each turn, and changes of it, which are always the same.

Its keys begin above 1,000,000: below them is room for marks, rows whose commit is waited for.
"""

from collections.abc import Iterable

import numpy as np
import pymysql

from benchmarks.source import ORDERS
from lakeingest.core.tables.schema import TableId

LIVE = TableId(ORDERS.database, "live")
TINY = TableId(ORDERS.database, "tiny")
TINY_ROWS = 1_000
FIRST = 1_000_001
TRANSACTION_CHANGES = 1_000  # three statements
UPDATE_PERCENT, DELETE_PERCENT = 60, 15  # the rest are inserts
_BLOCK = 200_000  # rows of a transaction that fills a table
_REST = "customer_id, order_no, email, status, amount, qty, ratio, created_at, updated_at, attrs, note"
_ALL = f"id, {_REST}"


def rebuild(connection: pymysql.Connection, table: TableId, rows: int) -> None:
    """Make the table anew with so many rows, without a trace in the binlog, of which only the newest file is left."""
    with connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
        cursor.execute(f"CREATE TABLE {table} LIKE {ORDERS}")
        cursor.execute(f"SELECT MAX(id) FROM {ORDERS}")
        [(orders,)] = cursor.fetchall()
        for done in range(0, rows, orders):
            most = min(orders, rows - done)
            for low in range(0, most, _BLOCK):
                cursor.execute(
                    f"INSERT INTO {table} SELECT id + {FIRST - 1 + done}, {_REST} FROM {ORDERS}"
                    f" WHERE id > {low} AND id <= {min(low + _BLOCK, most)}"
                )
        cursor.execute(f"ANALYZE TABLE {table}")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOG STATUS")
        [(newest, *_)] = cursor.fetchall()
        cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
        cursor.execute("SET sql_log_bin = 1")


class Changes:
    """Commits changes of a table: updates and deletes of random keys of a pool, inserts of new top keys.

    What it inserts joins the pool. The pool is its own: who changes a table too takes another one. The table may get
    further columns meanwhile.
    """

    def __init__(self, connection: pymysql.Connection, pool: range, seed: int, table: TableId = LIVE) -> None:
        self._connection, self._table = connection, table
        self._chance = np.random.default_rng(seed)
        self._keys = np.arange(pool.start, pool.stop)
        self._marks = 0
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT MAX(id) FROM {ORDERS}")
            [(self._orders,)] = cursor.fetchall()

    def commit(self, count: int, transaction: int = TRANSACTION_CHANGES) -> None:
        """Commit so many row changes, in transactions of this many."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT MAX(id) + 1 FROM {self._table}")
            [(top,)] = cursor.fetchall()
            while count > 0:
                size = min(count, transaction)
                top += self._transaction(cursor, size, top)
                count -= size

    def mark(self) -> int:
        """Commit a row with a key below all others, and answer that."""
        self._marks += 1
        key = FIRST - self._marks
        with self._connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {self._table} ({_ALL}) SELECT {key}, {_REST} FROM {ORDERS} WHERE id = 1")
        return key

    def _transaction(self, cursor: pymysql.cursors.Cursor, size: int, top: int) -> int:
        """One transaction; how many rows it inserted."""
        updates, deletes = size * UPDATE_PERCENT // 100, size * DELETE_PERCENT // 100
        inserts = size - updates - deletes
        places = self._chance.choice(len(self._keys), updates + deletes, replace=False)
        updated, deleted = self._keys[places[:updates]], self._keys[places[updates:]]
        first = int(self._chance.integers(0, max(1, self._orders - inserts)))
        cursor.execute("BEGIN")
        wanted = {
            f"UPDATE {self._table} SET amount = amount + 1.25, status = 'shipped', qty = 7, ratio = ratio / 3,"
            f" note = 'changed', updated_at = updated_at + INTERVAL 1 SECOND WHERE id IN ({_listed(updated)})": updates,
            f"INSERT INTO {self._table} ({_ALL}) SELECT id + {top - first - 1}, {_REST} FROM {ORDERS}"
            f" WHERE id > {first} AND id <= {first + inserts}": inserts,
            f"DELETE FROM {self._table} WHERE id IN ({_listed(deleted)})": deletes,
        }
        for statement, rows in wanted.items():
            if rows and cursor.execute(statement) != rows:
                raise RuntimeError(f"{cursor.rowcount} rows were changed, not {rows}: {statement[:60]}")
        cursor.execute("COMMIT")
        self._keys = np.concatenate([np.delete(self._keys, places[updates:]), np.arange(top, top + inserts)])
        return inserts


def _listed(keys: Iterable[int]) -> str:
    return ",".join(map(str, keys))
