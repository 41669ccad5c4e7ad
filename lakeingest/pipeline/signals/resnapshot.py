"""Re-snapshot: rows of a table that has a copy are read again, wave by wave, while changes are spooled.

1. A wave is read in the background, each chunk under its own watermarks. The rows of a key range are compared with the
   copy, and only differing rows are written to patches. Rows of listed keys and of conditions are all written.
2. A commit on staging names the patches.
3. The next merge collapses the patches with the spool up to a stop at or after every high watermark: for each key of a
   patch it takes the row as of the low watermark, and applies every later change (`core.waves.rereads`).
4. Then all splits are at one stop, and the table is published.

Readers never miss a row, never see a row twice, and never see an older state. (DBLog, section 4.3: dumps on demand.)
"""

import enum
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.signals import Request
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import BYTES_MAX, SECONDS_MAX
from lakeingest.core.waves.rereads import Patch
from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.target import Bounds, RowReader
from lakeingest.mysql.chunk_reader import Cap
from lakeingest.mysql.key_values import key_table, values_of
from lakeingest.pipeline.binlog.coverage import cover_lows
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.binlog.watermarks import settled_position
from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.copying.planner import Planner
from lakeingest.pipeline.copying.wave_loop import Wave, WaveLoop
from lakeingest.pipeline.merging.merge import merge
from lakeingest.pipeline.rereads.committing import commit_reread
from lakeingest.pipeline.rereads.patches import (
    KEYS_AT_ONCE,
    compared_columns,
    listed_chunk,
    patch_folder,
    patches_of,
    read_keys,
)
from lakeingest.pipeline.rereads.tasks import Chunk, FindAbsent, Patched, ReadAgain
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.pipeline.schema.unseen_ddl import look_for_unseen_ddl
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.scatter import prepare, scatter

FEW_ROWS = 20_000  # if a wave has written no more rows, the next wave may be longer, because its merge is short


class Step(enum.Enum):
    """The result of a step of a re-snapshot."""

    READING = "reading"  # a wave is being read in the background
    AGAIN = "again"  # the same wave is read once more
    MERGED = "merged"  # a wave is merged and published, and the next wave is being read
    DONE = "done"  # the last wave is published


@dataclass(frozen=True, slots=True)
class RereadWave(Wave[Patched]):
    """A wave of a re-snapshot.

    `since`: the place where the spool ended before the wave's first low watermark was read. `version`: the commit with
    which the wave's rows are compared.
    """

    since: Place
    version: int


