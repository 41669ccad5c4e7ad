"""Status: the state of each table, from the target's own properties. It needs no Spark, and no source."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakeingest.commands.report import Report
from lakeingest.commands.retention import Retention, gone, unread
from lakeingest.commands.signal_status import OpenSignal, Paused, Signals
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.clocks import spoken
from lakeingest.core.position import FilePosition, Position, bytes_between, is_in_one_of
from lakeingest.core.schema import TableId
from lakeingest.core.shown import SHOWN, Shown
from lakeingest.errors import GateFailed, LakeIngestError, NotOurTable
from lakeingest.files.file import state_of
from lakeingest.lake.preflight import copied, copies
from lakeingest.lake.target import Staged, Tables, Target
from lakeingest.mysql.preflight.foreign_keys import count_unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.source import Source
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.publishing.publish import GATE
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.quality.reports import has_reports
from lakeingest.spool.spool import Spool
from lakeingest.state.last_run import failure
from lakeingest.state.stopped import Stopped, read_stopped


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's state. `rows` and `position` belong to the published copy; before the first publish, to the staged one.

    `shown` is the published state with its times; None if nothing is published, or it cannot be read. `staged` is the
    position of staged rows that no reader sees yet, None if there are none. `lag_bytes` is the length of the binlog
    between `position` and the source's position, None if unknown.

    `binlog_seconds` is how long the source will keep the binlog that the table's next run needs: 0 if it is gone (then
    `binlog_gone` is True), None if it is kept for good, or if that is not known.

    `nulled` counts values of copied or changed rows that are NULL only because the user chose so. `gate` is the result
    of the last gate. `stopped` is why the last attempt failed, None if it did not. `in_source` is None if the source
    was not asked for the table. `hidden`: the source may have the table, but the user may not read it. `cascades`
    counts the foreign keys whose changes the copy lacks, because the user chose so. `signals` are the table's signals
    that have not ended. `paused` says since when and by whom the table is paused, None if it is not. With
    `keeps_deleted` the rows include those marked as deleted. Not `included`: the pipeline has copied the table, but
    tables.include and exclude no longer choose it. `rolled_back` says what a rollback has done since the last publish,
    None if nothing.
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
    signals: tuple[OpenSignal, ...] = ()
    paused: Paused | None = None
    keeps_deleted: bool = False
    included: bool = True
    binlog_seconds: int | None = None
    binlog_gone: bool = False
    shown: Shown | None = None
    staged: Position | None = None
    hidden: bool = False
    rolled_back: str | None = None

    @property
    def last_gate(self) -> str | None:
        """The result of the last gate, of a publish or of a wave."""
        if self.gate is None:
            return None
        return "passed" if self.gate["success"] else "failed"


class Statuses(Report, tuple[TableStatus, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The states of several tables. `source_error` is the reason why the source did not answer, None if it did."""

    source_error: LakeIngestError | None = None
    last_run = ""
    retention: Retention | None = None

    headers = (
        "table",
        "target",
        "state",
        "rows",
        "position",
        "source time",
        "published",
        "lag, bytes",
        "made NULL",
        "last gate",
    )

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table."""
        for table in self:
            position = None if table.position is None else str(table.position.at)
            state = table.state if table.stopped is None else f"{table.state}, {table.stopped.error}"
            if table.binlog_gone:
                state += ", binlog gone"
            if table.paused is not None:
                state += ", paused"
            if not table.included:
                state += ", no longer included"
            elif table.hidden:
                state += ", hidden from the user"
            elif table.in_source is False:
                state += ", gone from the source"
            yield (
                str(table.table),
                table.target,
                state,
                table.rows,
                position,
                table.shown and table.shown.source_time,
                table.shown and table.shown.published_at,
                table.lag_bytes,
                table.nulled,
                table.last_gate,
            )

    @property
    def notes(self) -> Sequence[str]:
        """Notes on single tables, then on the binlog, the last run's failure, and a source that did not answer."""
        notes = [f"{table.table}: {table.stopped}" for table in self if table.stopped is not None]
        notes += [
            f"{table.table}: rows as of {table.staged.at} are staged, and no reader sees them yet"
            for table in self
            if table.staged is not None
        ]
        notes += [f"{table.table}: {table.rolled_back}" for table in self if table.rolled_back is not None]
        notes += [f"{table.table}: {table.paused}" for table in self if table.paused is not None]
        notes += dict.fromkeys(str(signal) for table in self for signal in table.signals)
        notes += [
            f"{table.table}: no longer included; {table.target} is not changed, and the spool holds nothing of it"
            for table in self
            if not table.included
        ]
        notes += [
            f"{table.table}: "
            + ("the user may not read it; GRANT SELECT on it" if table.hidden else "the source no longer has it")
            + f"; {table.target} is not changed"
            for table in self
            if table.in_source is False and table.included
        ]
        notes += [
            f"{table.table}: changes by {table.cascades} foreign keys are missing, as tables.options says (cascades)"
            for table in self
            if table.cascades
        ]
        notes += [
            f"{table.table}: deleted rows stay in the copy and count as rows, as tables.options says (deletes)"
            for table in self
            if table.keeps_deleted
        ]
        notes += self._binlog
        notes += [self.last_run] if self.last_run else []
        if self.source_error is not None:
            notes.append(f"only the lake was read; lag and new tables are unknown: {self.source_error}")
        return notes

    @property
    def _binlog(self) -> list[str]:
        """How long the source will keep the binlog that the next run needs; a warning if that is short."""
        lost = [table.table for table in self if table.binlog_gone]
        seconds = [table.binlog_seconds for table in self if table.binlog_seconds is not None and not table.binlog_gone]
        notes = [gone(lost)] if lost else []
        if self.retention is None or not seconds:
            return notes
        warning = self.retention.warning(seconds)
        return [*notes, warning or f"the source has the binlog that the next run needs for {spoken(min(seconds))} more"]


