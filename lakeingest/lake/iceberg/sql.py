"""Iceberg's SQL catalog, which parses each version of metadata.json once: PyIceberg parses it five times a publish."""

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import Engine, event, select

from lakeingest.lake.iceberg.metadata import with_shared_history
from lakeingest.lake.iceberg.places import OwnPlaces
from lakeingest.lake.iceberg.times import OrderedCatalog

_LOCK_SECONDS = 30  # how long a commit waits while another one locks the same table
_IDLE_SECONDS = 60  # PostgreSQL ends a transaction that is idle for so long


class ParsingOnceSqlCatalog(OrderedCatalog, OwnPlaces, SqlCatalog):
    """PyIceberg's SQL catalog. It remembers the last metadata of each table, and parses only files of new names."""

    def __init__(self, name: str, **properties: str) -> None:
        self._known: dict[tuple[str, str], Table] = {}
        super().__init__(name, **properties)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace. Raises NoSuchNamespaceError if it does not exist.

        Only the names are read. PyIceberg makes an object for each row, which takes long for thousands of tables.
        """
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {namespace}")
        text = self.namespace_to_string(namespace)
        names = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == self.name, IcebergTables.table_namespace == text
        )
        if (is_table := self._iceberg_type_filter()) is not None:
            names = names.where(is_table)
        with self.engine.connect() as connection:
            return [(*self.identifier_to_tuple(text), name) for name in connection.execute(names).scalars()]

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """The table of a row in the catalog. Its metadata.json is read only if the row names another file than before.

        Each call returns a new object, because callers set its metadata.
        """
        name = orm_table.table_namespace, orm_table.table_name
        table = self._known.get(name)
        if table is None or table.metadata_location != orm_table.metadata_location:
            table = super()._convert_orm_to_iceberg(orm_table)
            table.metadata = with_shared_history(table.metadata)
            self._known[name] = table
        return Table(table.name(), table.metadata, table.metadata_location, table.io, self)


def sync_commits(engine: Engine) -> None:
    """Let SQLite sync each commit to the disk before it reports the commit as done.

    SQLite's default, FULL, does not sync the folder from which it removes the journal. So after a power loss a commit
    that was reported as done may be rolled back (https://www.sqlite.org/pragma.html#pragma_synchronous).
    """

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        connection.execute("PRAGMA synchronous = EXTRA")  # type: ignore[attr-defined]

    engine.dispose()  # closes connections that were opened before


def limit_waits(engine: Engine) -> None:
    """Limit how long a commit to PostgreSQL waits for a lock, and how long a vanished client can hold one."""

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")  # type: ignore[attr-defined]
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")  # type: ignore[attr-defined]
        connection.commit()  # type: ignore[attr-defined]

    engine.dispose()  # closes connections that were opened before
