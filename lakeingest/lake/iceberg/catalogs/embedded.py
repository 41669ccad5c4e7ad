"""The embedded catalog: a SQLite file, which PyIceberg's SQL catalog and Iceberg's JDBC catalog read and write, too.

PyIceberg's catalog needs SQLAlchemy, and its import takes a fifth of the time of a run that has nothing to do. So this
catalog does without it.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.catalog import Catalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View

from lakeingest.lake.iceberg.catalogs.database_catalog import DatabaseCatalog, Swap

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS iceberg_tables (
        catalog_name VARCHAR(255) NOT NULL,
        table_namespace VARCHAR(255) NOT NULL,
        table_name VARCHAR(255) NOT NULL,
        metadata_location VARCHAR(1000),
        previous_metadata_location VARCHAR(1000),
        iceberg_type VARCHAR(5),
        PRIMARY KEY (catalog_name, table_namespace, table_name)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
        catalog_name VARCHAR(255) NOT NULL,
        namespace VARCHAR(255) NOT NULL,
        property_key VARCHAR(255) NOT NULL,
        property_value VARCHAR(1000) NOT NULL,
        PRIMARY KEY (catalog_name, namespace, property_key)
    )
    """,
)
_SWAP = "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
_ROW = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
_NAMESPACE = "catalog_name = ? AND namespace = ?"


