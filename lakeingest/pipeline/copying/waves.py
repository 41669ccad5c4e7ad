"""Bootstrap: a table is copied in waves of chunks. Each wave is one commit on staging, the unit of resume.

At the same time as a wave's chunks the executors read the binlog that was written since the last wave, so the source
does not purge binlog that the copy still needs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.core.chunks import BYTES_MAX, SECONDS_MAX, Chunk
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import latest
from lakeingest.errors import ChunkTooLarge, ChunkTooSlow, of_pipeline
from lakeingest.mysql.chunk_reader import Cap
from lakeingest.pipeline.binlog.ingest import append_segments, are_small, next_segments
from lakeingest.pipeline.binlog.segment_task import Decoded, SpoolSegment
from lakeingest.pipeline.binlog.watermarks import read_up_to, settled_position
from lakeingest.pipeline.copying.planner import Planner
from lakeingest.pipeline.copying.tasks import Copied, CopyChunk, run_task
from lakeingest.pipeline.events import Planned, WaveCommitted
from lakeingest.pipeline.merging.merge import merge
from lakeingest.pipeline.publishing.gate import gate
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.scatter import prepare
from lakeingest.spool.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGE_BACKLOG = 200_000  # with so many change rows a table is merged before its last wave
MERGE_SPLITS = 128  # each is a GTID set in every commit's properties, until a merge joins them


@dataclass(frozen=True, slots=True)
class Wave:
    """Chunks that executors read, and at the same time the binlog that was written since the last wave."""

    chunks: list[Chunk]
    outcomes: BackgroundJob[list[Copied | Decoded]]
    began: float

    @property
    def keys(self) -> KeyRange:
        """The keys of all chunks of the wave."""
        return KeyRange(self.chunks[0].range.lower, self.chunks[-1].range.upper)


def bootstrap(edges: Edges, binlog: BinlogRun, table: TableRun, out_of_time: Callable[[], bool]) -> None:
    """Copy the missing chunks of the table, wave by wave, until none is missing or the time is up.

    While a wave is committed, the next wave is read. A wave with a chunk that was given up is planned again, in smaller
    chunks; ChunkTooSlow where they cannot be smaller.
    """
    if not table.has_missing_chunks or out_of_time():
        return
    planner = Planner(edges.source, table.schema, table.options, edges.executors.at_once)
    edges.observe(Planned(table.id, planner.estimated_rows))
    wave: Wave | None = begin_wave(edges, binlog, table, planner, table.progress.splits.copied_up_to)
    try:
        while wave is not None:
            read, copied = wave, end_wave(edges, binlog, table, planner, wave)
            if table.watch is Watch.UNWATCHED:  # the binlog holds a change of the table that cannot be replayed
                return
            is_last = bool(copied) and read.keys.upper is None
            lower = read.keys.upper if copied else read.keys.lower
            wave = None if is_last or out_of_time() else begin_wave(edges, binlog, table, planner, lower)
            if copied:
                commit_wave(edges, binlog, table, read, copied)
            if out_of_time():
                break
    finally:
        if wave is not None:
            wave.outcomes.cancel()


def begin_wave(
    edges: Edges, binlog: BinlogRun, table: TableRun, planner: Planner, lower: Key | None, *, beside: bool = False
) -> Wave:
    """Start to read the next wave, from the key `lower` on; with `beside` without the binlog, which others read."""
    chunks, cap = planner.next_wave(lower), Cap(SECONDS_MAX, BYTES_MAX if planner.can_shrink else None)
    position, writer, since = binlog.spool.position, edges.target.writer(table.id), settled_position(edges, binlog)
    copies = [
        CopyChunk(edges.source.settings, table.schema, chunk, position.server_uuid, position.epoch, since, cap, writer)
        for chunk in chunks
    ]
    executors = edges.executors
    at_once = executors.at_once_beside if beside else executors.at_once
    with of_pipeline():
        segments = [] if beside else next_segments(edges, binlog, at_once)
    tasks: list[CopyChunk | SpoolSegment] = [*copies, *segments]
    # a table of one chunk is read in this process; workers are running already for the last chunk of a larger table
    workers = executors.for_tasks(small=lower is None and len(copies) == 1 and are_small(segments))
    job = BackgroundJob(workers, prepare(workers, run_task, tasks, at_once))
    return Wave(chunks, executors.beside(job, at_once) if beside else job, time.monotonic())


def end_wave(edges: Edges, binlog: BinlogRun, table: TableRun, planner: Planner, wave: Wave) -> list[Copied]:
    """Wait for a wave; its chunks, or none where a chunk was given up and the next try has smaller chunks."""
    try:
        outcomes = wave.outcomes.result()
    except (ChunkTooSlow, ChunkTooLarge) as error:
        if not planner.can_shrink:
            raise ChunkTooSlow(f"{table.id}: {error}") from error
        planner.shrink()
        return []
    decoded = [outcome for outcome in outcomes if isinstance(outcome, Decoded)]
    copied = [outcome for outcome in outcomes if isinstance(outcome, Copied)]
    if decoded:
        with of_pipeline():
            append_segments(edges, binlog, decoded, time.monotonic() - wave.began)
    binlog.add_boundaries(chunk.high for chunk in copied)
    planner.learn([chunk.cost for chunk in copied])
    return copied


def commit_wave(edges: Edges, binlog: BinlogRun, table: TableRun, wave: Wave, copied: list[Copied]) -> None:
    """Make a wave part of staging, then run the gate on its rows.

    The gate before the publish, which follows the last wave, checks the rows of that wave.
    """
    # the spool has passed the high watermarks of the earlier waves, but not those of this wave
    splits = table.progress.splits
    if splits.ordered and (_backlog(binlog.spool, table) >= MERGE_BACKLOG or len(splits.all) >= MERGE_SPLITS):
        merge(edges, binlog.spool, table)
    rows = sum(chunk.cost.rows for chunk in copied)
    nulled = sum(chunk.nulled for chunk in copied)
    read_to = read_up_to(edges, binlog, latest(chunk.high for chunk in copied))
    progress = table.progress.wave_committed(tuple(chunk.split for chunk in copied), rows, nulled, read_to)
    sound = all(chunk.sound for chunk in copied)
    with edges.profile.stage("waves: commit"):
        staged = edges.committing.commit_wave(table.staged, [chunk.files for chunk in copied], progress)
    table.advance(staged, sound=sound)
    for chunk in copied:
        edges.profile.add(chunk.profile)
    seconds, took = time.monotonic() - wave.began, tuple(chunk.cost.seconds for chunk in copied)
    is_last = not table.has_missing_chunks
    edges.observe(WaveCommitted(table.id, progress.wave, len(copied), rows, seconds, is_last, took))
    if not is_last:
        keys = wave.keys
        if not keys.ordered:  # Spark cannot tell which rows are of the wave: the gate checks all rows
            keys, rows = KeyRange(), progress.rows

        def staged_rows() -> "DataFrame":
            staged_table = edges.target.read(table.id, table.staged.version, edges.executors.open())
            return staged_table.where(keys.predicate(table.schema.key))

        gate(edges, table, f"after wave {progress.wave}", staged_rows, rows, sound=sound)


def _backlog(spool: Spool, table: TableRun) -> int:
    """How many change rows of the table are spooled and not merged."""
    progress = table.progress
    if not progress.splits.all:
        return 0
    since = progress.covered_from if progress.position is None else progress.position.place
    return spool.backlog(table.id, max(since, spool.start))
