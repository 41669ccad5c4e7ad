"""Status: where each table stands, from the target's own properties; no Spark, and no source where that is away."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.core.position import FilePosition, Position, bytes_between
from lakeingest.core.schema import TableId
from lakeingest.errors import GateFailed, LakeIngestError, NotOurTable
from lakeingest.lake.formats import open_target
from lakeingest.lake.preflight import copied, copies
from lakeingest.lake.target import Target
from lakeingest.mysql.connection import connect, file_sizes, written_position
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.preflight.tables import cascading
from lakeingest.mysql.schema_reader import list_tables
from lakeingest.pipeline.publish import GATE
from lakeingest.quality.reports import has_reports
from lakeingest.state.last_run import failure
from lakeingest.state.stopped import Stopped, read_stopped


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's state; `lag_bytes` is the binlog between its position and the source's, None when unknown.

    `nulled` counts values, of rows that were copied or changed, which are NULL only because the user chose so.
    `gate` is what the gate of the last publish asked. `stopped` is why the last attempt failed, None where it did not.
    `in_source` is None when the source was not asked for it. `cascades` counts the foreign keys whose changes the copy
    lacks, because the user chose so. With `keeps_deleted` the rows are also those that are marked as deleted.
    Not `included`: the pipeline has copied the table, and tables.include and exclude no longer choose it.
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
    stopped: Stopped | None = None
    in_source: bool | None = True
    cascades: int = 0
    keeps_deleted: bool = False
    included: bool = True

    @property
    def last_gate(self) -> str | None:
        """What came of the last gate, of a publish or of a wave."""
        if self.stopped is not None and self.stopped.error == GateFailed.__name__:
            return "failed"
        return None if self.gate is None else "passed"


class Statuses(Report, tuple[TableStatus, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The states of some tables. `source_error` is why the source could not be asked, None where it was."""

    source_error: LakeIngestError | None = None
    last_run = ""

    headers = ("table", "target", "state", "rows", "position", "lag, bytes", "made NULL", "last gate")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a table."""
        for one in self:
            position = None if one.position is None else str(one.position.at)
            state = one.state if one.stopped is None else f"{one.state}, {one.stopped.error}"
            if not one.included:
                state += ", no longer included"
            elif one.in_source is False:
                state += ", gone from the source"
            yield str(one.table), one.target, state, one.rows, position, one.lag_bytes, one.nulled, one.last_gate

    @property
    def note(self) -> str:
        """Why tables stopped, how the last run failed, and why the source cannot be asked; a line each."""
        told = [f"{one.table}: {one.stopped}" for one in self if one.stopped is not None]
        told += [
            f"{one.table}: the source no longer has it, or the user may not see it; {one.target} stays as it is"
            for one in self
            if one.in_source is False and one.included
        ]
        told += [
            f"{one.table}: it is no longer included; {one.target} stays as it is, and the spool keeps nothing for it"
            for one in self
            if not one.included
        ]
        told += [
            f"{one.table}: changes by {one.cascades} foreign keys are missing, as tables.options → cascades has it"
            for one in self
            if one.cascades
        ]
        told += [
            f"{one.table}: deleted rows stay in the copy and count as rows, as tables.options → deletes has it"
            for one in self
            if one.keeps_deleted
        ]
        told += [self.last_run] if self.last_run else []
        if self.source_error is not None:
            told.append(f"only what the lake says; lag and new tables are unknown: {self.source_error}")
        return "\n".join(told)


def status(config: Config, tables: Sequence[str] = (), *, offline: bool = False) -> Statuses:
    """The state of the given tables, or of all that the config includes and all that this pipeline has copied.

    Where the source cannot be asked, the states are what the lake alone says, and `source_error` says why; it is raised
    where the lake has no copy either. With `offline` the source is not asked at all.
    """
    target, source = open_target(config), _Source() if offline else _asked(config)
    copies_there = copied(target, config.target)
    included = config.tables.select(copies_there)
    excluded = {table for table in copies_there if table not in included and has_reports(config.state, table)}
    kept = [table for table in included if _is_ours(target, table)]
    if source.error is not None and not kept:
        raise source.error
    known = sorted({*kept, *source.tables, *(table for table in excluded if _is_ours(target, table))})
    told = Statuses(
        replace(
            _status(target, table, config.target.name(table), source),
            stopped=read_stopped(config.state, table),
            in_source=None if offline or source.error or table in excluded else table in source.tables,
            cascades=source.cascades.get(table, 0),
            keeps_deleted=config.tables.of(table).deletes == "soft",
            included=table not in excluded,
        )
        for table in config.tables.choose(known, tables)
    )
    told.source_error, told.last_run = source.error, failure(config.state)
    return told


def _is_ours(target: Target, table: TableId) -> bool:
    """Whether what has the table's name in the lake is no one else's."""
    return not isinstance(copies(target, [table]).refused.get(table), NotOurTable)


@dataclass(frozen=True, slots=True)
class _Source:
    """What the source says, or the error why it does not: its included tables, the end of its binlog, the files."""

    error: LakeIngestError | None = None
    tables: Sequence[TableId] = ()
    written: FilePosition | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    cascades: Mapping[TableId, int] = field(default_factory=dict)


def _asked(config: Config) -> _Source:
    try:
        with connect(config.source) as connection:
            tables = config.tables.select(list_tables(connection))
            chosen = [table for table in tables if config.tables.of(table).cascades == "missing"]
            cascades = cascading(Server.of(connection, chosen)) if chosen else {}
            return _Source(None, tables, written_position(connection), file_sizes(connection), cascades)
    except LakeIngestError as error:
        return _Source(error)


def _status(target: Target, table: TableId, name: str, source: _Source) -> TableStatus:
    try:
        staged = target.inspect(table)
    except LakeIngestError as error:
        return TableStatus(table, name, f"stopped: {error}", 0, 0, None, None, None)
    if staged is None:
        return TableStatus(table, name, "not copied yet", 0, 0, None, None, None)
    progress = staged.progress
    state = "published" if staged.visible else progress.phase.value
    gate = target.properties(table).get(GATE)
    at = None if progress.position is None else progress.position.at
    written, sizes = source.written, source.sizes
    lag = None if at is None or written is None or at.file not in sizes else bytes_between(at, written, sizes)
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
