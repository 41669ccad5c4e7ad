"""Bootstrap: a table is copied in waves of chunks. Each wave is one commit on staging, from which a run can continue.

Together with a wave's chunks, the executors read the binlog that was written since the last wave, before the source
purges binlog that the copy still needs.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from lakeingest.core.binlog.position import latest
from lakeingest.core.proofs.witness import of_chunks
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.chunks import BYTES_MAX, SECONDS_MAX
from lakeingest.errors import of_pipeline
from lakeingest.mysql.chunk_reader import Cap
from lakeingest.pipeline.binlog.ingest import append_segments, are_small, next_segments, spool_to_now
from lakeingest.pipeline.binlog.segment_task import Decoded, SpoolSegment
from lakeingest.pipeline.binlog.watermarks import position_of_high, settled_position
from lakeingest.pipeline.copying.planner import Planner
from lakeingest.pipeline.copying.tasks import Copied, CopyChunk, Copying, run_task
from lakeingest.pipeline.copying.wave_loop import Wave, WaveLoop
from lakeingest.pipeline.events import Planned, Throttled, WaveCommitted
from lakeingest.pipeline.merging.merge import merge
from lakeingest.pipeline.publishing.gate import gate
from lakeingest.pipeline.publishing.quarantine import refusal_of
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.pickled_once import PickledOnce
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.run.watch import Watch
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.scatter import prepare
from lakeingest.spool.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGE_BACKLOG = 200_000  # with so many change rows a table is merged before its last wave
THROTTLE_SECONDS = 1.0  # between two looks at the load of the source while a wave waits
MERGE_SPLITS = 128  # each split puts a GTID set into the properties of every commit, until a merge joins the splits


Chunks: TypeAlias = Wave[Copied | Decoded]


def bootstrap(edges: Edges, binlog: BinlogRun, table: TableRun, out_of_time: Callable[[], bool]) -> None:
    """Copy the missing chunks of the table, wave by wave, until none is missing or `out_of_time` says so.

    While a limit of `throttle` is reached, no wave is begun, and the binlog is spooled.
    """
    if not table.has_missing_chunks or out_of_time():
        return
    copying = TableCopy(edges, binlog, table)
    try:
        while copying.has_more and not out_of_time():
            if copying.wave is None:
                if not _wait_to_read(edges, binlog, table, out_of_time):
                    break
                copying.begin()
            copying.step(lambda: not out_of_time())
    finally:
        copying.cancel()


def _wait_to_read(edges: Edges, binlog: BinlogRun, table: TableRun, out_of_time: Callable[[], bool]) -> bool:
    """Wait until `throttle` lets the next wave be read. False if `out_of_time` says so before that."""
    is_reported = False
    with edges.profile.stage("chunks: throttled"):
        while (reason := edges.throttle.reason_to_wait()) is not None:
            if out_of_time():
                return False
            is_pace = edges.throttle.seconds_left > 0  # which every wave waits for
            if not is_reported and not is_pace:
                edges.observe(Throttled(table.id, reason))
                is_reported = True
            with of_pipeline():
                spool_to_now(edges, binlog)  # before the source purges binlog that the copy still needs
            time.sleep(min(THROTTLE_SECONDS, edges.throttle.seconds_left or THROTTLE_SECONDS))
    return True


class TableCopy(WaveLoop[Chunks, Copied | Decoded]):
    """Copies the missing chunks of a table, wave by wave. `begin` begins the first wave.

    With `beside`, its waves do not read the binlog: the rounds do that.
    """

    def __init__(self, edges: Edges, binlog: BinlogRun, table: TableRun, *, beside: bool = False) -> None:
        executors = edges.executors
        self._edges, self._binlog, self._table, self._beside = edges, binlog, table, beside
        self._at_once = executors.at_once_beside if beside else executors.at_once
        self._plan = Planner(edges.source, table.schema, table.options, self._at_once, short=edges.throttle.is_set)
        super().__init__(table.id, self._plan)
        edges.observe(Planned(table.id, self._plan.estimated_rows))

    @property
    def has_more(self) -> bool:
        """Whether chunks are missing, and the table can be copied."""
        return self._table.has_missing_chunks and self._table.watch is not Watch.UNWATCHED

    def begin(self) -> None:
        """Begin to read the first missing chunks."""
        self.wave = self._begin(self._table.progress.splits.copied_up_to)

    def step(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Wait for the wave, begin the next wave if `goes_on` and `throttle` say so, and commit the wave that was read.

        Once the binlog has a change of the table that cannot be replayed, no wave is committed or begun.
        """
        table = self._table
        may_read = self._edges.throttle.may_read
        taken = self.take(lambda: table.watch is not Watch.UNWATCHED and goes_on(), may_read)
        if taken is not None and table.watch is not Watch.UNWATCHED:
            wave, parts = taken
            commit_wave(self._edges, self._binlog, table, wave, [part for part in parts if isinstance(part, Copied)])

    def _begin(self, lower: Key | None) -> Chunks:
        """Plan the chunks of a wave, and let executors read them, with segments of the binlog, in the background."""
        edges, binlog, table, at_once = self._edges, self._binlog, self._table, self._at_once
        chunks = self._plan.next_wave(lower)
        cap = Cap(
            SECONDS_MAX,
            BYTES_MAX if self._plan.can_shrink else None,  # None if chunks cannot be made smaller
            edges.throttle.bytes_per_second(at_once),
        )
        at, writer, settled = binlog.spool.position, edges.target.writer(table.id), settled_position(edges, binlog)
        shared = Copying(edges.source.settings, table.schema, at.server_uuid, at.epoch, settled, cap, writer)
        wave = PickledOnce(shared)
        looks = edges.witness.looks_at_chunks(edges.source.greeting, table.schema, edges.stopped, len(chunks))
        copies = [CopyChunk(wave, chunk, look) for chunk, look in zip(chunks, looks, strict=True)]
        executors = edges.executors
        with of_pipeline():
            segments = [] if self._beside else next_segments(edges, binlog, at_once)
        tasks: list[CopyChunk | SpoolSegment] = [*copies, *segments]
        # a table of one chunk is read in this process; for the last chunk of a larger table, workers already run
        is_table_of_one_chunk = lower is None and len(copies) == 1
        workers = executors.for_tasks(small=is_table_of_one_chunk and are_small(segments))
        job = BackgroundJob(workers, prepare(workers, run_task, tasks, at_once))
        if self._beside:
            job = executors.beside(job, at_once)
        keys = KeyRange(chunks[0].range.lower, chunks[-1].range.upper)
        return Wave(keys, is_last=keys.upper is None, job=job, began=time.monotonic())

    def _learn(self, wave: Chunks, parts: Sequence[Copied | Decoded]) -> None:
        """Make the wave's segments of the binlog part of the spool, and let the chunks' costs size the next wave."""
        copied = [part for part in parts if isinstance(part, Copied)]
        if decoded := [part for part in parts if isinstance(part, Decoded)]:
            with of_pipeline():
                append_segments(self._edges, self._binlog, decoded, time.monotonic() - wave.began)
        self._binlog.add_boundaries(chunk.high for chunk in copied)
        self._plan.learn([chunk.cost for chunk in copied])
        self._edges.throttle.took(sum(chunk.cost.bytes for chunk in copied), wave.began)


