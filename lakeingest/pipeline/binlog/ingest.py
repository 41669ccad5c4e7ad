"""Binlog ingest: executors read segments of the binlog in parallel into the spool, once for all tables."""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lakeingest.core.binlog.position import (
    GtidSet,
    Position,
    bytes_between,
    file_start,
    in_same_file,
    is_before,
    is_in_one_of,
)
from lakeingest.core.binlog.segments import LEAST_BYTES, Segment, cut
from lakeingest.core.copies.prepared import PreparedAt
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.lake.formats import import_ahead
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.binlog.looks import note_looks
from lakeingest.pipeline.binlog.segment_task import Decoded, SpoolSegment
from lakeingest.pipeline.events import Spooled
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import know_foreign_keys
from lakeingest.pipeline.run.stopping import unwatch
from lakeingest.spark.scatter import scatter
from lakeingest.spool.manifest import Manifest

PIECES_PER_READER = 4  # change rows are not spread evenly, and each piece costs a connection


def next_segments(edges: Edges, binlog: BinlogRun, pieces: int) -> list[SpoolSegment]:
    """The tasks that bring the spool to the current written position, one for each of at most `pieces` segments.

    The binlog is cut at starts of files, at ends of transactions that a run noted, and at high watermarks of chunks. If
    the source wrote a part of a file while no run was at work, that part has no known boundaries: one reader reads it.
    """
    position, stop = binlog.spool.position, edges.source.written()
    # files are listed only after a rotation: a server may have thousands of them
    sizes = {stop.file: stop.pos} if in_same_file(position.at, stop) else edges.source.files()
    if is_before(stop, position.at) or not is_in_one_of(position.at, sizes):
        edges.source.assert_there(position)  # raises the error that says why the source does not list the position
    whole = Segment.after(position, stop)
    possible_ends = [*binlog.boundaries, *(file_start(file) for file in sizes)]
    segments = cut(whole, possible_ends, sizes, pieces, LEAST_BYTES)
    if not segments:  # skip the steps below: they look at all tables, and a first copy calls this for each table
        return []
    source, folder = edges.source.settings, binlog.spool.folder
    schemas, waiting, follows = binlog.schemas, binlog.waiting, binlog.followed
    pending = binlog.spool.pending
    prepared = None if pending is None else PreparedAt(position.at, pending.prepared)
    looks = edges.witness.looks(edges.source.greeting, schemas, edges.stopped, len(segments))
    return [
        SpoolSegment(
            source,
            segment,
            schemas,
            folder,
            bytes=segment_bytes(segment, sizes),
            follows=follows,
            waiting=waiting,
            prepared=prepared,
            look=look,
        )
        for segment, look in zip(segments, looks, strict=True)
    ]


def segment_bytes(segment: Segment, sizes: Mapping[str, int]) -> int:
    """The number of bytes in a segment, from the `sizes` of the binlog files; 0 if its first or last file is gone."""
    has_files = is_in_one_of(segment.start, sizes) and is_in_one_of(segment.stop, sizes)
    return bytes_between(segment.start, segment.stop, sizes) if has_files else 0


def append_segments(edges: Edges, binlog: BinlogRun, decoded: Sequence[Decoded], seconds: float) -> None:
    """Make decoded segments part of the spool, once the source has executed all their transactions.

    Executed transactions cannot be lost by a crash of the source. A table with a change that cannot be replayed stops
    at its last commit. A table whose DDL is followed waits at its DDL. `seconds`: how long the segments were read.
    """
    # Step 1: take out rows that were decoded by a wrong definition
    manifests, altered, stopped = _decoded_rightly(decoded, binlog.waiting)
    gtids = GtidSet()
    for manifest in manifests:
        gtids |= manifest.gtids
    # Step 2: prove the history of the segments, before anything refers to them
    position = binlog.spool.position
    edges.source.executed_with(gtids, position)  # waits until they are executed
    _prove_cuts(edges, position, manifests)
    _wait_out_file_seconds(edges.source, position, manifests)
    # Step 3: append the segments to the spool, then note in the tables what was found
    binlog.append(manifests)
    note_looks(edges, binlog.tables, decoded)
    for segment in decoded:
        edges.profile.add(segment.profile)
        binlog.met |= segment.met - binlog.tables.keys()
    for table in altered - stopped.keys():
        binlog.tables[table].reached_ddl()
    for table, error in stopped.items():
        unwatch(edges, binlog.tables[table], error)
    if binlog.logs_cascades and any(manifest.lacks_cascades for manifest in manifests):
        know_foreign_keys(edges, binlog)  # now foreign keys matter, because a part of the binlog lacks their changes
    files = (file for manifest in manifests for file in manifest.tables.values() if file is not None)
    rows = sum(row_count for _, row_count in files)
    transactions = binlog.spool.count_transactions(manifests)
    edges.observe(Spooled(str(binlog.spool.position.at), transactions, rows, seconds))


