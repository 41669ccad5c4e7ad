"""Binlog ingest: the binlog is read once for all tables. Executors read segments of it in parallel into the spool."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pymysql

from lakeingest.config import Source
from lakeingest.core.position import (
    GtidSet,
    Position,
    bytes_between,
    file_start,
    in_same_file,
    is_before,
    is_in_one_of,
)
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import LEAST_BYTES, Segment, cut
from lakeingest.errors import LakeIngestError, Retryable, SourceAway
from lakeingest.files.file import File
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import connect, file_sizes, free_server_id, written_position
from lakeingest.mysql.continuity import prove, same_history, still_there, wait_until_over
from lakeingest.pipeline.binlog_run import BinlogRun
from lakeingest.pipeline.edges import Edges
from lakeingest.pipeline.events import Spooled
from lakeingest.pipeline.profile import Profile
from lakeingest.pipeline.stopping import unwatch
from lakeingest.spark.scatter import scatter
from lakeingest.spool.errors import spool_errors
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_files import SegmentFiles

PAUSES_SECONDS = (0.1, 0.4, 1.5)
PIECES_PER_READER = 4  # change rows are not spread evenly, and each piece costs a connection
EXECUTED_WITHIN_SECONDS = 60  # from written to executed: a commit, and the answer of a semi-synchronous replica


@dataclass(frozen=True, slots=True)
class Decoded:
    """A segment in files of the spool folder; it is not part of the spool yet."""

    manifest: Manifest
    profile: Profile
    stopped: Mapping[TableId, LakeIngestError]  # tables of which it holds a change that cannot be replayed


@dataclass(frozen=True, slots=True)
class SpoolSegment:
    """The task of one executor: decode a segment, write a Parquet file per table."""

    source: Source
    segment: Segment
    schemas: Mapping[TableId, TableSchema]
    folder: File
    bytes: int

    def run(self) -> Decoded:
        """The files are complete when this returns. Each attempt has new file names, and nothing refers to them yet.

        The source does not always send at once what is written, and connections break: SourceAway only after a few
        attempts. When a change of a table cannot be replayed, the segment is read again without that table.
        """
        watched, stopped = dict(self.schemas), dict[TableId, LakeIngestError]()
        with spool_errors(self.folder):
            while True:
                try:
                    return Decoded(*self._persistently(watched), stopped)
                except LakeIngestError as error:
                    if not error.tables & watched.keys():
                        raise
                    for table in error.tables & watched.keys():
                        stopped[table] = error
                        del watched[table]

    def _persistently(self, schemas: Mapping[TableId, TableSchema]) -> tuple[Manifest, Profile]:
        for pause in PAUSES_SECONDS:
            try:
                return self._attempt(schemas)
            except SourceAway:
                time.sleep(pause)
        return self._attempt(schemas)

    def _attempt(self, schemas: Mapping[TableId, TableSchema]) -> tuple[Manifest, Profile]:
        profile = Profile()
        with SegmentFiles(self.folder, schemas) as files, connect(self.source) as connection:
            server_id = free_server_id(connection, self.source)
            facts = SegmentFacts()
            parts = read_segment(connection, self.segment, schemas, server_id, facts)
            while True:
                with profile.stage("binlog: decode"):
                    part = next(parts, None)
                if part is None:
                    break
                with profile.stage("binlog: write"):
                    files.write(part)
            with profile.stage("binlog: write"):
                manifest = files.complete(self.segment, facts.nulled, facts.history)
        return manifest, profile


def next_segments(edges: Edges, binlog: BinlogRun, pieces: int) -> list[SpoolSegment]:
    """The tasks that bring the spool to the current written position, cut into at most `pieces` segments.

    Cuts are at starts of files, at ends of transactions that a run noted, and at high watermarks of chunks. A part of a
    file that the source wrote while no run was at work has no known boundaries: a single reader reads it.
    """
    position, stop = binlog.spool.position, written_position(edges.connection)
    # files are listed only after a rotation: a server may have thousands of them
    sizes = {stop.file: stop.pos} if in_same_file(position.at, stop) else file_sizes(edges.connection)
    if is_before(stop, position.at) or not is_in_one_of(position.at, sizes):
        still_there(edges.config.source, edges.connection, position)
    whole = Segment.after(position, stop)
    ends = [*binlog.boundaries, *(file_start(file) for file in sizes)]
    cuts = cut(whole, ends, sizes, pieces, LEAST_BYTES)
    source, schemas, folder = edges.config.source, binlog.schemas, binlog.spool.folder
    return [
        SpoolSegment(source, segment, schemas, folder, bytes_between(segment.start, segment.stop, sizes))
        for segment in cuts
    ]


def append_segments(edges: Edges, binlog: BinlogRun, decoded: Sequence[Decoded], seconds: float) -> None:
    """Make a batch part of the spool once all its transactions are executed: then a crash cannot lose any of them.

    A table that a segment does not watch stops at its last commit.
    """
    gtids, manifests = GtidSet(), [segment.manifest for segment in decoded]
    for manifest in manifests:
        gtids |= manifest.gtids
    position = binlog.spool.position
    _wait_until_executed(edges.connection, position, gtids)
    _prove_cuts(edges, position, manifests)
    _wait_for_later_seconds(edges.connection, position, manifests)
    edges.lease.assert_held()
    binlog.append(manifests)
    for segment in decoded:
        edges.profile.add(segment.profile)
        for table, error in segment.stopped.items():
            unwatch(edges, binlog.tables[table], error)
    rows = sum(entry[1] for manifest in manifests for entry in manifest.tables.values() if entry)
    transactions = binlog.spool.count_transactions(manifests)
    edges.observe(Spooled(str(binlog.spool.position.at), transactions, rows, seconds))


def _prove_cuts(edges: Edges, position: Position, manifests: Sequence[Manifest]) -> None:
    """BinlogGone unless all segments are of one history. A reader proves only where the first segment starts."""
    if len(manifests) > 1:
        files = file_sizes(edges.connection)
        for manifest in manifests:
            position = position.moved(manifest.stop, manifest.gtids, manifest.history)
            prove(edges.config.source, position, files)


def _wait_for_later_seconds(connection: pymysql.Connection, position: Position, manifests: Sequence[Manifest]) -> None:
    """A position in a new file names the second in which the file began. It is stored once that second is over."""
    new_files = [manifest for manifest in manifests if not in_same_file(manifest.stop, position.at)]
    began = [manifest.history.began or 0 for manifest in new_files if manifest.history]
    if began:
        wait_until_over(connection, max(began))


def spool_to_now(edges: Edges, binlog: BinlogRun) -> None:
    """Read the binlog up to the written position."""
    began = time.monotonic()
    readers = edges.executors.readers
    tasks = next_segments(edges, binlog, PIECES_PER_READER * readers)
    workers = edges.executors.for_tasks(small=are_small(tasks))
    decoded = scatter(workers, SpoolSegment.run, tasks, readers)
    append_segments(edges, binlog, decoded, time.monotonic() - began)


def are_small(tasks: Sequence[SpoolSegment]) -> bool:
    """Whether this process decodes them sooner than workers would begin."""
    return sum(task.bytes for task in tasks) < LEAST_BYTES


def _wait_until_executed(connection: pymysql.Connection, position: Position, gtids: GtidSet) -> None:
    deadline = time.monotonic() + EXECUTED_WITHIN_SECONDS
    while True:
        state = server_state(connection)
        same_history(state, position)
        if state.executed is None or gtids <= state.executed:
            return
        if time.monotonic() > deadline:
            raise Retryable(f"{gtids - state.executed} is in the binlog but not executed; run the same command again")
        time.sleep(0.05)
