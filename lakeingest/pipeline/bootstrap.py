"""Bootstrap: a table is copied in waves of chunks; each wave is one commit on staging, the unit of resume.

Beside each wave's chunks the executors read the binlog that was written since the wave before, so retention cannot
run out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.config import Source
from lakeingest.control.spool import Manifest
from lakeingest.core.chunks import Chunk, chunks_between, even_boundaries, even_step
from lakeingest.core.keys import Key
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.splits import Split
from lakeingest.lake.target import Writer
from lakeingest.mysql.chunk_reader import estimated_rows, key_bounds, next_boundary, read_chunk
from lakeingest.pipeline.binlog_ingest import SpoolSegment, append_segments, merge, next_segments
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Planned, WaveCommitted
from lakeingest.spark.scatter import scatter

CHUNK_ROWS = 20_000  # `chunk_rows: auto`: well under 5 s for the reference decoder, a longer view would hold back purge
CHUNKS_PER_SLOT = 4  # of a wave: enough that its last chunk does not leave the other executors idle for long
MERGE_BACKLOG = 200_000  # change rows of a table that are worth a merge before its last wave


@dataclass(frozen=True, slots=True)
class Copied:
    """What one executor did with one chunk: files that no table refers to yet, and the split that they finish."""

    files: bytes
    split: Split
    high: FilePosition
    rows: int


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """The task of one executor: read a chunk under its watermarks, write it to files."""

    source: Source
    schema: TableSchema
    chunk: Chunk
    server_uuid: str
    epoch: int
    writer: Writer

    def run(self) -> Copied:
        """Rows and marks are of one attempt, and return together."""
        read = read_chunk(self.source, self.schema, self.chunk, self.server_uuid, self.epoch)
        return Copied(self.writer.write(read.rows), read.split, read.high, read.rows.num_rows)


def bootstrap(context: Context, table: TableId, out_of_time: Callable[[], bool]) -> None:
    """Copy what is missing of the table, wave by wave, until it is complete or the time is up."""
    planner = Planner(context, table)
    context.observe(Planned(table, planner.estimated))
    writer = context.target.writer(table)
    while not context.tables[table].progress.splits.complete and not out_of_time():
        _wave(context, table, planner.next_wave(), writer)


def _wave(context: Context, table: TableId, chunks: list[Chunk], writer: Writer) -> None:
    began = time.monotonic()
    position = context.spool.position
    copies = [
        CopyChunk(context.config.source, context.schemas[table], chunk, position.server_uuid, position.epoch, writer)
        for chunk in chunks
    ]
    tasks: list[CopyChunk | SpoolSegment] = [*copies, *next_segments(context)]
    outcomes = scatter(context.spark, _run, tasks, context.at_once)
    copied = [outcome for outcome in outcomes if isinstance(outcome, Copied)]
    append_segments(context, [one for one in outcomes if isinstance(one, Manifest)], time.monotonic() - began)
    # the spool has passed the high watermarks of the waves before, not those of this one
    if _backlog(context, table) >= MERGE_BACKLOG:
        merge(context, table)
    staged = context.tables[table]
    context.boundaries += [one.high for one in copied]
    rows = sum(one.rows for one in copied)
    progress = staged.progress.wave_committed(tuple(one.split for one in copied), rows)
    context.advance(context.target.commit_wave(staged, [one.files for one in copied], progress))
    seconds = time.monotonic() - began
    context.observe(WaveCommitted(table, progress.wave, len(chunks), rows, seconds, progress.splits.complete))


def _run(task: CopyChunk | SpoolSegment) -> Copied | Manifest:
    return task.run()


def _backlog(context: Context, table: TableId) -> int:
    progress = context.tables[table].progress
    if not progress.splits.all:
        return 0
    since = progress.covered_from if progress.position is None else progress.position.place
    return context.spool.backlog(table, max(since, context.spool.start))


class Planner:
    """Plans a table's chunks wave by wave, so that memory does not grow with the table."""

    def __init__(self, context: Context, table: TableId) -> None:
        self._context = context
        self._schema = context.schemas[table]
        options = context.config.tables.of(table)
        self._rows = CHUNK_ROWS if options.chunk_rows == "auto" else options.chunk_rows
        self.estimated = estimated_rows(context.connection, self._schema)
        bounds = key_bounds(context.connection, self._schema) if len(self._schema.key) == 1 else None
        self._least = bounds[0] if bounds else 0
        self._step = even_step(*bounds, self.estimated, self._rows) if bounds else None

    def next_wave(self) -> list[Chunk]:
        """The chunks that follow what is copied so far; the last of them has no upper bound when it reaches the end."""
        table, lower = self._schema.table, self._context.tables[self._schema.table].progress.splits.copied_up_to
        count = CHUNKS_PER_SLOT * self._context.at_once
        boundaries, last = self._even(lower, count) if self._step else self._asked(lower, count)
        return chunks_between(table, lower, boundaries, last=last)

    def _even(self, lower: Key | None, count: int) -> tuple[list[Key], bool]:
        assert self._step is not None  # noqa: S101 - the caller asked
        bounds = key_bounds(self._context.connection, self._schema)
        start = lower[0] if lower else self._least
        return even_boundaries(start, self._step, bounds[1], count) if bounds else ([], True)

    def _asked(self, lower: Key | None, count: int) -> tuple[list[Key], bool]:
        boundaries: list[Key] = []
        for _ in range(count):
            following = next_boundary(self._context.connection, self._schema, lower, self._rows)
            if following is None:
                return boundaries, True
            boundaries.append(following)
            lower = following
        return boundaries, False
