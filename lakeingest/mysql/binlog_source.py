"""The source, with what is decoded from the server's bytes: its binlog, and the values of defaults."""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from lakeingest.config import Source as Settings
from lakeingest.core.binlog.history import Committed
from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.copies.prepared import PreparedAt, Xid
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import NO_TABLES, TableId, TableSchema
from lakeingest.mysql import connection as connections
from lakeingest.mysql import continuity, xa_list
from lakeingest.mysql.binlog_reader import Part, SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import ServerState, server_state
from lakeingest.mysql.default_values import with_default_values
from lakeingest.mysql.failover import ThisServer
from lakeingest.mysql.hash_key import keyed
from lakeingest.mysql.key_membership import keys_within
from lakeingest.mysql.last_ddl import last_ddl
from lakeingest.mysql.source import Source


def read_changes(
    settings: Settings,
    segment: Segment,
    tables: Mapping[TableId, TableSchema],
    facts: SegmentFacts | None = None,
    waiting: Mapping[TableId, TableSchema] = NO_TABLES,
    prepared: PreparedAt | None = None,
) -> Generator[Part, None, None]:
    """Yield the parts of `binlog_reader.read_segment` over a new connection, which is closed when the iterator ends.

    It is a function and no method, because executors call it without a `BinlogSource`.
    """
    tables = {table: keyed(schema, settings) for table, schema in tables.items()}
    with connections.connect(settings) as connection:
        server_id = connections.free_server_id(connection, settings)
        yield from read_segment(connection, segment, tables, server_id, facts, waiting, prepared)


class BinlogSource(Source):
    """A source whose binlog can be read. Each read of the binlog opens a connection."""

    def file_began(self, file: str) -> int:
        """The second (since 1970) in which a binlog file was begun.

        After a reset of the binlog, a new file of the same name has another second.
        """
        return continuity.file_began(self.settings, file)

    def state(self) -> ServerState:
        """The server's identity and its executed GTIDs."""
        with connections.answering_soon(self.connection):
            return server_state(self.connection)

    def executed_with(self, gtids: GtidSet, position: Position | None = None) -> ServerState:
        """Wait until the server has executed these transactions, and return its state (`continuity.executed_with`).

        Raises BinlogGone if the server has lost the history of `position`. Without `position`, this is not checked.
        """

        def require_history(state: ServerState) -> None:
            if position is not None:
                continuity.require_same_history(state, position)

        return continuity.executed_with(self.connection, gtids, require_history)

    def last_transaction(self, end: FilePosition) -> Committed | None:
        """The last transaction with a GTID up to a position (`continuity.last_transaction`)."""
        return continuity.last_transaction(self.settings, self.connection, end)

    def assert_there(self, position: Position) -> None:
        """Raise BinlogGone if the binlog after the position is gone, SourceReplaced on another server."""
        continuity.require_binlog(self.settings, self.connection, position)

    def assert_same_history(self, position: Position, files: Collection[str]) -> None:
        """Raise BinlogGone if the binlog, which consists of `files`, contradicts the position's history.

        Raises SourceReplaced if the source is another server now (`continuity.prove`).
        """
        continuity.prove(self.settings, position, files)

    def settle(self, position: Position, prepared: Collection[Xid]) -> frozenset[Xid]:
        """Wait until new read views contain every XA COMMIT before the position (`xa_list.settle`).

        Returns the transactions outside `prepared` that are prepared after the wait.
        """
        return xa_list.settle(self.settings, self.connection, position, prepared)

    def last_ddl(
        self, segment: Segment, tables: Mapping[TableId, TableSchema]
    ) -> Mapping[TableId, FilePosition | None]:
        """The end of the last DDL in a segment, for each of these tables that has DDL there (`last_ddl.last_ddl`)."""
        return last_ddl(self.settings, segment, tables)

    def changes(self, segment: Segment, tables: Mapping[TableId, TableSchema]) -> Iterator[Part]:
        """The change rows of these tables in a segment (`read_changes`)."""
        return read_changes(self.settings, segment, tables)

    def here(self, epoch: int) -> ThisServer:
        """The server's binlog, in which positions of other servers are found. Found positions get `epoch`."""
        return ThisServer(self.settings, self.connection, epoch)

    def wait_until_over(self, second: int) -> None:
        """Wait until the server's clock is later than `second` (`continuity.wait_until_over`)."""
        continuity.wait_until_over(self.connection, second)

    def with_default_values(self, schema: TableSchema, names: Collection[str]) -> TableSchema:
        """The definition with the values of these columns' defaults (`default_values.with_default_values`)."""
        return with_default_values(self.settings, schema, names)

    def keys_within(
        self, schema: TableSchema, keys: Sequence[Mapping[str, Any]], within: KeyRange
    ) -> list[Mapping[str, Any]]:
        """The keys among `keys` that are in the range `within`, as the server compares them."""
        return keys_within(self.connection, schema, keys, within)
