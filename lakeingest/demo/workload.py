"""Writers that change the shop while it is copied: they insert, update, delete, move keys and roll back."""

import random
import threading
import time
from collections.abc import Callable
from typing import Self

import pymysql
from pymysql.constants import ER

from lakeingest.demo.server import LocalServer
from lakeingest.demo.shop import DATABASE, FAR, Sizes
from lakeingest.errors import LakeIngestError

WRITERS = 4
_ROLLED_BACK = 0.08  # the share of transactions that are rolled back on purpose
_CONFLICTS = {ER.DUP_ENTRY, ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}

Change = tuple[str, tuple[object, ...]]


class Workload:
    """Writers in separate threads. At the end of the context they are ended.

    Together the writers make `changes` row changes, spread over the whole time of the copy: `allow` says how many row
    changes are allowed so far. When the allowed row changes are made, the writers wait.
    """

    def __init__(self, server: LocalServer, size: Sizes, changes: int, seed: int) -> None:
        self._server, self._size, self._quota = server, size, changes
        self._allowed = 0  # the number of row changes that are allowed so far
        self._stop = False  # whether the writers must end
        self.made = 0  # row changes that were committed
        self.rolled_back = 0  # transactions that were rolled back on purpose
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        seeds = range(seed * WRITERS, (seed + 1) * WRITERS)  # one for each writer; other runs' seeds are different
        self._threads = [threading.Thread(target=self._write, args=(writer_seed,)) for writer_seed in seeds]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join()

    def allow(self, share: float) -> None:
        """From now on, let the writers make changes until this share of all changes (0 to 1) is made.

        A smaller share than before is ignored.
        """
        self._allowed = max(self._allowed, min(self._quota, round(self._quota * share)))

    def finish(self) -> None:
        """Let the writers make all remaining changes, and wait until they end. Raises LakeIngestError if one failed."""
        self.allow(1)
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise LakeIngestError(f"a writer of the demo failed: {self._failures[0]}") from self._failures[0]

    def _write(self, seed: int) -> None:
        """The work of one thread: transactions until all changes are made, with pauses while no more are allowed."""
        chance = random.Random(seed)
        try:
            with self._server.connect(DATABASE, autocommit=False) as connection, connection.cursor() as cursor:
                while not self._stop and self.made < self._quota:
                    if self.made >= self._allowed:
                        time.sleep(0.005)
                        continue
                    self._transaction(connection, cursor, chance)
        except BaseException as error:  # noqa: BLE001 - raised again by finish
            self._failures.append(error)

    def _transaction(
        self, connection: pymysql.Connection, cursor: pymysql.cursors.Cursor, chance: random.Random
    ) -> None:
        """Make one to six random changes, then commit or roll back. After a conflict with another writer, roll back."""
        rows = 0
        try:
            for _ in range(chance.randint(1, 6)):
                change = chance.choice(_CHANGES)
                sql, values = change(chance, self._size)
                rows += cursor.execute(sql, values)
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _CONFLICTS:
                raise
            connection.rollback()
            return
        is_committed = chance.random() >= _ROLLED_BACK
        if is_committed:
            connection.commit()
        else:
            connection.rollback()
        with self._lock:
            if is_committed:
                self.made += rows  # row changes
            else:
                self.rolled_back += 1  # transactions


def _random_order_id(chance: random.Random, size: Sizes) -> int:
    """The id of an order that the shop began with, or now and then a greater id, which an order may have or not."""
    return chance.randint(1, size.orders + size.orders // 20 + 1)


def _insert_order(chance: random.Random, size: Sizes) -> Change:
    return (
        "INSERT INTO orders (customer_id, status, amount, weight, note, placed_at)"
        " VALUES (%s, 'new', %s, %s, %s, NOW(3))",
        (
            chance.randint(1, size.customers),
            f"{chance.random() * 500:.4f}",
            chance.gauss(0, 1e3),
            chance.choice([None, "eilig 🚚"]),
        ),
    )


def _update_order(chance: random.Random, size: Sizes) -> Change:
    return "UPDATE orders SET status = 'paid', amount = amount + 0.0001 WHERE id = %s", (
        _random_order_id(chance, size),
    )


def _delete_order(chance: random.Random, size: Sizes) -> Change:
    return "DELETE FROM orders WHERE id = %s", (_random_order_id(chance, size),)


def _move_order(chance: random.Random, size: Sizes) -> Change:
    return "UPDATE orders SET id = %s WHERE id = %s", (_random_order_id(chance, size), _random_order_id(chance, size))


def _insert_item(chance: random.Random, size: Sizes) -> Change:
    return (
        "INSERT INTO order_items VALUES (%s, %s, 'SKU0000001', 1, 9.99)",
        (_random_order_id(chance, size), chance.randint(-3, 9)),
    )


def _update_items(chance: random.Random, size: Sizes) -> Change:
    return "UPDATE order_items SET quantity = quantity + 1 WHERE order_id = %s", (_random_order_id(chance, size),)


def _delete_items(chance: random.Random, size: Sizes) -> Change:
    return "DELETE FROM order_items WHERE order_id = %s AND line > %s", (
        _random_order_id(chance, size),
        chance.randint(1, 4),
    )


def _move_items(chance: random.Random, size: Sizes) -> Change:
    return "UPDATE order_items SET order_id = %s WHERE order_id = %s", (
        _random_order_id(chance, size),
        _random_order_id(chance, size),
    )


def _update_customer(chance: random.Random, size: Sizes) -> Change:
    return (
        "UPDATE customers SET credit = credit - 1, email = IF(email IS NULL, 'new@example.com', NULL) WHERE id = %s",
        (chance.randint(1, size.customers),),
    )


def _replace_stock(chance: random.Random, size: Sizes) -> Change:
    sku = chance.choice([0, FAR]) + chance.randint(1, 10 * size.inventory)
    return "REPLACE INTO inventory VALUES (%s, %s, %s, %s)", (sku, chance.randint(-5, 5), chance.random(), b"\0a\0")


def _delete_stock(chance: random.Random, size: Sizes) -> Change:
    return "DELETE FROM inventory WHERE sku_id >= %s LIMIT 1", (
        chance.choice([0, FAR]) + chance.randint(1, size.inventory),
    )


def _append_event(chance: random.Random, size: Sizes) -> Change:
    return "INSERT INTO events (kind, customer_id, payload) VALUES ('view', %s, NULL)", (
        chance.randint(1, size.customers),
    )


_CHANGES: tuple[Callable[[random.Random, Sizes], Change], ...] = (
    _insert_order,
    _update_order,
    _update_order,
    _delete_order,
    _move_order,
    _insert_item,
    _update_items,
    _delete_items,
    _move_items,
    _update_customer,
    _replace_stock,
    _delete_stock,
    _append_event,
    _append_event,
)
