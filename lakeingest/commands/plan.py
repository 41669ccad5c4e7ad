"""Plan: what a run would do with each table. One chunk of each table is read, to measure the speed.

All other numbers come from the source's estimates. Nothing is changed, and no Spark is started.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lakeingest.commands.report import Report
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.binlog.position import FIRST_EPOCH
from lakeingest.core.figures.bill import UNIT_COSTS, cpu_of_rows, dollars, priced
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.following import Bound, bound_of
from lakeingest.core.tables.schema import NULL_DATES, TableId, TableSchema
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.lake.foreign_tables import Foreign
from lakeingest.lake.preflight import Copies, copies
from lakeingest.lake.target import Staged, Tables
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.chunk_reader import read_chunk
from lakeingest.mysql.preflight.foreign_keys import Unlogged, cascades, unlogged_keys
from lakeingest.mysql.preflight.generated_columns import GeneratedColumns
from lakeingest.mysql.preflight.server import Server
from lakeingest.pipeline.copying.planner import CHUNKS_PER_SLOT, Planner
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.run.executors import tasks_at_once
from lakeingest.pipeline.run.foreign_tables import foreign_table
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.pipeline.schema.definitions import assert_unchanged

TAKEN_OVER = "taken over"  # the state of a table that another tool made, and that becomes the copy
COPIED_ONCE = "copied once"  # the state of a table whose copy no run changes any more


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column's type in MySQL and in the lake."""

    name: str
    source_type: str
    lake_type: str


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What is left of a table's first copy: the numbers of rows, bytes, chunks and waves, and the time.

    All are estimates, made from the server's estimated numbers of rows and bytes. `seconds` assume that each chunk
    takes as long as the chunk that was read, and that `at_once` chunks are read at a time. The time to start Spark, to
    write files and to merge is not included. `cpu_seconds` come from UNIT_COSTS, and `dollars`, by service, come from
    `cpu_seconds`. `all_rows`: the rows of the whole table, also those that are copied already.
    """

    rows: int
    bytes: int
    chunk_rows: int
    chunks: int
    waves: int
    at_once: int
    seconds: float
    cpu_seconds: float
    dollars: Mapping[str, float]
    all_rows: int = 0


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The plan of a run for a table.

    `state` is one of these:
    - `new`: the table has no copy yet.
    - `begins empty`: the table has no copy yet, and only its changes will be copied.
    - `taken over`: the lake has the table of another tool, and all its rows will be compared.
    - `goes on`: the table has a copy.
    - `copied once`: the table has a copy, which no run changes any more.
    - `cannot be copied`: `reasons` say why.
    In the last two states, only `table`, `target`, `reasons` and `retention_seconds` are set, besides `following`.
    `lossy` names the columns whose values are changed or left out, and how. `retention_seconds` is how long the source
    keeps its binlog; None if for ever. `margin_seconds` is how many of these seconds are left when the copy ends.
    `following` is the most that following costs a day, all tables of the plan together. `partitions`: how the copy is
    divided; () if it is not. `foreign`: what becomes of the table of the other tool, in words.
    """

    table: TableId
    target: str
    state: str
    reasons: tuple[str, ...]
    key: tuple[str, ...] = ()
    key_path: str = ""
    columns: tuple[ColumnPlan, ...] = ()
    lossy: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    copy: CopyPlan | None = None
    retention_seconds: int | None = None
    margin_seconds: float | None = None
    following: Bound | None = None

    @property
    def types(self) -> "ColumnTypes":
        """The columns with their types, as a report."""
        return ColumnTypes(self.columns)


