"""A database of a test's own, and the binlog of what the test does to it."""

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql

from lakeingest.config import Source
from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import USUAL, Choices, TableId, TableSchema
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.connection import connect, query, table_name, written_position
from lakeingest.mysql.decoders import select_rows
from lakeingest.mysql.dialect import dialect
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.rows import TRANSACTIONS, change_schema, table_schema
from tests.mysql import witness

EPOCH = 7
SERVER_IDS = itertools.count(70_000)
DATABASES = itertools.count(1)


@dataclass(frozen=True)
class Read:
    """What a segment gave: the rows of each table, and the log of transactions."""

    tables: dict[TableId, pa.Table]
    log: pa.Table

    def halves(self, table: TableId, *columns: str) -> list[tuple[Any, ...]]:
        """Of every row of a table its ordinal, its kind and the given columns."""
        rows = self.tables[table].to_pylist()
        return [tuple(row[name] for name in (change.ORDINAL, change.KIND, *columns)) for row in rows]


@dataclass(frozen=True)
class Db:
    """A database of the test's own, and what the test does to it."""

    source: Source
    connection: pymysql.Connection
    name: str

    def run(self, *statements: str) -> None:
        """Run statements in one session, in this database."""
        for statement in statements:
            query(self.connection, statement)

    def session(self) -> AbstractContextManager[pymysql.Connection]:
        """Another session: its settings end with it."""
        return session(self.source, self.name)

    def table(self, name: str, columns: str) -> TableSchema:
        """Make a table; its schema."""
        self.run(f"CREATE TABLE {name} ({columns})")
        return self.schema(name)

    def schema(self, name: str, choices: Choices = USUAL) -> TableSchema:
        """The schema of a table, as it is now."""
        return read_schema(self.connection, TableId(self.name, name), choices)

    def here(self) -> FilePosition:
        """The written position."""
        return written_position(self.connection)

    def segment(self, start: FilePosition, stop: FilePosition | None = None, skip: str = "") -> Segment:
        """The binlog from `start` on, on this server."""
        [(uuid,)] = query(self.connection, f"SELECT {dialect(self.connection).server}")
        return Segment(str(uuid), EPOCH, start, stop or self.here(), GtidSet.parse(skip))

    def read(self, segment: Segment, *schemas: TableSchema) -> Read:
        """Read a segment to its end."""
        with connect(self.source) as connection:
            watched = {schema.table: schema for schema in schemas}
            parts = list(read_segment(connection, segment, watched, next(SERVER_IDS)))
        tables = {
            table: pa.Table.from_batches([batch for found, batch in parts if found == table], change_schema(schema))
            for table, schema in watched.items()
        }
        log = [batch for found, batch in parts if found is None]
        return Read(tables, pa.Table.from_batches(log, TRANSACTIONS))

    def select(self, schema: TableSchema) -> pa.Table:
        """All rows in the order of the key, as the snapshot reads them."""
        rest = f"FROM {table_name(schema.table)} ORDER BY {', '.join(map(quote, schema.key))}"
        with connect(self.source, stream=True) as connection:
            return pa.Table.from_batches(list(select_rows(connection, schema, "SELECT", rest)), table_schema(schema))

    def witness(self, schema: TableSchema) -> dict[str, list[str | None]]:
        """What the server says of each column, in the order of the key."""
        asked = ", ".join(witness.asked(column) for column in schema.columns)
        order = ", ".join(map(quote, schema.key))
        rows = query(self.connection, f"SELECT {asked} FROM {table_name(schema.table)} ORDER BY {order}")
        columns = zip(*rows, strict=True) if rows else ([] for _ in schema.columns)
        said = zip(schema.columns, columns, strict=True)
        return {column.name: witness.heard(column, list(texts)) for column, texts in said}

    def executed(self) -> str:
        """`gtid_executed`."""
        [(executed,)] = query(self.connection, "SELECT @@global.gtid_executed")
        return str(executed)


@contextmanager
def session(source: Source, database: str) -> Iterator[pymysql.Connection]:
    """A session whose default database is the given one."""
    with connect(source) as connection:
        query(connection, f"USE {database}")
        yield connection


@contextmanager
def database_on(server: LocalServer) -> Iterator[Db]:
    """A new database on a server, dropped at the end."""
    account = {"user": server.user, "password": server.password}
    source = Source.model_validate({"host": server.host, "port": server.port, **account})
    name = f"bl_{next(DATABASES)}"
    with connect(source) as connection:
        query(connection, "SET SESSION TRANSACTION READ WRITE")  # whatever the server imposes on sessions
        query(connection, f"CREATE DATABASE {name}")
        query(connection, f"USE {name}")
        try:
            yield Db(source, connection, name)
        finally:
            query(connection, f"DROP DATABASE {name}")
