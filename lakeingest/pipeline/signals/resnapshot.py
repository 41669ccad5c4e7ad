"""Re-snapshot: rows of a table that has a copy are read again, wave by wave, while the log goes on.

1. A wave is read in the background, each chunk under its own watermarks. A key range is compared with the copy, and
   only differing rows are written to patches. Listed keys and conditions are written without a comparison.
2. A commit on staging names the patches.
3. The next merge collapses them with the binlog up to a stop at or after every high watermark: for each of their keys
   it takes the row as of low, and applies every later change (`core.rereads`).
4. Then all splits stand at one stop, and the table is published.

Readers see no hole, no row twice, and no step back in time. (DBLog, section 4.3: dumps on demand.)
"""

import enum
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lakeingest.core.chunks import BYTES_MAX, SECONDS_MAX
from lakeingest.core.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.position import Place
from lakeingest.core.rereads import Patch
from lakeingest.core.schema import TableSchema
from lakeingest.core.signals import Request
from lakeingest.errors import ChunkTooLarge, ChunkTooSlow, StateUnreadable
from lakeingest.files.file import File
from lakeingest.lake.target import Bounds, RowReader
from lakeingest.mysql.chunk_reader import Cap
from lakeingest.mysql.key_values import key_table, values_of
from lakeingest.pipeline.binlog.coverage import cover_lows
from lakeingest.pipeline.binlog.ingest import spool_to_now
from lakeingest.pipeline.binlog.watermarks import settled_position
from lakeingest.pipeline.catch_up import merge_and_publish
from lakeingest.pipeline.copying.planner import Planner
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

FEW_ROWS = 20_000  # of a wave differ: then the next wave may be longer, because its merge is short


class Step(enum.Enum):
    """What a step of a re-snapshot has done."""

    READING = "reading"  # a wave is read in the background
    AGAIN = "again"  # a wave has to be read once more, and is
    MERGED = "merged"  # a wave is merged and published, and the next one is read
    DONE = "done"  # the last wave is published


@dataclass(frozen=True, slots=True)
class Reading:
    """A wave that is read in the background.

    `keys` is the range of its chunks. `since` is the place where the spool ended before its first low watermark was
    read. `version` is the commit that it is compared with. `is_last`: nothing of the request is left to read.
    """

    request: Request
    planner: Planner | None
    keys: KeyRange
    since: Place
    version: int
    is_last: bool
    job: BackgroundJob[list[Patched]]
    began: float

    def cancel(self) -> None:
        """Nobody wants the wave any more."""
        self.job.cancel()


def step(
    edges: Edges, binlog: BinlogRun, table: TableRun, request: Request, settled: Collection[int], *, wait: bool
) -> Step:
    """One step of the re-snapshot that `request` asks for, of a table that is level and published.

    Begins to read a wave in the background where none is read yet. Once it is read, or with `wait`, the next wave is
    begun, and this one is merged and published. `settled` are the signals whose documents say that they are done.
    """
    begin = partial(_begin, edges, binlog, table, request, beside=not wait)
    reading = table.reading
    if not isinstance(reading, Reading) or reading.request.signals != request.signals:
        table.cancel_reading()
        if _catch_up(edges, binlog, table):  # the copy has every change from before the request
            return Step.MERGED
        reading = begin(None, request.up_to)
        table.read_beside(reading)
    if not wait and not reading.job.is_done:
        return Step.READING
    table.end_reading()
    patched = _result(table, reading)
    if patched is None:
        table.read_beside(begin(reading.planner, reading.keys.lower))
        return Step.AGAIN
    if not reading.is_last:
        assert reading.planner is not None  # noqa: S101 - keys are read in one wave
        reading.planner.learn([part.cost for part in patched])
        few = sum(part.written for part in patched) <= FEW_ROWS
        table.read_beside(begin(reading.planner, reading.keys.upper, few=few))
    try:
        _commit(edges, binlog, table, reading, patched, settled)
        is_void = _catch_up(edges, binlog, table)
    except BaseException:
        table.cancel_reading()
        raise
    if is_void or not reading.is_last:
        return Step.MERGED
    for signal in {request.number, *request.signals}:
        patch_folder(edges, table).remove(signal)
    return Step.DONE


def _catch_up(edges: Edges, binlog: BinlogRun, table: TableRun) -> bool:
    """Bring the table up to now; whether all its rows are to be compared since: what is read for a request is void."""
    restarts = table.progress.restarts
    spool_to_now(edges, binlog)
    look_for_unseen_ddl(edges, binlog, [table])
    merge_and_publish(edges, binlog, table)
    if table.progress.restarts == restarts:
        return False
    table.cancel_reading()
    return True


def _result(table: TableRun, reading: Reading) -> list[Patched] | None:
    """The rows of the wave; None where it has to be read once more."""
    try:
        return reading.job.result()
    except (ChunkTooSlow, ChunkTooLarge) as error:
        if reading.planner is None or not reading.planner.can_shrink:
            raise ChunkTooSlow(f"{table.id}: {error}") from error
        reading.planner.shrink()
    except StateUnreadable:
        if reading.version == table.staged.version:
            raise
        # the commit that it was compared with has expired
    return None