@dataclass(frozen=True, slots=True, repr=False)
class ColumnTypes(Report):
    """The columns of a table, with their types in MySQL and in the lake."""

    columns: tuple[ColumnPlan, ...]

    headers = ("column", "type", "type in the lake")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each column."""
        for column in self.columns:
            yield column.name, column.source_type, column.lake_type


class Plans(Report, tuple[TablePlan, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The plans of several tables. As a report it has a row for each table; only a TablePlan has the columns' types.

    `following`: the most that `run --follow` costs a day. `connections`: the most connections of a run to the source.
    """

    following: Bound
    connections: int

    headers = (
        "table",
        "target",
        "state",
        "key",
        "key path",
        "partitions",
        "rows",
        "bytes",
        "chunks",
        "waves",
        "seconds",
        "CPU seconds",
        "lossy",
        "reasons",
    )

    @property
    def largest(self) -> TablePlan | None:
        """The plan of the table with the most rows, of those that can be copied; None if there is none."""
        return max((plan for plan in self if plan.copy is not None), key=_all_rows, default=None)

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table."""
        for plan in self:
            copy, key = plan.copy, ", ".join(plan.key)
            counts: tuple[float | None, ...] = (None,) * 6
            if copy is not None:
                counts = copy.rows, copy.bytes, copy.chunks, copy.waves, copy.seconds, copy.cpu_seconds
            yield (
                str(plan.table),
                plan.target,
                plan.state,
                key,
                plan.key_path,
                ", ".join(plan.partitions),
                *counts,
                "; ".join((*plan.foreign, *plan.lossy)),
                "; ".join(plan.reasons),
            )

    @property
    def notes(self) -> Sequence[str]:
        """The meaning of the numbers, their totals, and the bill of one run for all these tables."""
        copies = [plan.copy for plan in self if plan.copy is not None]
        cpu = UNIT_COSTS.start + sum(copy.cpu_seconds for copy in copies)
        return (
            "estimates of what is left to copy; one chunk of each table was read for them",
            self._totals(copies),
            f"about {cpu:,.0f} CPU seconds in one run, {priced(dollars(cpu))}; then {UNIT_COSTS.changes} CPU seconds a"
            f" million changes. Measured {UNIT_COSTS.measured} on {UNIT_COSTS.machine}, with {UNIT_COSTS.table}",
            str(self.following),
        )

    def _totals(self, copies: Sequence[CopyPlan]) -> str:
        """What one run does for all these tables together, in one line. It copies one table after the other."""
        refused = sum(bool(plan.reasons) for plan in self)
        without_copy = f", of which {refused:,} cannot be copied" if refused else ""
        return (
            f"in all: {len(self):,} tables{without_copy}; about"
            f" {sum(copy.rows for copy in copies):,} rows and {sum(copy.bytes for copy in copies):,} bytes to copy, in"
            f" about {spoken(sum(copy.seconds for copy in copies))}; at most {self.connections:,} connections to the"
            " source"
        )


def _all_rows(plan: TablePlan) -> int:
    """The rows of the whole table; 0 if it is not copied."""
    return 0 if plan.copy is None else plan.copy.all_rows


def plan(config: Config, tables: Sequence[str] = ()) -> Plans:
    """The plans of the given tables; without names, of all included tables, also of those that cannot be copied."""
    with BinlogSource.open(config.source) as source:
        known = known_tables(config, source)
        chosen = config.tables.choose(known.tables, tables)
        target = open_target(config)
        existing_copies = copies(target, chosen)
        server, generated = Server.of(source.connection, chosen), GeneratedColumns(config.source, source.connection)
        unlogged = unlogged_keys(server, chosen)
        following = _bound(config, len(chosen))
        plans = [_plan_of_done(config, server, table) for table in chosen if table in known.done]
        plans += [
            _plan_table(config, source, server, target, table, existing_copies, unlogged, generated)
            for table in known.updated(chosen)
        ]
        result = Plans(replace(plan, following=following) for plan in sorted(plans, key=lambda plan: plan.table))
    result.following, result.connections = following, config.source.max_connections
    return result


def _plan_of_done(config: Config, server: Server, table: TableId) -> TablePlan:
    """The plan of a table whose copy no run changes any more."""
    retention = server.retention_seconds
    return TablePlan(table, table_name(config.target, table), COPIED_ONCE, reasons=(), retention_seconds=retention)


def _bound(config: Config, tables: int) -> Bound:
    """The most that `run --follow` costs a day for so many tables."""
    every = config.target.publish_every
    seconds = None if every == "auto" else every.total_seconds()
    return bound_of(seconds, tables, knows_files=config.target.format == "iceberg")


def _plan_table(
    config: Config,
    source: BinlogSource,
    server: Server,
    target: Tables,
    table: TableId,
    existing_copies: Copies,
    unlogged: Unlogged,
    generated: GeneratedColumns,
) -> TablePlan:
    """The plan of one table. The table cannot be copied if one of the steps finds a reason.

    Raises Retryable if the source or the lake does not answer now.
    """
    retention = server.retention_seconds
    name, staged = table_name(config.target, table), existing_copies.staged.get(table)
    # Step 1: the reason why no run can continue the copy that the lake has
    refusal = existing_copies.unopened or existing_copies.refused.get(table)
    if isinstance(refusal, Retryable):
        raise refusal
    reasons = [str(refusal)] if refusal else []
    # Step 2: changes by foreign keys that the source does not log. If they are missing by the user's choice, they are a
    # loss (`lossy`), and no reason. Only tables with such keys, or with unknown keys, can get a reason from `cascades`.
    unlogged_count = len(unlogged.keys.get(table, ()))
    are_missing = unlogged_count > 0 and config.tables.of(table).cascades == "missing"
    missing_changes = [f"changes by {unlogged_count} foreign keys: the source does not log them"] if are_missing else []
    if unlogged_count or table in unlogged.unknown:
        finding = cascades(server.with_tables([table]), config.tables).finding
        reasons += [finding] if finding else []
    # Step 3: the definition, and a first chunk. An error is a reason, too.
    try:
        with source.named_errors():
            schema = source.schema(table, config.tables.of(table).choices)
            condition = generated.checked([schema])
            reasons += [str(condition.finding)] if condition.finding and condition.fatal else []
            if staged:
                assert_unchanged(staged, schema)
            elif reason := config.tables.of(table).refusal_of_form(schema):
                reasons.append(reason)
            planner = Planner(source, schema, config.tables.of(table), tasks_at_once(config.source))
            key_path = _way_of_cutting(schema, planner)
            types = zip(schema.lake_columns, target.types(schema), strict=True)
            columns = tuple(ColumnPlan(column.name, str(column.source_type), lake_type) for column, lake_type in types)
            foreign = foreign_table(config, schema) if staged is None else None
            is_begun_empty = staged is None and config.tables.begins_empty
            copy = _no_chunks(source, planner) if is_begun_empty else _copy_plan(source, schema, planner, staged)
    except Retryable:
        raise
    except LakeIngestError as error:
        reasons.append(str(error))
    else:
        if not reasons:
            return TablePlan(
                table,
                name,
                TAKEN_OVER if foreign else _state_of(config, staged),
                reasons=(),
                key=schema.key,
                key_path=key_path,
                columns=columns,
                partitions=config.tables.of(table).partition_by,
                foreign=() if foreign is None else tuple(_notes(foreign)),
                lossy=(*_lossy(schema), *missing_changes),
                copy=copy,
                retention_seconds=retention,
                margin_seconds=None if retention is None else retention - copy.seconds,
            )
    return TablePlan(table, name, "cannot be copied", tuple(reasons), retention_seconds=retention)


def _state_of(config: Config, staged: Staged | None) -> str:
    """The state of a table that can be copied."""
    if staged is not None:
        return "goes on"
    return "begins empty" if config.tables.begins_empty else "new"


def _notes(foreign: Foreign) -> Iterator[str]:
    """What becomes of the table of another tool. Its last commit tells whether the tool is still at work."""
    made_at = datetime.fromtimestamp(foreign.changed, UTC)
    yield f"{foreign.rows:,} rows of {foreign.stopped}, whose last commit is of {made_at:%Y-%m-%d %H:%M:%S} UTC"
    yield from foreign.notes


def _lossy(schema: TableSchema) -> tuple[str, ...]:
    """The columns whose values are changed or left out because the user chose so, and the choice of rows."""
    nulls = (
        f"{column.name}: zero and partial dates are NULL" for column in schema.columns if column.choice == NULL_DATES
    )
    hidden = (f"{column.name}: {column.choice}" for column in schema.columns if column.is_hidden)
    chosen = [f"rows: only those WHERE {schema.choices.rows}"] if schema.choices.rows else []
    return (*nulls, *hidden, *(f"{name}: left out" for name in schema.skipped), *chosen)


def _way_of_cutting(schema: TableSchema, planner: Planner) -> str:
    """How the table is cut into chunks, as a text. This depends on the table's key."""
    declared = " (yours: no index keeps it unique)" if schema.declared else ""
    if not schema.ordered:
        return f"key that only the server can order{declared}: the server finds boundaries, merged after the last chunk"
    if len(schema.key) > 1:
        return f"composite key{declared}: the server finds boundaries"
    if planner.by_arithmetic:
        return f"integer key, even{declared}: cut by arithmetic"
    return f"integer key, gappy or without rows{declared}: the server finds boundaries"


