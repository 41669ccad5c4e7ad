"""Bootstrap: a table is copied in waves of chunks; each wave is one commit on staging, the unit of resume.

Beside each wave's chunks the executors read the binlog that was written since the wave before, so retention cannot
run out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.config import Source
from lakeingest.core.chunks import BYTES_MAX, SECONDS_MAX, Chunk, Cost
from lakeingest.core.keys import KeyRange
from lakeingest.core.position import FilePosition
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.splits import Split
from lakeingest.errors import ChunkTooLarge, ChunkTooSlow
from lakeingest.lake.target import Writer
from lakeingest.mysql.chunk_reader import Cap, read_chunk
from lakeingest.pipeline.binlog_ingest import Decoded, SpoolSegment, append_segments, next_segments
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Planned, WaveCommitted
from lakeingest.pipeline.gate import gate
from lakeingest.pipeline.merge import merge
from lakeingest.pipeline.planner import Planner
from lakeingest.pipeline.profile import Profile
from lakeingest.quality.look import is_sound
from lakeingest.quality.suites import default_suite
from lakeingest.spark.scatter import scatter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGE_BACKLOG = 200_000  # change rows of a table that are worth a merge before its last wave
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
            read = read_chunk(self.source, self.schema, self.chunk, self.server_uuid, self.epoch, cap=self.cap)
        cost = Cost(read.rows.num_rows, read.rows.nbytes, time.monotonic() - began)
        with profile.stage("chunks: look"):
            sound = is_sound(default_suite(self.schema, read.rows.num_rows), read.rows)
        with profile.stage("chunks: write"):
            files = self.writer.write(read.rows)
        return Copied(files, read.split, read.high, cost, sound, profile)


def bootstrap(context: Context, table: TableId, out_of_time: Callable[[], bool]) -> None:
    """Copy what is missing of the table, wave by wave, until it is complete or the time is up.

    A wave of which a chunk was given up is planned anew, cut finer; ChunkTooSlow where it cannot be.
    """
    options = context.config.tables.of(table)
    planner = Planner(context.connection, context.schemas[table], options, context.at_once)
    context.observe(Planned(table, planner.estimated_rows))
    writer = context.target.writer(table)
    while not (splits := context.tables[table].progress.splits).complete and not out_of_time():
        cap = Cap(SECONDS_MAX, BYTES_MAX if planner.can_shrink else None)
        try:
            planner.learn(_wave(context, table, planner.next_wave(splits.copied_up_to), cap, writer))
        except (ChunkTooSlow, ChunkTooLarge) as error:
            if not planner.can_shrink:
                raise ChunkTooSlow(f"{table}: {error}") from error
            planner.shrink()


def _wave(context: Context, table: TableId, chunks: list[Chunk], cap: Cap, writer: Writer) -> list[Cost]:
    began = time.monotonic()
    position, schema = context.spool.position, context.schemas[table]
    copies = [
        CopyChunk(context.config.source, schema, chunk, position.server_uuid, position.epoch, cap, writer)
        for chunk in chunks
    ]
    tasks: list[CopyChunk | SpoolSegment] = [*copies, *next_segments(context)]
    first = not context.tables[table].progress.wave  # of a table of one chunk; else workers are there
    outcomes = scatter(context.spark, _run, tasks, context.at_once, lone_here=first)
    copied = [outcome for outcome in outcomes if isinstance(outcome, Copied)]
    append_segments(context, [one for one in outcomes if isinstance(one, Decoded)], time.monotonic() - began)
    # the spool has passed the high watermarks of the waves before, not those of this one
    splits = context.tables[table].progress.splits
    if _backlog(context, table) >= MERGE_BACKLOG or len(splits.all) >= MERGE_SPLITS:
        merge(context, table)
    staged = context.tables[table]
    context.boundaries += [one.high for one in copied]
    rows = sum(one.cost.rows for one in copied)
    progress = staged.progress.wave_committed(tuple(one.split for one in copied), rows)
    context.lease.assert_held()
    sound = all(one.sound for one in copied)
    with context.profile.stage("waves: commit"):
        context.advance(context.target.commit_wave(staged, [one.files for one in copied], progress), sound=sound)
    for one in copied:
        context.profile += one.profile
    seconds = time.monotonic() - began
    took = tuple(one.cost.seconds for one in copied)
    context.observe(WaveCommitted(table, progress.wave, len(chunks), rows, seconds, progress.splits.complete, took))
    if not progress.splits.complete:  # the rows of the last wave are asked before the publish, which follows
        predicate = KeyRange(chunks[0].range.lower, chunks[-1].range.upper).predicate(schema.key)

        def staged_rows() -> "DataFrame":
            return context.target.read(table, context.tables[table].version, context.spark).where(predicate)

        gate(context, table, f"after wave {progress.wave}", staged_rows, rows, known=sound)
    return [one.cost for one in copied]


def _run(task: CopyChunk | SpoolSegment) -> Copied | Decoded:
    return task.run()


def _backlog(context: Context, table: TableId) -> int:
    progress = context.tables[table].progress
    if not progress.splits.all:
        return 0
    since = progress.covered_from if progress.position is None else progress.position.place
    return context.spool.backlog(table, max(since, context.spool.start))