def _decoded_rightly(
    decoded: Sequence[Decoded], waiting: Collection[TableId]
) -> tuple[list[Manifest], set[TableId], dict[TableId, LakeIngestError]]:
    """The manifests without rows that were decoded by a wrong definition; the altered tables; the tables that stop.

    All segments are decoded at the same time. So the segments after a table's DDL were decoded by the old definition of
    the table. `waiting`: the tables that wait at DDL in earlier segments.
    """
    manifests, altered, stopped = list[Manifest](), set(waiting), dict[TableId, LakeIngestError]()
    for segment in decoded:
        for table in segment.stopped.keys() - stopped.keys():
            # an altered table stops only for DDL: any other error may come from the old definition
            errors = segment.refused if table in altered else segment.stopped
            if table in errors:
                stopped[table] = errors[table]
        for manifest in segment.manifests:
            manifests.append(_without_tables(manifest, altered))
            altered |= manifest.alterations.keys()
    return manifests, altered, stopped


def _without_tables(manifest: Manifest, tables: Collection[TableId]) -> Manifest:
    """The manifest without the rows of these tables, which were decoded by definitions that were no longer in force."""
    files = {table: file for table, file in manifest.tables.items() if table not in tables}
    nulled = {table: count for table, count in manifest.nulled.items() if table not in tables}
    return replace(manifest, tables=files, nulled=nulled)


def _prove_cuts(edges: Edges, position: Position, manifests: Sequence[Manifest]) -> None:
    """Raise BinlogGone if one of several segments is of another history.

    The reader of the first segment proves where that segment starts. Here the ends of all segments are proven. A single
    segment was read at once from its proven start, so its end needs no proof.
    """
    if len(manifests) > 1:
        files = edges.source.files()
        for manifest in manifests:
            position = position.moved(manifest.stop, manifest.gtids, manifest.history)
            edges.source.assert_same_history(position, files)


def _wait_out_file_seconds(source: BinlogSource, position: Position, manifests: Sequence[Manifest]) -> None:
    """If a segment ends in a new binlog file, wait until the second in which the source began that file is over.

    The stored position names that second. If the source is reset later, its new files begin in later seconds. So a
    stored position never matches a file from after the reset.
    """
    in_new_files = [manifest for manifest in manifests if not in_same_file(manifest.stop, position.at)]
    file_seconds = [manifest.history.began or 0 for manifest in in_new_files if manifest.history]
    if file_seconds:
        source.wait_until_over(max(file_seconds))


def spool_to_now(edges: Edges, binlog: BinlogRun) -> None:
    """Spool the binlog up to the source's written position."""
    began, asked_at = time.monotonic(), time.time()
    readers = edges.executors.readers
    tasks = next_segments(edges, binlog, PIECES_PER_READER * readers)
    workers = edges.executors.for_tasks(small=are_small(tasks))
    if workers is not None:  # while they decode, this process has nothing to do: it imports what the merges need
        threading.Thread(target=import_ahead, args=(edges.config,), daemon=True).start()
    decoded = scatter(workers, SpoolSegment.run, tasks, readers)
    append_segments(edges, binlog, decoded, time.monotonic() - began)
    binlog.saw_end(asked_at)


def are_small(tasks: Sequence[SpoolSegment]) -> bool:
    """True if this process decodes the segments sooner than Spark would start workers."""
    return sum(task.bytes for task in tasks) < LEAST_BYTES