def _begin(
    edges: Edges,
    binlog: BinlogRun,
    table: TableRun,
    request: Request,
    planner: Planner | None,
    lower: Key | None,
    *,
    beside: bool,
    few: bool = True,
) -> Reading:
    """Begin to read the next wave, from the key `lower` on: `beside` the log, or with all executors.

    `few`: the wave before had few rows that differ from the copy.
    """
    schema, scope, since = table.schema, request.scope, cover_lows(edges, binlog, table)
    executors = edges.executors
    at_once = executors.at_once_beside if beside else executors.at_once_in_turn
    if scope.keys is None:
        keys = scope.range or EVERY_KEY
        if planner is None:
            planner = Planner(edges.source, schema, table.options, at_once, keys)
        planned = [chunk.range for chunk in planner.next_wave(lower)]
        planned = planned if few else planned[:at_once]
        also = () if scope.where is None else (f"({scope.where})",)
        chunks = [_chunk(schema, part, also) for part in planned]
        wave = KeyRange(planned[0].lower, planned[-1].upper)
        is_last = planned[-1].upper == keys.upper
    else:
        groups = [scope.keys[first : first + KEYS_AT_ONCE] for first in range(0, len(scope.keys), KEYS_AT_ONCE)]
        chunks = [listed_chunk(schema, [values_of(schema, key) for key in group]) for group in groups]
        wave, is_last = EVERY_KEY, True
    cap = Cap(SECONDS_MAX, BYTES_MAX if planner is not None and planner.can_shrink else None)
    position, patches, at = binlog.spool.position, patch_folder(edges, table), settled_position(edges, binlog)
    source, signal = edges.source.settings, request.number
    compares = schema.ordered and scope.range is not None
    copies = _copies(edges, table, [chunk.within for chunk in chunks]) if compares else [None] * len(chunks)
    tasks = [
        ReadAgain(source, schema, chunk, signal, position.server_uuid, position.epoch, at, cap, patches, copy)
        for chunk, copy in zip(chunks, copies, strict=True)
    ]
    workers = executors.for_tasks(small=len(tasks) == 1 or (beside and at_once == 1))
    job = executors.beside(BackgroundJob(workers, prepare(workers, ReadAgain.run, tasks, at_once)), at_once)
    return Reading(request, planner, wave, since, table.staged.version, is_last, job, time.monotonic())


def _copies(edges: Edges, table: TableRun, ranges: Sequence[KeyRange]) -> list[tuple[RowReader, ...]]:
    """For each range, readers of the copy's rows with keys in it, and maybe of others."""
    names, bounds = compared_columns(table.schema), list(map(_bounds, ranges))
    return list(map(tuple, edges.target.readers(table.staged, edges.executors.open, names, bounds)))


def _chunk(schema: TableSchema, part: KeyRange, also: Sequence[str]) -> Chunk:
    """The rows of a planned chunk."""
    condition = " AND ".join([part.predicate(schema.key), *also])
    return Chunk((condition,), part if schema.ordered else EVERY_KEY)


def _commit(
    edges: Edges,
    binlog: BinlogRun,
    table: TableRun,
    reading: Reading,
    patched: Sequence[Patched],
    settled: Collection[int],
) -> None:
    """Let a commit on staging name the patches of a wave, and those of keys that the source has no longer."""
    if table.schema.keeps_deleted:  # a row that the log deletes is marked by this merge, with its last values
        spool_to_now(edges, binlog)
        merge(edges, binlog.spool, table)
    epoch, signal = binlog.spool.position.epoch, reading.request.number
    patches = patches_of(edges, table, signal, patched, epoch)
    if reading.request.scope.range is not None and not table.schema.ordered and reading.is_last:
        patches += _absent(edges, binlog, table, reading.request)
    reread = partial(
        table.progress.reread_rows,
        patches,
        reading.since,
        signals=reading.request.signals,
        up_to=reading.keys.upper,
        last=reading.is_last,
        settled=settled,
    )
    commit_reread(edges, binlog, table, patched, reread, reading.began, is_last=reading.is_last)


def _absent(edges: Edges, binlog: BinlogRun, table: TableRun, request: Request) -> list[Patch]:
    """Patches of the keys that the copy has in the range, and the source has no row of.

    Only the server knows the order of the keys: it is asked for every key of the range that no chunk has, after the
    last chunk.
    """
    schema, signal, scope = table.schema, request.number, request.scope.range or EVERY_KEY
    found = _keys_without_row(edges, table, patch_folder(edges, table).of_signal(signal)).to_pylist()
    listed = found if scope == EVERY_KEY else edges.source.keys_within(schema, found, scope)
    patched = read_keys(edges, binlog, table, signal, listed)
    return patches_of(edges, table, signal, patched, binlog.spool.position.epoch)


def _keys_without_row(edges: Edges, table: TableRun, files: Sequence[File]) -> pa.Table:
    """The keys that the copy has and the files have no row of."""
    key, types, executors = table.schema.key, key_table(table.schema, ()).schema, edges.executors
    [readers] = edges.target.readers(table.staged, executors.open, key, [None])
    tasks = [FindAbsent(reader, tuple(files), key, types) for reader in readers]
    found = scatter(executors.for_key_tasks(len(tasks)), FindAbsent.run, tasks, executors.at_once)
    return pa.concat_tables([types.empty_table(), *found])


def _bounds(keys: KeyRange) -> Bounds | None:
    """The least and the greatest first value of the keys in a range; None for every key."""
    if keys == EVERY_KEY:
        return None
    return keys.lower and keys.lower[0], keys.upper and keys.upper[0]