def _no_chunks(source: BinlogSource, planner: Planner) -> CopyPlan:
    """The plan of a copy that has no chunk left to read."""
    return CopyPlan(
        rows=0,
        bytes=0,
        chunk_rows=planner.chunk_rows,
        chunks=0,
        waves=0,
        at_once=tasks_at_once(source.settings),
        seconds=0.0,
        cpu_seconds=0.0,
        dollars=dollars(0),
        all_rows=planner.estimated_rows,
    )


def _copy_plan(source: BinlogSource, schema: TableSchema, planner: Planner, staged: Staged | None) -> CopyPlan:
    """The estimate for the rows that are not copied yet. The next chunk is read, to measure how long a chunk takes."""
    at_once = tasks_at_once(source.settings)
    lower = None  # the key from which on rows are still to be copied; None: from the first row on
    rows_left, bytes_left = planner.estimated_rows, planner.estimated_bytes
    if staged is not None:
        if staged.progress.splits.complete:
            return _no_chunks(source, planner)
        lower = staged.progress.splits.copied_up_to
        rows_left = max(0, planner.estimated_rows - staged.progress.rows)
        bytes_left = planner.estimated_bytes * rows_left // max(planner.estimated_rows, 1)
    wave = planner.next_wave(lower)
    began = time.monotonic()
    # Any position will do as `settled`, because the chunk's watermarks are not used.
    uuid, written = source.state().uuid, source.written()
    read = read_chunk(source.settings, schema, wave[0], uuid, FIRST_EPOCH, settled=written)
    chunk_seconds = time.monotonic() - began
    chunk_ends_table, wave_ends_table = wave[0].range.upper is None, wave[-1].range.upper is None
    if chunk_ends_table:
        rows_left = read.rows.num_rows  # exact, because no rows are left after this chunk
    chunks = len(wave)
    if not wave_ends_table:  # at least one chunk follows the wave
        chunks = max(chunks + 1, math.ceil(rows_left / planner.chunk_rows))
    waves = math.ceil(chunks / (CHUNKS_PER_SLOT * at_once))
    seconds = chunk_seconds * math.ceil(chunks / at_once)
    cpu = cpu_of_rows(rows_left)
    return CopyPlan(
        rows_left,
        bytes_left,
        planner.chunk_rows,
        chunks,
        waves,
        at_once,
        seconds,
        cpu_seconds=cpu,
        dollars=dollars(cpu),
        all_rows=max(rows_left, planner.estimated_rows),
    )
