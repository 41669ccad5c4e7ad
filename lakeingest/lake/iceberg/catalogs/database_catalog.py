"""What the catalogs in SQLite and in PostgreSQL share: each table has a row, which names its current metadata.json.

PyIceberg's SQL catalog and Iceberg's JDBC catalog have the same tables, `iceberg_tables` and
`iceberg_namespace_properties`. So all of them can work on one database.
"""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata

from lakeingest.lake.iceberg.catalogs.joint_catalog import JointCatalog, TableCommit
from lakeingest.lake.iceberg.catalogs.places import FixedLocations
from lakeingest.lake.iceberg.storage.metadata import with_shared_lists
from lakeingest.lake.iceberg.storage.store import in_threads
from lakeingest.lake.iceberg.tables.times import OrderedCatalog


@dataclass(frozen=True, slots=True)
class Swap:
    """A change of the row of a table, from the metadata.json `before` to `after`. `name`: namespace and name."""

    name: tuple[str, str]
    before: str
    after: str


def _delete(change: tuple[Swap, StagedTable]) -> None:
    """Delete the metadata.json of a change that was not made: no row has ever named it."""
    swap, staged = change
    with suppress(OSError):  # a failure only leaves the file behind
        staged.io.delete(swap.after)


class DatabaseCatalog(OrderedCatalog, FixedLocations, JointCatalog):
    """A catalog in a database. It remembers the last metadata of each table, and parses only new files.

    Without that memory each version of metadata.json is parsed five times a publish. With 500 snapshots that takes 20
    ms each time.
    """

    def __init__(self, name: str, **properties: str) -> None:
        self._known: dict[tuple[str, str], Table] = {}
        super().__init__(name, **properties)

    @abstractmethod
    def locations(self, name: tuple[str, str]) -> tuple[str | None, str | None] | None:
        """A table's current and previous metadata.json, each None if its row names none. None if there is no row."""

    @abstractmethod
    def point_back(self, name: tuple[str, str], lost: str, earlier: str) -> None:
        """Let the row of a table name `earlier` as the current metadata.json, and name no previous metadata.json.

        Nothing changes if the row's current file is not `lost` any more: another run has changed the row.
        """

    @abstractmethod
    def _swap_all(self, swaps: Sequence[Swap]) -> None:
        """Change all of these rows in one transaction.

        Raises CommitFailedException, and changes no row, if one of them does not name its `before` any more.
        """

    @property
    def commits_together(self) -> bool:
        """True: a transaction can change several rows."""
        return True

    def commit_tables(self, commits: Sequence[TableCommit]) -> None:
        """Write the next metadata.json of each table, then let all rows name them in one transaction.

        Raises CommitFailedException as `JointCatalog` says; NoSuchTableError if a table does not exist.
        """
        location = commits[0].table.location()  # tells in_threads whether all tables are in a store, or none is
        changes = list(in_threads(location, self._next, commits))  # nothing is written if a requirement does not hold
        list(in_threads(location, self._write, changes))  # `list`, because a call may wait until its result is read
        try:
            self._swap_all([swap for swap, _ in changes])
        except CommitFailedException:
            list(in_threads(location, _delete, changes))
            raise
        for swap, staged in changes:
            self.know(*swap.name, swap.after, staged.metadata)

    def _next(self, commit: TableCommit) -> tuple[Swap, StagedTable]:
        """The change of a table's row, and the table with its next metadata, which is not written yet."""
        identifier = commit.table.name()
        current = self.load_table(identifier)
        staged = self._update_and_stage_table(current, identifier, commit.requirements, commit.updates)
        name = self.namespace_to_string(self.namespace_from(identifier)), self.table_name_from(identifier)
        return Swap(name, current.metadata_location, staged.metadata_location), staged

    def _write(self, change: tuple[Swap, StagedTable]) -> None:
        """Write the metadata.json of a change."""
        _, staged = change
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)

    def table_of_row(self, namespace: str, name: str, location: str | None) -> Table:
        """The table of a row. Its metadata.json is read only if this process does not know it yet.

        Each call returns a new object, because callers set its metadata. Raises NoSuchTableError if the row names no
        file, or if the table has no name.
        """
        if not location or not name:
            raise NoSuchTableError(f"The catalog names no metadata.json for {namespace}.{name}")
        table = self._known.get((namespace, name))
        if table is None or table.metadata_location != location:
            metadata = FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))
            table = self.know(namespace, name, location, metadata)
        return Table(table.name(), table.metadata, location, table.io, self)

    def know(self, namespace: str, name: str, location: str, metadata: TableMetadata) -> Table:
        """Remember the metadata that this process has read from `location`, or written to it. Returns the table."""
        io = self._load_file_io(location=location)
        table = Table((*self.identifier_to_tuple(namespace), name), with_shared_lists(metadata), location, io, self)
        self._known[namespace, name] = table
        return table