def status(config: Config, tables: Sequence[str] = (), *, offline: bool = False) -> Statuses:
    """The state of the given tables, or of all that the config includes and all that this pipeline has copied.

    If the source does not answer, the states come from the lake alone, and `source_error` is the reason; this error is
    raised if the lake has no copy. With `offline` the source is not asked.
    """
    target, source = open_target(config), _Source() if offline else _asked(config)
    all_copies = copied(target, config.target)
    included = config.tables.select(all_copies)
    excluded = {table for table in all_copies if table not in included and has_reports(state_of(config), table)}
    with_copy = [table for table in included if _is_ours(target, table)]
    if source.error is not None and not with_copy:
        raise source.error
    all_tables = sorted({*with_copy, *source.tables, *(table for table in excluded if _is_ours(target, table))})
    signals, spool = Signals.read(config, source.retention), None if source.retention is None else _spool(config)
    statuses = Statuses(
        replace(
            in_lake,
            signals=signals.of(table),
            paused=signals.paused(config, table, in_lake.position),
            stopped=stopped,
            gate=_failed(stopped) or in_lake.gate,
            in_source=None if offline or source.error or table in excluded else table in source.tables,
            cascades=source.cascades.get(table, 0),
            keeps_deleted=config.tables.of(table).deletes == "soft",
            included=table not in excluded,
            hidden=table in source.hidden,
        )
        for table in config.tables.choose(all_tables, tables)
        for in_lake in [_status(config, target, table, source, spool, signals)]
        for stopped in [read_stopped(state_of(config), table) or in_lake.stopped]
    )
    statuses.source_error, statuses.last_run = source.error, failure(state_of(config))
    statuses.retention = source.retention
    return statuses


def _failed(stopped: Stopped | None) -> dict[str, Any] | None:
    """The gate's result for a table that stopped because its gate failed; None for any other table."""
    if stopped is None or stopped.error != GateFailed.__name__:
        return None
    return {"success": False, "message": stopped.message}


