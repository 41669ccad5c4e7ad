"""What is decoded: a table of orders, and binlog files with changes of a second table, on a server of our own.

Both are made up here, mixed in types and widths, and the same rows each time. The binlog files are kept in the given
folder; the server and its tables are not.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pymysql

from lakeingest.core.binlog.position import FilePosition, file_start
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer, local_server
from lakeingest.mysql.connection import literal

READER = "reader"  # may read tables and binlog, and has no password: the Java client cannot log in with one without TLS
READER_WITH_PASSWORD, PASSWORD = "reader_with_password", "reader"  # the same for who refuses an empty password
ORDERS = TableId("benchmark", "orders")
CHANGES = TableId("benchmark", "changes")

TRANSACTION_CHANGES = 10  # 6 inserts, 3 updates, 1 delete, a statement each
FIRST_FILE_CHANGES = (
    5_000  # the first file is short: who compiles as he goes warms up on it, who is slow reads no other
)
_WRITERS = 2
_BLOCK = 100_000

_COLUMNS = """
    id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    customer_id INT NOT NULL,
    order_no VARCHAR(32) NOT NULL,
    email VARCHAR(128) NULL,
    status ENUM('new', 'paid', 'shipped', 'delivered', 'cancelled') NOT NULL,
    amount DECIMAL(18,4) NOT NULL,
    qty SMALLINT UNSIGNED NULL,
    ratio DOUBLE NULL,
    created_at DATETIME(6) NOT NULL,
    updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    attrs JSON NULL,
    note TEXT NULL"""

_NULLABLE = {"email", "qty", "ratio", "attrs", "note"}

# Ids from `first` on; the orders are taken round and round.
_WRITE = """CREATE PROCEDURE write_changes(first BIGINT, transactions BIGINT, orders BIGINT)
    BEGIN
        DECLARE id_ BIGINT DEFAULT first;
        DECLARE last BIGINT;
        WHILE transactions > 0 DO
            SET last = id_ + 5;
            START TRANSACTION;
            WHILE id_ <= last DO
                INSERT INTO changes
                    SELECT id_, customer_id, order_no, email, status, amount, qty, ratio, created_at, updated_at,
                           attrs, note, 0 FROM orders WHERE id = 1 + id_ MOD orders;
                SET id_ = id_ + 1;
            END WHILE;
            UPDATE changes SET amount = amount + 1, status = 'shipped', version = version + 1 WHERE id = last;
            UPDATE changes SET amount = amount + 1, status = 'shipped', version = version + 1 WHERE id = last - 2;
            UPDATE changes SET amount = amount + 1, status = 'shipped', version = version + 1 WHERE id = last - 4;
            DELETE FROM changes WHERE id = last - 5;
            COMMIT;
            SET transactions = transactions - 1;
        END WHILE;
    END"""

_SETTINGS = {
    "sync_binlog": "0",
    "innodb_flush_log_at_trx_commit": "0",
    "innodb_doublewrite": "OFF",
    "innodb_redo_log_capacity": "2G",
    "innodb_buffer_pool_size": "1G",
    "binlog_expire_logs_seconds": "0",  # kept files may be old
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A running server, the binlog files with the changes, oldest first, and how many rows there are of each."""

    server: LocalServer
    files: tuple[Path, ...]
    rows: int
    changes: int

    @property
    def first_changes(self) -> int:
        """How many changes are in the first file."""
        return min(FIRST_FILE_CHANGES, self.changes)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@contextmanager
