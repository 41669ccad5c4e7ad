"""A catalog on PostgreSQL: PyIceberg's SQL catalog, which parses each version of metadata.json once."""

from collections.abc import Sequence

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy import ColumnElement, Engine, event, select, update

from lakeingest.lake.iceberg.catalogs.database_catalog import DatabaseCatalog, Swap

_LOCK_SECONDS = 30  # how long a commit waits while another one locks the same table
_IDLE_SECONDS = 60  # PostgreSQL ends a transaction that is idle for so long


class ParsingOnceSqlCatalog(DatabaseCatalog, SqlCatalog):
    """PyIceberg's SQL catalog, with the memory of `DatabaseCatalog`."""

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace. Raises NoSuchNamespaceError if it does not exist.

        Only the names are read. PyIceberg makes an object for each row, which takes long for thousands of tables.
        """
        if namespace and not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {namespace}")
        text = self.namespace_to_string(namespace)
        names = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == self.name, IcebergTables.table_namespace == text
        )
        if (is_table := self._iceberg_type_filter()) is not None:
            names = names.where(is_table)
        with self.engine.connect() as connection:
            return [(*self.identifier_to_tuple(text), name) for name in connection.execute(names).scalars()]

    def locations(self, name: tuple[str, str]) -> tuple[str | None, str | None] | None:
        """A table's current and previous metadata.json, each None if its row names none. None if there is no row."""
        columns = select(IcebergTables.metadata_location, IcebergTables.previous_metadata_location)
        with self.engine.connect() as connection:
            row = connection.execute(columns.where(*self._is_row_of(name))).one_or_none()
        return None if row is None else (row[0], row[1])

    def point_back(self, name: tuple[str, str], lost: str, earlier: str) -> None:
        """If the row of a table names `lost`, let it name `earlier` as the current metadata.json, and no previous."""
        row = update(IcebergTables).where(*self._is_row_of(name), IcebergTables.metadata_location == lost)
        with self.engine.begin() as connection:
            connection.execute(row.values(metadata_location=earlier, previous_metadata_location=None))

    def _swap_all(self, swaps: Sequence[Swap]) -> None:
        with self.engine.begin() as connection:
            for swap in sorted(swaps, key=lambda swap: swap.name):  # in one order, so that no two writers deadlock
                row = update(IcebergTables).where(
                    *self._is_row_of(swap.name), IcebergTables.metadata_location == swap.before
                )
                values = {"metadata_location": swap.after, "previous_metadata_location": swap.before}
                if connection.execute(row.values(values)).rowcount < 1:
                    raise CommitFailedException(f"Table has been updated by another process: {'.'.join(swap.name)}")

    def _is_row_of(self, name: tuple[str, str]) -> tuple[ColumnElement[bool], ...]:
        """The conditions that only the row of this table meets."""
        return (
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == name[0],
            IcebergTables.table_name == name[1],
        )

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """The table of a row that PyIceberg's catalog has read."""
        return self.table_of_row(orm_table.table_namespace, orm_table.table_name, orm_table.metadata_location)


def limit_waits(engine: Engine) -> None:
    """Limit how long a commit to PostgreSQL waits for a lock, and how long a vanished client can hold a lock."""

    @event.listens_for(engine, "connect")
    def configure(connection: object, _: object) -> None:
        """Set the limits of a new connection."""
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")  # type: ignore[attr-defined]
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")  # type: ignore[attr-defined]
        connection.commit()  # type: ignore[attr-defined]

    engine.dispose()  # closes connections that were opened before