def _is_ours(target: Tables, table: TableId) -> bool:
    """Whether the lake's table of this name is not someone else's table; True also if there is none."""
    return not isinstance(copies(target, [table]).refused.get(table), NotOurTable)


@dataclass(frozen=True, slots=True)
class _Source:
    """The source's included tables, and the end and files of its binlog; or the error, if the source did not answer.

    `sizes` are the bytes of each binlog file. `cascades` counts, by table, the foreign keys whose changes are missing.
    """

    error: LakeIngestError | None = None
    tables: Sequence[TableId] = ()
    written: FilePosition | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    cascades: Mapping[TableId, int] = field(default_factory=dict)
    retention: Retention | None = None
    hidden: frozenset[TableId] = frozenset()


def _asked(config: Config) -> _Source:
    """Ask the source for all that `status` shows of it."""
    try:
        with Source.open(config.source) as source:
            of_pipeline = known_tables(config, source)
            tables = [table for table in of_pipeline.tables if table not in of_pipeline.hidden]
            without_cascades = [table for table in tables if config.tables.of(table).cascades == "missing"]
            cascades = count_unlogged_keys(Server.of(source.connection, without_cascades)) if without_cascades else {}
            sizes = source.files()
            retention = Retention.asked(source, list(sizes))
            return _Source(None, tables, source.written(), sizes, cascades, retention, of_pipeline.hidden)
    except LakeIngestError as error:
        return _Source(error)


def _spool(config: Config) -> Spool | None:
    """The spool; None if it cannot be read: a run is removing segments, or it is damaged, which a run reports."""
    try:
        return Spool.load(state_of(config) / "spool")
    except LakeIngestError:
        return None


def _status(
    config: Config, target: Target, table: TableId, source: _Source, spool: Spool | None, signals: Signals
) -> TableStatus:
    """The table's state from the lake, the spool and the signals; the source is not asked again."""
    name, retention = table_name(config.target, table), source.retention
    try:
        staged = target.inspect(table)
    except LakeIngestError as error:
        return TableStatus(table, name, "stopped", 0, 0, None, None, None, stopped=Stopped.of(table, error))
    if staged is None:
        return TableStatus(table, name, "not copied yet", 0, 0, None, None, None)
    progress, properties = staged.progress, target.properties(table)
    shown = _shown(staged, Shown.of_text(properties.get(SHOWN, "")))
    position, rows = (progress.position, progress.rows) if shown is None else (shown.position, shown.rows)
    if staged.visible:
        state = "published"
    elif progress.gap:
        state = "comparing"
    elif staged.published is not None and not progress.splits.complete:
        state = "copying again"
    else:
        state = progress.phase.value if shown is None else "published"
    gate, next_read = properties.get(GATE), unread(spool, progress)
    return TableStatus(
        table,
        name,
        state,
        rows,
        progress.wave,
        position,
        _lag(position, source),
        json.loads(gate) if gate else None,
        progress.nulled,
        binlog_seconds=None if retention is None or next_read is None else retention.left(config, next_read),
        binlog_gone=retention is not None and next_read is not None and retention.lacks(next_read),
        shown=shown,
        staged=None if staged.visible or shown is None else progress.position,
        rolled_back=signals.rolled_back(table, staged.published),
    )


def _shown(staged: Staged, recorded: Shown | None) -> Shown | None:
    """The state that readers see; None if nothing is published. `recorded` is the state as of the last publish.

    If all staged rows are visible, the staged position is used: a table without changes moves on without a publish.
    """
    if staged.visible:
        progress = staged.progress
        return Shown(progress.position, progress.rows, None if recorded is None else recorded.published_at)
    return None if staged.published is None else recorded


def _lag(position: Position | None, source: _Source) -> int | None:
    """The bytes of the source's binlog after a position; None if unknown, or if the position is of another server."""
    if position is None or source.retention is None or position.server_uuid != source.retention.server_uuid:
        return None
    if source.written is None or not is_in_one_of(position.at, source.sizes):
        return None
    return bytes_between(position.at, source.written, source.sizes)
