"""Status: where each table stands, from the target's own properties; no Spark."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakeingest.config import Config
from lakeingest.core.position import FilePosition, Position
from lakeingest.core.schema import TableId
from lakeingest.core.segments import bytes_between
from lakeingest.errors import LakeIngestError
from lakeingest.lake.formats import open_target
from lakeingest.lake.target import Target
from lakeingest.mysql.connection import connect, file_sizes, written_position
from lakeingest.mysql.schema_reader import list_tables
from lakeingest.pipeline.opening import choose
from lakeingest.pipeline.publish import GATE
from lakeingest.pipeline.report import Report


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's state; `lag_bytes` is the binlog between its position and the source's, None when unknown.

    `nulled` counts values, of rows that were copied or changed, which are NULL only because the user chose so.
    """

    table: TableId
    target: str
    state: str
    rows: int
    waves: int
    position: Position | None
    lag_bytes: int | None
    gate: dict[str, Any] | None
    nulled: int = 0


class Statuses(Report, tuple[TableStatus, ...]):
    """The states of some tables."""

    __slots__ = ()

    headers = ("table", "target", "state", "rows", "position", "lag, bytes", "made NULL", "last gate")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a table."""
        for one in self:
            position = None if one.position is None else str(one.position.at)
            gate = None if one.gate is None else "passed"
            yield str(one.table), one.target, one.state, one.rows, position, one.lag_bytes, one.nulled, gate


def status(config: Config, tables: Sequence[str] = ()) -> Statuses:
    """The state of the given tables, or of all that the config includes."""
    target = open_target(config)
    with connect(config.source) as connection:
        chosen = choose(config, config.tables.select(list_tables(connection)), tables)
        written = written_position(connection)
        sizes = file_sizes(connection)
    return Statuses(_status(target, table, config.target.name(table), written, sizes) for table in chosen)


def _status(target: Target, table: TableId, name: str, written: FilePosition, sizes: dict[str, int]) -> TableStatus:
    try:
        staged = target.look(table)
    except LakeIngestError as error:
        return TableStatus(table, name, f"stopped: {error}", 0, 0, None, None, None)
    if staged is None:
        return TableStatus(table, name, "not copied yet", 0, 0, None, None, None)
    progress = staged.progress
    state = "published" if staged.visible else progress.phase.value
    gate = target.properties(table).get(GATE)
    at = None if progress.position is None else progress.position.at
    lag = None if at is None or at.file not in sizes else bytes_between(at, written, sizes)
    return TableStatus(
        table,
        name,
        state,
        progress.rows,
        progress.wave,
        progress.position,
        lag,
        json.loads(gate) if gate else None,
        progress.nulled,
    )
