"""Bootstrap: a table is copied in waves of chunks; each wave is one commit on staging, the unit of resume.

Beside each wave's chunks the executors read the binlog that was written since the wave before, so retention cannot
run out.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.config import Source
from lakeingest.core.chunks import BYTES_MAX, SECONDS_MAX, Chunk, Cost
from lakeingest.core.history import History
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import FilePosition, GtidSet, Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.splits import Split
from lakeingest.errors import ChunkTooLarge, ChunkTooSlow, SplitUnstable, of_pipeline, of_table
from lakeingest.lake.target import Writer
from lakeingest.mysql.chunk_reader import Cap, ChunkRead, read_chunk
from lakeingest.mysql.continuity import file_began
from lakeingest.pipeline.binlog_ingest import Decoded, SpoolSegment, append_segments, are_small, next_segments
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Planned, WaveCommitted
from lakeingest.pipeline.gate import gate
from lakeingest.pipeline.merge import merge
from lakeingest.pipeline.planner import Planner
from lakeingest.pipeline.profile import Profile
from lakeingest.quality.row_checks import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.scatter import scatter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGE_BACKLOG = 200_000  # change rows of a table that are worth a merge before its last wave
READ_TRIES = 3  # of a chunk, while its table is being altered
MERGE_SPLITS = 128  # splits with low watermarks, each a GTID set in every commit's properties; a merge makes them one


@dataclass(frozen=True, slots=True)
class Copied:
    """What one executor did with one chunk: files that no table refers to yet, and the split that they finish.

    `sound`: its rows were looked at, and hold what the table's definition says of them.
    """

    files: bytes
    split: Split
    high: FilePosition
    cost: Cost
    sound: bool
    nulled: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """The task of one executor: read a chunk under its watermarks, write it to files."""

    source: Source
    schema: TableSchema
    chunk: Chunk
    server_uuid: str
    epoch: int
    cap: Cap
    writer: Writer

    def run(self) -> Copied:
        """Rows and marks are of one attempt, and return together."""
        began, profile = time.monotonic(), Profile()
        with profile.stage("chunks: read"):
            read = self._read()
        cost = Cost(read.rows.num_rows, read.rows.nbytes, time.monotonic() - began)
        with profile.stage("chunks: look"):
            sound = is_sound(default_suite(self.schema, read.rows.num_rows), read.rows)
        with profile.stage("chunks: write"):
            files = self.writer.write(read.rows)
        return Copied(files, read.split, read.high, cost, sound, read.nulled, profile)

    def _read(self) -> ChunkRead:
        """The chunk, read again a few times where its table changed meanwhile; SplitUnstable where it still does."""
        asked = self.source, self.schema, self.chunk, self.server_uuid, self.epoch
        for _ in range(READ_TRIES - 1):
            with suppress(SplitUnstable):
                return read_chunk(*asked, cap=self.cap)
        return read_chunk(*asked, cap=self.cap)


@dataclass(frozen=True, slots=True)
class Wave:
    """Chunks that executors read, and beside them the binlog since the wave before."""

    chunks: list[Chunk]
    outcomes: BackgroundJob[list[Copied | Decoded]]
    began: float


def bootstrap(context: Context, table: TableId, out_of_time: Callable[[], bool]) -> None:
    """Copy what is missing of the table, wave by wave, until it is complete or the time is up.

    While a wave is committed the next one is read. A wave of which a chunk was given up is planned anew, cut finer;
    ChunkTooSlow where it cannot be.
    """
    planner = Planner(context.connection, context.schemas[table], context.config.tables.of(table), context.at_once)
    context.observe(Planned(table, planner.estimated_rows))
    splits = context.tables[table].progress.splits
    wave = None if splits.complete or out_of_time() else _begin(context, table, planner, splits.copied_up_to)
    try:
        while wave is not None:
            read, copied = wave, _end(context, table, planner, wave)
            if table in context.errors:  # the binlog holds something of it that cannot be replayed
                return
            lower = read.chunks[-1].range.upper if copied else read.chunks[0].range.lower
            complete = bool(copied) and lower is None
            wave = None if complete or out_of_time() else _begin(context, table, planner, lower)
            if copied:
                _commit(context, table, read, copied)
            if out_of_time():
                break
    finally:
        if wave is not None:
            wave.outcomes.cancel()


def _begin(context: Context, table: TableId, planner: Planner, lower: Key | None) -> Wave:
    """Let the next wave be read, from `lower` on."""
    chunks, cap = planner.next_wave(lower), Cap(SECONDS_MAX, BYTES_MAX if planner.can_shrink else None)
    position, schema, writer = context.spool.position, context.schemas[table], context.target.writer(table)
    copies = [
        CopyChunk(context.config.source, schema, chunk, position.server_uuid, position.epoch, cap, writer)
        for chunk in chunks
    ]
    with of_pipeline():
        segments = next_segments(context)
    tasks: list[CopyChunk | SpoolSegment] = [*copies, *segments]
    # a table of one chunk is read here; the last chunk of a larger one goes to the workers that there are then
    workers = context.workers(small=lower is None and len(copies) == 1 and are_small(segments))

    def read() -> list[Copied | Decoded]:
        return scatter(workers, _run, tasks, context.at_once)

    return Wave(chunks, BackgroundJob(workers, read), time.monotonic())


def _end(context: Context, table: TableId, planner: Planner, wave: Wave) -> list[Copied]:
    """Wait for a wave, and learn from it; its chunks, or none where one was given up and the next try is finer."""
    try:
        outcomes = wave.outcomes.result()
    except (ChunkTooSlow, ChunkTooLarge) as error:
        if not planner.can_shrink:
            raise ChunkTooSlow(f"{table}: {error}") from error
        planner.shrink()
        return []
    with of_pipeline():
        append_segments(context, [one for one in outcomes if isinstance(one, Decoded)], time.monotonic() - wave.began)
    copied = [one for one in outcomes if isinstance(one, Copied)]
    context.boundaries += [one.high for one in copied]
    planner.learn([one.cost for one in copied])
    return copied


def _commit(context: Context, table: TableId, wave: Wave, copied: list[Copied]) -> None:
    """Make a wave part of staging; the rows of the last one are asked before the publish, which follows."""
    # the spool has passed the high watermarks of the waves before, not those of this one
    splits = context.tables[table].progress.splits
    if splits.ordered and (_backlog(context, table) >= MERGE_BACKLOG or len(splits.all) >= MERGE_SPLITS):
        merge(context, table)
    staged, schema = context.tables[table], context.schemas[table]
    rows = sum(one.cost.rows for one in copied)
    nulled = sum(one.nulled for one in copied)
    read_to = _read_to(context, max((one.high for one in copied), key=lambda high: high.place(0)))
    progress = staged.progress.wave_committed(tuple(one.split for one in copied), rows, nulled, read_to)
    context.lease.assert_held()
    sound = all(one.sound for one in copied)
    with context.profile.stage("waves: commit"):
        context.advance(context.target.commit_wave(staged, [one.files for one in copied], progress), sound=sound)
    for one in copied:
        context.profile += one.profile
    seconds, took = time.monotonic() - wave.began, tuple(one.cost.seconds for one in copied)
    complete = progress.splits.complete
    context.observe(WaveCommitted(table, progress.wave, len(copied), rows, seconds, complete, took))
    if not complete:
        asked = KeyRange(wave.chunks[0].range.lower, wave.chunks[-1].range.upper)
        if not asked.ordered:  # all rows, then: Spark cannot tell those of the wave
            asked, rows = KeyRange(), progress.rows

        def staged_rows() -> "DataFrame":
            staged = context.target.read(table, context.tables[table].version, context.open_spark())
            return staged.where(asked.predicate(schema.key))

        gate(context, table, f"after wave {progress.wave}", staged_rows, rows, known=sound)


def _read_to(context: Context, high: FilePosition) -> Position:
    """The greatest high watermark of a wave, and in which second its file was begun."""
    if high.file not in context.began:
        context.began[high.file] = file_began(context.config.source, high.file)
    position = context.spool.position
    gtids = None if position.gtids is None else GtidSet()  # they are in the lows
    return Position(position.server_uuid, position.epoch, high, gtids, History(context.began[high.file]))


def _run(task: CopyChunk | SpoolSegment) -> Copied | Decoded:
    if isinstance(task, CopyChunk):
        with of_table():
            return task.run()
    with of_pipeline():
        return task.run()


def _backlog(context: Context, table: TableId) -> int:
    progress = context.tables[table].progress
    if not progress.splits.all:
        return 0
    since = progress.covered_from if progress.position is None else progress.position.place
    return context.spool.backlog(table, max(since, context.spool.start))
