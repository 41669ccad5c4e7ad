"""What the source says for `status`: its tables, its binlog and its retention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeingest.commands.retention import Retention
from lakeingest.config import Config
from lakeingest.core.binlog.position import FilePosition, Position, bytes_between, is_in_one_of
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.mysql.preflight.foreign_keys import count_unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.source import Source
from lakeingest.pipeline.opening.absent_tables import known_tables


@dataclass(frozen=True, slots=True)
class SourceState:
    """The answers of the source: the included tables, the written position, and the size in bytes of each binlog file.

    If the source did not answer, only `error` is set. If the source was not asked, no field is set.
    `cascades` has, for each table, the number of foreign keys whose changes are missing in the copy. `hidden` are
    tables that the user has no right to read; `tables` does not have them.
    """

    error: LakeIngestError | None = None
    tables: Sequence[TableId] = ()
    written: FilePosition | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    cascades: Mapping[TableId, int] = field(default_factory=dict)
    retention: Retention | None = None
    hidden: frozenset[TableId] = frozenset()

    def lag_bytes(self, position: Position | None) -> int | None:
        """The bytes of binlog after a position. None if unknown, as for a position of another server."""
        if position is None or self.retention is None or position.server_uuid != self.retention.server_uuid:
            return None
        if self.written is None or not is_in_one_of(position.at, self.sizes):
            return None
        return bytes_between(position.at, self.written, self.sizes)


def ask_source(config: Config) -> SourceState:
    """Ask the source for everything that `status` shows about it. An error of the source becomes part of the result."""
    try:
        with Source.open(config.source) as source:
            of_pipeline = known_tables(config, source)
            tables = [table for table in of_pipeline.tables if table not in of_pipeline.hidden]
            # only copies of tables with this setting lack changes
            incomplete = [table for table in tables if config.tables.of(table).cascades == "missing"]
            cascades = count_unlogged_keys(Server.of(source.connection, incomplete)) if incomplete else {}
            sizes = source.files()
            retention = Retention.of_source(source, list(sizes))
            return SourceState(
                tables=tables,
                written=source.written(),
                sizes=sizes,
                cascades=cascades,
                retention=retention,
                hidden=of_pipeline.hidden,
            )
    except LakeIngestError as error:
        return SourceState(error)