class EmbeddedCatalog(DatabaseCatalog):
    """A catalog in a SQLite file, which is made if it does not exist. The property `uri` is a URL of SQLAlchemy.

    Each method opens a connection and closes it, so threads and forks of this process share none.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        path = unquote(properties["uri"].removeprefix("sqlite:///").partition("?")[0])
        self._file = Path(path).absolute().as_uri()
        with self._transaction(mode="rwc") as connection:
            for table in _TABLES:
                connection.execute(table)
            columns = {column for _, column, *_ in connection.execute("PRAGMA table_info(iceberg_tables)")}
        # Iceberg's JDBC catalog and earlier versions of PyIceberg make catalogs without this column, and without views
        self._has_types = "iceberg_type" in columns
        self._is_table = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)" if self._has_types else "1"  # 1: always

    @staticmethod
    def namespace_to_string(
        identifier: str | Identifier, err: type[ValueError] | type[NoSuchNamespaceError] = ValueError
    ) -> str:
        """The text of a namespace, with the blanks beside its dots: a database may be called `a. b`.

        PyIceberg removes the blanks, so that it does not find such a namespace again once it has split the text.
        Raises `err` for a namespace without a part, or with a blank one.
        """
        parts = Catalog.identifier_to_tuple(identifier)
        Catalog.namespace_to_string(parts, err)  # only for its errors
        return ".".join(parts).strip()

    @contextmanager
    def _reading(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """A connection for a query. Its changes are not committed."""
        # `rw` makes no file: if someone removes the catalog, an empty file in its place would look like a new catalog.
        # It lets queries write, too: SQLite may have to take back what a process that died has left half done
        with closing(sqlite3.connect(f"{self._file}?mode={mode}", uri=True)) as connection:
            yield connection

    @contextmanager
    def _transaction(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        """A connection whose changes are committed at the end of the block; after an error none of them is."""
        with self._reading(mode) as connection:
            # SQLite's default, FULL, does not sync the folder from which it removes the journal. So after a power loss
            # a commit that was reported as done may be rolled back (https://www.sqlite.org/pragma.html)
            connection.execute("PRAGMA synchronous = EXTRA")
            yield connection
            connection.commit()

    def _names(self, identifier: str | Identifier) -> tuple[str, str]:
        """The namespace and the name of a table."""
        return self.namespace_to_string(self.namespace_from(identifier)), self.table_name_from(identifier)

    def _assert_namespace(self, namespace: str | Identifier) -> None:
        """Raises NoSuchNamespaceError if the namespace does not exist."""
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {namespace}")

    def _insert(self, namespace: str, name: str, location: str) -> None:
        """Make the row of a table. Raises TableAlreadyExistsError if there is a row of this name."""
        row = {
            "catalog_name": self.name,
            "table_namespace": namespace,
            "table_name": name,
            "metadata_location": location,
        }
        if self._has_types:
            row["iceberg_type"] = "TABLE"
        columns, marks = ", ".join(row), ", ".join("?" * len(row))
        try:
            with self._transaction() as connection:
                connection.execute(f"INSERT INTO iceberg_tables ({columns}) VALUES ({marks})", list(row.values()))
        except sqlite3.IntegrityError as error:
            raise TableAlreadyExistsError(f"Table {namespace}.{name} already exists") from error

    def create_table(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Make a table. Raises TableAlreadyExistsError; NoSuchNamespaceError."""
        self._assert_namespace(self.namespace_from(identifier))
        name = self._names(identifier)
        made = self._create_staged_table(name, schema, location, partition_spec, sort_order, properties)
        self._write_metadata(made.metadata, made.io, made.metadata_location)
        self._insert(*name, made.metadata_location)
        return self.load_table(identifier)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:  # noqa: FBT001, FBT002 - as PyIceberg
        """Make a table from its metadata.json. Raises TableAlreadyExistsError; NoSuchNamespaceError.

        `overwrite` is not implemented.
        """
        if overwrite:
            raise NotImplementedError
        namespace, name = self._names(identifier)
        self._assert_namespace(namespace)
        self._insert(namespace, name, metadata_location)
        return self.load_table(identifier)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table. Raises NoSuchTableError if there is none of this name."""
        namespace, name = self._names(identifier)
        row = f"SELECT metadata_location FROM iceberg_tables WHERE {_ROW} AND {self._is_table}"
        with self._reading() as connection:
            found = connection.execute(row, (self.name, namespace, name)).fetchone()
        if found is None:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        return self.table_of_row(namespace, name, *found)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Remove the row of a table, not its files. Raises NoSuchTableError."""
        namespace, name = self._names(identifier)
        with self._transaction() as connection:
            row = f"DELETE FROM iceberg_tables WHERE {_ROW} AND {self._is_table}"
            if not connection.execute(row, (self.name, namespace, name)).rowcount:
                raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Give a table another name. Raises NoSuchTableError; TableAlreadyExistsError; NoSuchNamespaceError."""
        namespace, name = self._names(from_identifier)
        new = self._names(to_identifier)
        self._assert_namespace(self.namespace_from(to_identifier))
        row = f"UPDATE iceberg_tables SET table_namespace = ?, table_name = ? WHERE {_ROW} AND {self._is_table}"
        try:
            with self._transaction() as connection:
                if not connection.execute(row, (*new, self.name, namespace, name)).rowcount:
                    raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        except sqlite3.IntegrityError as error:
            raise TableAlreadyExistsError(f"Table {'.'.join(new)} already exists") from error
        return self.load_table(to_identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next metadata.json, and let the row of the table name it if the row still names the previous one.

        A table that does not exist is made. Raises CommitFailedException if a requirement does not hold or someone else
        has committed; TableAlreadyExistsError if someone else has made the table.
        """
        identifier = table.name()
        namespace, name = self._names(identifier)
        current: Table | None
        try:
            current = self.load_table(identifier)
        except NoSuchTableError:
            current = None
        staged = self._update_and_stage_table(current, identifier, requirements, updates)
        if current is not None and staged.metadata == current.metadata:  # the updates change nothing
            return _answer(current)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        if current is None:
            self._insert(namespace, name, staged.metadata_location)
        else:
            before = current.metadata_location
            if not self._swap((namespace, name), before, staged.metadata_location, previous=before):
                raise CommitFailedException(f"Table has been updated by another process: {namespace}.{name}")
            self.know(namespace, name, staged.metadata_location, staged.metadata)
        return _answer(staged)

    def _swap(self, name: tuple[str, str], before: str, after: str, previous: str | None) -> bool:
        """Let a table's row name `after` and `previous`. False, and no change, if the row does not name `before`."""
        with self._transaction() as connection:
            return self._swap_in(connection, Swap(name, before, after), previous)

    def _swap_in(self, connection: sqlite3.Connection, swap: Swap, previous: str | None) -> bool:
        """Do as `_swap` does, in the transaction of this connection."""
        row = f"{_SWAP} WHERE {_ROW} AND metadata_location = ?"
        return connection.execute(row, (swap.after, previous, self.name, *swap.name, swap.before)).rowcount == 1

    def _swap_all(self, swaps: Sequence[Swap]) -> None:
        with self._transaction() as connection:
            for swap in swaps:
                if not self._swap_in(connection, swap, swap.before):
                    raise CommitFailedException(f"Table has been updated by another process: {'.'.join(swap.name)}")

    def locations(self, name: tuple[str, str]) -> tuple[str | None, str | None] | None:
        """A table's current and previous metadata.json, each None if its row names none. None if there is no row."""
        row = f"SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE {_ROW}"
        with self._reading() as connection:
            found: tuple[str | None, str | None] | None = connection.execute(row, (self.name, *name)).fetchone()
        return found

    def point_back(self, name: tuple[str, str], lost: str, earlier: str) -> None:
        """If the row of a table names `lost`, let it name `earlier` as the current metadata.json, and no previous."""
        self._swap(name, lost, earlier, previous=None)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace. Raises NoSuchNamespaceError."""
        if namespace:
            self._assert_namespace(namespace)
        text = self.namespace_to_string(namespace)
        rows = (
            f"SELECT table_name FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND {self._is_table}"
        )
        with self._reading() as connection:
            names = connection.execute(rows, (self.name, text)).fetchall()
        space = self.identifier_to_tuple(text)
        return [(*space, name) for (name,) in names]

    def names_beginning(self, namespace: str, text: str) -> list[str]:
        """The names of tables and views of a namespace that begin with this text, without a look at all others."""
        rows = (
            "SELECT table_name FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"
            " AND table_name >= ? AND table_name < ?"
        )
        following = text[:-1] + chr(ord(text[-1]) + 1)  # in the order of SQLite, which is that of code points
        with self._reading() as connection:
            found = connection.execute(rows, (self.name, self.namespace_to_string((namespace,)), text, following))
            return [name for (name,) in found.fetchall()]

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Whether there is a table or a property of the namespace, or of a namespace inside of it."""
        text = self.namespace_to_string(namespace, NoSuchNamespaceError)
        # the pattern of namespaces inside: `!` makes LIKE take the next sign as it is
        inside = text.replace("!", "!!").replace("_", "!_").replace("%", "!%") + ".%"
        rows = (
            "SELECT 1 FROM iceberg_tables"
            " WHERE catalog_name = ? AND (table_namespace = ? OR table_namespace LIKE ? ESCAPE '!')"
            " UNION ALL SELECT 1 FROM iceberg_namespace_properties"
            " WHERE catalog_name = ? AND (namespace = ? OR namespace LIKE ? ESCAPE '!') LIMIT 1"
        )
        with self._reading() as connection:
            return connection.execute(rows, (self.name, text, inside) * 2).fetchone() is not None

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces directly inside of `namespace`; if it is empty, the outermost. Raises NoSuchNamespaceError."""
        if namespace:
            self._assert_namespace(namespace)
        outer = self.identifier_to_tuple(namespace)
        rows = (
            "SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?"
            " UNION SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?"
        )
        with self._reading() as connection:
            names = [self.identifier_to_tuple(name) for (name,) in connection.execute(rows, (self.name, self.name))]
        depth = len(outer)
        inside = [name for name in names if len(name) > depth and name[:depth] == outer]  # at any depth
        return list({name[: depth + 1] for name in inside})

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Make a namespace. Raises NamespaceAlreadyExistsError."""
        if self.namespace_exists(namespace):
            raise NamespaceAlreadyExistsError(f"Namespace {namespace} already exists")
        text = self.namespace_to_string(namespace, NoSuchNamespaceError)
        with self._transaction() as connection:
            # a namespace exists only by its rows, so it needs a property
            self._add_properties(connection, text, properties or {"exists": "true"})

    def _add_properties(self, connection: sqlite3.Connection, namespace: str, properties: Properties) -> None:
        """Insert a row for each of these properties, in the transaction of this connection."""
        row = "INSERT INTO iceberg_namespace_properties VALUES (?, ?, ?, ?)"
        connection.executemany(row, [(self.name, namespace, key, value) for key, value in properties.items()])

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Remove an empty namespace. Raises NoSuchNamespaceError; NamespaceNotEmptyError."""
        self._assert_namespace(namespace)
        text = self.namespace_to_string(namespace)
        if tables := self.list_tables(namespace):
            raise NamespaceNotEmptyError(f"Namespace {text} is not empty. {len(tables)} tables exist.")
        with self._transaction() as connection:
            connection.execute(f"DELETE FROM iceberg_namespace_properties WHERE {_NAMESPACE}", (self.name, text))

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """The properties of a namespace. Raises NoSuchNamespaceError."""
        text = self.namespace_to_string(namespace)
        self._assert_namespace(namespace)
        rows = f"SELECT property_key, property_value FROM iceberg_namespace_properties WHERE {_NAMESPACE}"
        with self._reading() as connection:
            return dict(connection.execute(rows, (self.name, text)).fetchall())

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Remove and set properties of a namespace. Raises NoSuchNamespaceError; ValueError for a key in both."""
        text = self.namespace_to_string(namespace)
        current = self.load_namespace_properties(namespace)
        summary, _ = self._get_updated_props_and_update_summary(current, removals, updates)
        row = f"DELETE FROM iceberg_namespace_properties WHERE {_NAMESPACE} AND property_key = ?"
        with self._transaction() as connection:
            # a property that gets another value is removed, too, and then added again
            connection.executemany(row, [(self.name, text, key) for key in {*(removals or ()), *updates}])
            self._add_properties(connection, text, updates)
        return summary

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Views are not implemented, nor are they in PyIceberg's SQL catalog."""
        raise NotImplementedError

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Views are not implemented."""
        raise NotImplementedError

    def load_view(self, identifier: str | Identifier) -> View:
        """Views are not implemented."""
        raise NotImplementedError

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        """Views are not implemented."""
        raise NotImplementedError

    def drop_view(self, identifier: str | Identifier) -> None:
        """Views are not implemented."""
        raise NotImplementedError


def _answer(table: Table) -> CommitTableResponse:
    """The answer to a commit after which the catalog has this table."""
    return CommitTableResponse.model_validate(
        {"metadata": table.metadata, "metadata-location": table.metadata_location}
    )