def serve(folder: Path, rows: int, changes: int) -> Iterator[Sample]:
    """A server with `rows` orders and the binlog of `changes` changes (whole transactions of ten).

    The files of an earlier run in the same folder are taken again.
    """
    kept = folder.absolute() / f"binlog-{changes}"
    complete = kept / "complete"
    if not complete.exists():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
    with serve_orders(folder, rows, {**_SETTINGS, "log_bin": str(kept / "binlog")}) as server:
        with administrator(server, ORDERS.database) as connection:
            _run(
                connection,
                "SET sql_log_bin = 0",
                f"CREATE TABLE {CHANGES.name} ({_COLUMNS}, version INT NOT NULL)",
                _WRITE,
            )
            if not complete.exists():
                names = _write_binlog(connection, server, rows, changes // TRANSACTION_CHANGES)
                complete.write_text("\n".join(names))
        files = tuple(kept / name for name in complete.read_text().split())
        yield Sample(server, files, rows, changes // TRANSACTION_CHANGES * TRANSACTION_CHANGES)


@contextmanager
def serve_orders(folder: Path, rows: int, settings: Mapping[str, str]) -> Iterator[LocalServer]:
    """A server with `rows` orders, which are not in its binlog."""
    with local_server(folder, settings, say=_say) as server:
        with administrator(server) as connection:
            _run(
                connection,
                "SET sql_log_bin = 0",
                f"CREATE USER {READER}@'{server.host}'",
                f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {READER}@'{server.host}'",
                f"CREATE USER {READER_WITH_PASSWORD}@'{server.host}' IDENTIFIED BY '{PASSWORD}'",
                f"GRANT SELECT ON *.* TO {READER_WITH_PASSWORD}@'{server.host}'",
                f"CREATE DATABASE {ORDERS.database}",
                f"USE {ORDERS.database}",
                f"CREATE TABLE {ORDERS.name} ({_COLUMNS})",
            )
            _load_orders(connection, rows)
        yield server


def end_of(file: Path) -> FilePosition:
    """Where the last transaction of a complete binlog file ends: before the ROTATE event, which names the next file."""
    header, position, checksum = 19, 8, 4
    return FilePosition(file.name, file.stat().st_size - header - position - len(file.name) - checksum)


def start_of(file: Path) -> FilePosition:
    """Where the first event of a binlog file begins."""
    return file_start(file.name)


def orders(first: int, count: int) -> pa.Table:
    """Orders with the ids from `first` on: the same for the same arguments."""
    chance = np.random.default_rng(first)
    ids = pa.array(np.arange(first, first + count))

    def numbers(most: int) -> pa.Array:
        return pa.array(chance.integers(0, most, count))

    def some(share: float, values: pa.Array) -> pa.Array:
        return pc.if_else(pa.array(chance.random(count) < share), values, None)

    def one_of(*words: str) -> pa.Array:
        return pa.array(words).take(numbers(len(words)))

    created = pa.array(1_600_000_000_000_000 + chance.integers(0, 150_000_000_000_000, count))
    notes = [
        one_of("größe", "blue", "fragile", "express", "日本", "gift wrap", "call first", 'a "quote"', "😀", "return ok")
        for _ in range(6)
    ]
    return pa.table(
        {
            "id": ids,
            "customer_id": numbers(500_000),
            "order_no": _joined("ORD-", pc.utf8_lpad(ids.cast(pa.string()), 12, "0")),
            "email": some(0.95, _joined("user", numbers(300_000), "@example.com")),
            "status": one_of("new", "paid", "shipped", "delivered", "cancelled"),
            "amount": pa.array(chance.integers(0, 100_000_000, count) / 10_000),
            "qty": some(0.98, numbers(60_000)),
            "ratio": some(0.98, pa.array(chance.normal(size=count))),
            "created_at": created.cast(pa.timestamp("us")),
            "updated_at": pc.add(created, numbers(10_000_000_000_000)).cast(pa.timestamp("us")),
            "attrs": some(
                0.9,
                _joined(
                    *('{"sku": "S', numbers(977), '", "dims": [', numbers(7), ", ", numbers(11), '], "gift": '),
                    *(one_of("true", "false"), ', "w": ', pa.array(chance.integers(0, 1_000, count) / 8), "}"),
                ),
            ),
            "note": some(0.8, pc.binary_join_element_wise(*notes, " ")),
        }
    )


def _joined(*parts: str | pa.Array) -> pa.Array:
    texts = [part if isinstance(part, str) else part.cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


@contextmanager
def administrator(server: LocalServer, database: str | None = None) -> Iterator[pymysql.Connection]:
    """A connection of the server's administrator, whose statements are committed one by one."""
    with pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
        autocommit=True,
        local_infile=True,
    ) as connection:
        yield connection


def _run(connection: pymysql.Connection, *statements: str) -> tuple[tuple[object, ...], ...]:
    """Run statements; the rows of the last one."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return tuple(cursor.fetchall())


def _load_orders(connection: pymysql.Connection, rows: int) -> None:
    _run(connection, "SET time_zone = '+00:00'")
    for first in range(1, rows + 1, _BLOCK):
        block = orders(first, min(_BLOCK, rows + 1 - first))
        fields = ", ".join(f"@{name}" if name in _NULLABLE else name for name in block.column_names)
        nulls = ", ".join(f"{name} = NULLIF(@{name}, '')" for name in _NULLABLE)
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            pa.csv.write_csv(block, file.name, pa.csv.WriteOptions(include_header=False))
            _run(
                connection,
                f"LOAD DATA LOCAL INFILE {literal(file.name)} INTO TABLE {ORDERS.name} CHARACTER SET utf8mb4 FIELDS"
                f" TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY '' ({fields}) SET {nulls}",
            )
    _run(connection, f"ANALYZE TABLE {ORDERS.name}")


def _write_binlog(connection: pymysql.Connection, server: LocalServer, rows: int, transactions: int) -> list[str]:
    """The names of the files that were written; all of them are complete."""

    def write(first: int, count: int) -> None:
        with administrator(server, CHANGES.database) as writer:
            _run(writer, f"CALL write_changes({first}, {count}, {rows})")

    def files() -> list[str]:
        return [str(row[0]) for row in _run(connection, "FLUSH BINARY LOGS", "SHOW BINARY LOGS")]

    before = len(files())
    early = min(FIRST_FILE_CHANGES // TRANSACTION_CHANGES, transactions)
    write(1, early)
    files()
    with ThreadPoolExecutor(_WRITERS) as pool:
        share, more = divmod(transactions - early, _WRITERS)
        # each writer has ids of its own
        list(pool.map(write, [10**9 * (n + 1) for n in range(_WRITERS)], [share + (n < more) for n in range(_WRITERS)]))
    return files()[before - 1 : -1]