class Reading(WaveLoop[RereadWave, Patched]):
    """Reads the rows of a request, wave by wave. `beside`: the run goes on while a wave is read; else it waits."""

    def __init__(self, edges: Edges, binlog: BinlogRun, table: TableRun, request: Request, *, beside: bool) -> None:
        super().__init__(table.id, None)  # `_plan_wave` makes the planner, if chunks are to be planned
        self._edges, self._binlog, self._table = edges, binlog, table
        self.request, self.beside = request, beside
        self._is_merge_short = True  # the last wave has written few rows to merge
        self.wave = self._begin(request.up_to)

    @property
    def since(self) -> Place:
        """The `since` of the wave that is being read."""
        assert self.wave is not None  # noqa: S101 - only a table with a running read asks
        return self.wave.since

    def _begin(self, lower: Key | None) -> RereadWave:
        """Let executors read the next wave in the background, from the key `lower` on.

        None: from the start of the requested range.
        """
        edges, table, scope = self._edges, self._table, self.request.scope
        schema, executors = table.schema, edges.executors
        # first, before a chunk has a low watermark: after `since`, the spool has every change that a read view may lack
        since = cover_lows(edges, self._binlog, table)
        at_once = executors.at_once_beside if self.beside else executors.at_once_in_turn
        if scope.keys is None:
            chunks, keys, is_last = self._plan_wave(lower, at_once)
        else:  # all listed keys are one wave
            chunks = _listed_chunks(schema, scope.keys)
            keys, is_last = EVERY_KEY, True
        tasks = self._tasks(chunks, at_once)
        is_one_at_a_time = len(tasks) == 1 or (self.beside and at_once == 1)  # then this process reads the chunks
        workers = executors.for_tasks(small=is_one_at_a_time)
        read_all = prepare(workers, ReadAgain.run, tasks, at_once)
        job = executors.beside(BackgroundJob(workers, read_all), at_once)
        began, version = time.monotonic(), table.staged.version
        return RereadWave(keys, is_last, job, began=began, since=since, version=version)

    def _plan_wave(self, lower: Key | None, at_once: int) -> tuple[list[Chunk], KeyRange, bool]:
        """The chunks of the next wave, the range of their keys, and whether they are the last chunks of the request.

        If the wave before had many rows to merge, this wave has only as many chunks as executors read at the same time.
        """
        edges, table, scope = self._edges, self._table, self.request.scope
        was_merge_short = self._is_merge_short  # the merge of the wave before
        self._is_merge_short = True  # `_learn` may set it to False, once it has counted the rows of the wave
        requested = scope.range or EVERY_KEY
        if self._planner is None:
            self._planner = Planner(
                edges.source, table.schema, table.options, at_once, requested, short=edges.throttle.is_set
            )
        ranges = [chunk.range for chunk in self._planner.next_wave(lower)]
        if not was_merge_short:
            ranges = ranges[:at_once]
        conditions = () if scope.where is None else (f"({scope.where})",)
        chunks = [_chunk_of_range(table.schema, keys, conditions) for keys in ranges]
        is_last = ranges[-1].upper == requested.upper
        return chunks, KeyRange(ranges[0].lower, ranges[-1].upper), is_last

    def _tasks(self, chunks: Sequence[Chunk], at_once: int) -> list[ReadAgain]:
        """The tasks that read these chunks, `at_once` of them at the same time."""
        edges, table, planner, scope = self._edges, self._table, self._planner, self.request.scope
        # no limit of bytes if chunks cannot be made smaller
        bytes_max = BYTES_MAX if planner is not None and planner.can_shrink else None
        cap = Cap(SECONDS_MAX, bytes_max, edges.throttle.bytes_per_second(at_once))
        at, settled = self._binlog.spool.position, settled_position(edges, self._binlog)
        source, schema, signal = edges.source.settings, table.schema, self.request.number
        patches = patch_folder(edges, table)
        # rows are compared with the copy if they are those of a range, and if the order of keys is known
        compares = schema.ordered and scope.range is not None
        readers = _copy_readers(edges, table, [chunk.within for chunk in chunks]) if compares else [None] * len(chunks)
        return [
            ReadAgain(
                source,
                schema,
                chunk,
                signal,
                server_uuid=at.server_uuid,
                epoch=at.epoch,
                settled=settled,
                cap=cap,
                patches=patches,
                copy=readers_of_chunk,
                checks=table.progress.gap,
            )
            for chunk, readers_of_chunk in zip(chunks, readers, strict=True)
        ]

    def _learn(self, wave: RereadWave, parts: Sequence[Patched]) -> None:
        """Let the costs of the chunks size the next wave, and note for `throttle` how many bytes were read."""
        self._edges.throttle.took(sum(part.cost.bytes for part in parts), wave.began)
        if self._planner is not None and not wave.is_last:
            self._planner.learn([part.cost for part in parts])
            self._is_merge_short = sum(part.written for part in parts) <= FEW_ROWS

    def result_of(self, wave: RereadWave) -> list[Patched] | None:
        """The parts of a wave; None if the wave must be read once more.

        It must be read once more if a chunk was given up, or if the commit with which it is compared has expired.
        """
        try:
            return super().result_of(wave)
        except StateUnreadable:
            if wave.version == self._table.staged.version:  # the newest commit does not expire: it is damaged
                raise
            return None


def step(
    edges: Edges, binlog: BinlogRun, table: TableRun, request: Request, done: Collection[int], *, wait: bool
) -> Step:
    """Take one step of the re-snapshot that `request` asks for. The table's copy must be complete.

    The first step begins to read a wave in the background. Once executors have read the wave, a step begins the next
    wave, then merges and publishes the wave that was read. With `wait`, the step waits until the wave is read. `done`:
    the signals whose documents say that they are done.
    """
    # Step 1: begin to read, once the copy has every change from before the request
    reading = table.reading
    if not isinstance(reading, Reading) or reading.request.signals != request.signals:  # no read for these signals
        table.cancel_reading()
        if _catch_up(edges, binlog, table):  # the copy got a gap: the read of the next step must compare all rows
            return Step.MERGED
        reading = Reading(edges, binlog, table, request, beside=not wait)
        table.read_beside(reading)
    if not wait and not reading.is_read:
        return Step.READING
    # Step 2: take the wave, and begin the next wave, which is read while this wave is merged
    table.end_reading()
    request_of_wave = reading.request  # with which the read wave was begun
    reading.request, reading.beside = request, not wait  # for the next wave, which `take` begins
    taken = reading.take(may_read=edges.throttle.may_read)  # if the next wave must wait, a later step begins it
    if reading.wave is not None:
        table.read_beside(reading)
    if taken is None:
        return Step.AGAIN
    # Step 3: commit the patches of the wave, merge and publish
    wave, patched = taken
    try:
        _commit(edges, binlog, table, request_of_wave, wave, patched, done)
        is_void = _catch_up(edges, binlog, table)  # True: a new read must compare all rows
    except BaseException:
        table.cancel_reading()
        raise
    if is_void or not wave.is_last:
        return Step.MERGED
    for signal in {request.number, *request.signals}:  # 0 is the number of patches without a signal
        patch_folder(edges, table).remove(signal)
    return Step.DONE