def commit_wave(edges: Edges, binlog: BinlogRun, table: TableRun, wave: Chunks, copied: list[Copied]) -> None:
    """Make a wave part of staging, then run the gate on its rows.

    After the last wave no gate runs here: the gate before the publish checks its rows.
    """
    # Step 1: merge a large backlog to the spool's end. This wave is not among the splits yet: its high watermarks may
    # be after the spool's end. On the general path there is no merge before the last chunk
    splits = table.progress.splits
    if splits.ordered and (_backlog(binlog.spool, table) >= MERGE_BACKLOG or len(splits.all) >= MERGE_SPLITS):
        merge(edges, binlog.spool, table)
    # Step 2: commit files and splits together
    rows = sum(chunk.rows for chunk in copied)
    nulled = sum(chunk.nulled for chunk in copied)
    read_to = position_of_high(edges, binlog, latest(chunk.high for chunk in copied))
    progress = table.progress.wave_committed(tuple(chunk.split for chunk in copied), rows, nulled, read_to)
    sound = all(chunk.sound for chunk in copied)
    with edges.profile.stage("waves: commit"):
        staged = edges.committing.commit_wave(table.staged, [chunk.files for chunk in copied], progress)
    table.advance(staged, sound=sound)
    for chunk in copied:
        edges.profile.add(chunk.profile)
    decoder, schemas = of_chunks(edges.source.greeting), {table.id: table.schema}
    edges.note_looks(decoder, schemas, [chunk.looked for chunk in copied])
    seconds, chunk_seconds = time.monotonic() - wave.began, tuple(chunk.cost.seconds for chunk in copied)
    is_last = not table.has_missing_chunks
    edges.observe(
        WaveCommitted(
            table.id,
            progress.wave,
            chunks=len(copied),
            rows=rows,
            seconds=seconds,
            complete=is_last,
            chunk_seconds=chunk_seconds,
        )
    )
    # Step 3: the gate, on the committed rows
    if not is_last:
        keys, rows_checked = wave.keys, rows
        if not keys.ordered:  # Spark cannot tell which rows are of the wave: the gate checks all rows
            keys, rows_checked = KeyRange(), progress.rows

        def staged_rows() -> "DataFrame":
            staged_table = edges.target.read(table.id, table.staged.version)
            return staged_table.where(keys.predicate(table.schema.key))

        checked = gate(edges, table, f"after wave {progress.wave}", staged_rows, rows_checked, sound=sound)
        if checked.report.failures:
            # rows that may move to the quarantine do so before the publish
            reason = refusal_of(edges, table, checked.report, progress.rows, is_part=True)
            if reason is not None:
                raise checked.error(reason)


def _backlog(spool: Spool, table: TableRun) -> int:
    """The number of change rows of the table that are spooled and not merged."""
    progress = table.progress
    if not progress.splits.all:  # a merge would have no rows to change
        return 0
    merged_to = progress.covered_from if progress.position is None else progress.position.place
    return spool.backlog(table.id, max(merged_to, spool.start))