def _catch_up(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Bring the table up to the written position. True if rows that were read for a request can no longer be used.

    This is so if the copy got a gap meanwhile: foreign keys changed rows, and nobody knows which rows. Then all rows
    of the copy must be compared with the source, and the background read is given up.
    """
    restarts = table.progress.restarts
    spool_to_now(edges, binlog)
    look_for_unseen_ddl(edges, binlog, [table])
    merge_and_publish(edges, binlog, table)
    has_new_gap = table.progress.restarts != restarts  # going on over a gap counts as a restart
    if has_new_gap:
        table.cancel_reading()
    return has_new_gap


def _copy_readers(edges: Edges, table: TableRun, ranges: Sequence[KeyRange]) -> list[tuple[RowReader, ...]]:
    """For each range, readers that return all rows of the copy with keys in the range, and maybe other rows."""
    names, bounds = compared_columns(table.schema), list(map(_bounds, ranges))
    return list(map(tuple, edges.target.readers(table.staged, names, bounds)))


def _chunk_of_range(schema: TableSchema, keys: KeyRange, conditions: Sequence[str]) -> Chunk:
    """The chunk of the rows that are in a range of keys and meet all these conditions."""
    condition = " AND ".join([keys.predicate(schema.source_key), *conditions])
    return Chunk((condition,), keys if schema.ordered else EVERY_KEY)


def _listed_chunks(schema: TableSchema, keys: Sequence[Key]) -> list[Chunk]:
    """The chunks that read these keys, at most KEYS_AT_ONCE keys each."""
    values = [values_of(schema, key) for key in keys]
    return [listed_chunk(schema, values[first : first + KEYS_AT_ONCE]) for first in range(0, len(keys), KEYS_AT_ONCE)]


def _commit(
    edges: Edges,
    binlog: BinlogRun,
    table: TableRun,
    request: Request,
    wave: RereadWave,
    patched: Sequence[Patched],
    done: Collection[int],
) -> None:
    """Commit, on staging, the patches of a wave, and patches of keys that have no row in the source."""
    # a row that is deleted in the source keeps the copy's values: a merge brings these up to date before that
    if table.schema.keeps_deleted:
        spool_to_now(edges, binlog)
        merge(edges, binlog.spool, table)
    epoch, signal = binlog.spool.position.epoch, request.number
    patches = patches_of(edges, table, signal, patched, epoch)
    # only the server knows the order of these keys, so no wave before the last can tell which keys it covers
    is_unordered_range = request.scope.range is not None and not table.schema.ordered
    if is_unordered_range and wave.is_last:
        patches += _patches_of_absent(edges, binlog, table, request)
    is_complete = wave.is_last and request.scope.whole  # then a copy that began empty has all rows, too
    progress = replace(table.progress, began_empty=None) if is_complete else table.progress
    reread = partial(
        progress.reread_rows,
        patches,
        wave.since,
        signals=request.signals,
        up_to=wave.keys.upper,
        last=wave.is_last,
        done=done,
    )
    commit_reread(edges, binlog, table, patched, reread, wave.began, is_last=wave.is_last)


def _patches_of_absent(edges: Edges, binlog: BinlogRun, table: TableRun, request: Request) -> list[Patch]:
    """After the last chunk, read the keys again that the copy has in the requested range, and that no chunk returned.

    Returns the patches of these keys. They are needed if only the server knows the order of the keys, so that a wave
    cannot tell which keys it covers. The source tells which of the keys are in the range.
    """
    schema, signal, requested = table.schema, request.number, request.scope.range or EVERY_KEY
    unread = _keys_without_row(edges, table, patch_folder(edges, table).of_signal(signal)).to_pylist()
    if requested != EVERY_KEY:
        unread = edges.source.keys_within(schema, unread, requested)
    patched = read_keys(edges, binlog, table, signal, unread)
    return patches_of(edges, table, signal, patched, binlog.spool.position.epoch)


def _keys_without_row(edges: Edges, table: TableRun, files: Sequence[File]) -> pa.Table:
    """The keys of the copy that have no row in these files."""
    key, types, executors = table.schema.key, key_table(table.schema, ()).schema, edges.executors
    [readers] = edges.target.readers(table.staged, key, [None])  # None: of all keys
    tasks = [FindAbsent(reader, tuple(files), key, types) for reader in readers]
    parts = scatter(executors.for_key_tasks(len(tasks)), FindAbsent.run, tasks, executors.at_once)
    return pa.concat_tables([types.empty_table(), *parts])


def _bounds(keys: KeyRange) -> Bounds | None:
    """The least and the greatest value of the first key column in a range; None for the range of all keys.

    A value is None if the range has no bound on that side.
    """
    if keys == EVERY_KEY:
        return None
    return keys.lower[0] if keys.lower else None, keys.upper[0] if keys.upper else None
