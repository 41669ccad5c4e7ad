"""From the binlog into the spool: it is read once for all tables, by executors side by side, each a segment."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from lakeingest.config import Source
from lakeingest.core.position import FilePosition, GtidSet
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import LEAST_BYTES, Segment, bytes_between, cut
from lakeingest.errors import LakeIngestError, Retryable, SourceAway
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import FILE_START, connect, file_sizes, free_server_id, written_position
from lakeingest.mysql.continuity import prove, same_history, still_there, wait_until_over
from lakeingest.pipeline.context import Context
from lakeingest.pipeline.events import Spooled
from lakeingest.pipeline.profile import Profile
from lakeingest.spark.scatter import scatter
from lakeingest.spool.errors import spool_errors
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_files import SegmentFiles

PAUSES_SECONDS = (0.1, 0.4, 1.5)
PIECES_EACH = 4  # of a reader: change rows are not spread evenly, and each piece costs a connection
EXECUTED_WITHIN_SECONDS = 60  # from written to executed: a commit, and a semi-synchronous replica's answer


@dataclass(frozen=True, slots=True)
class Decoded:
    """A segment in files of the spool, which does not know of it yet."""

    manifest: Manifest
    profile: Profile
    stopped: Mapping[TableId, LakeIngestError]  # tables that it does not watch, because of what it holds of them


@dataclass(frozen=True, slots=True)
class SpoolSegment:
    """The task of one executor: decode a segment, write a Parquet file per table."""

    source: Source
    segment: Segment
    schemas: Mapping[TableId, TableSchema]
    folder: Path
    bytes: int

    def run(self) -> Decoded:
        """Files are complete, under names of their own, when this returns; nothing refers to them until then.

        What is written is not always sent yet, and connections break: SourceAway only after a few attempts. A table
        of which something cannot be replayed is left out, and the segment is read again for the others.
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


def next_segments(context: Context, pieces: int | None = None) -> list[SpoolSegment]:
    """The tasks that bring the spool to the written position of this moment, cut for the executors.

    Cut at starts of files, at ends of transactions that were noted while a run was at work, at highs of chunks. Within
    a file that the source wrote while no run was at work nothing is known: it is one reader's.
    """
    spool, position, stop = context.spool, context.spool.position, written_position(context.connection)
    # files are listed only after a rotation: a server may have thousands of them
    sizes = {stop.file: stop.pos} if stop.file == position.at.file else file_sizes(context.connection)
    if stop.place(0) < position.at.place(0) or position.at.file not in sizes:
        still_there(context.config.source, context.connection, position)
    whole = Segment.after(position, stop)
    starts = (FilePosition(file, FILE_START) for file in sizes)
    ends = [*spool.boundaries, *context.boundaries, *starts]
    context.boundaries.clear()
    cuts = cut(whole, ends, sizes, pieces or context.at_once, LEAST_BYTES)
    source, schemas, folder = context.config.source, context.schemas, spool.folder
    return [SpoolSegment(source, one, schemas, folder, bytes_between(one.start, one.stop, sizes)) for one in cuts]


def append_segments(context: Context, decoded: list[Decoded], seconds: float) -> None:
    """Make a batch part of the spool once all its transactions are executed: a crash cannot lose one of them then.

    A table that a segment does not watch stops where it is.
    """
    gtids, manifests = GtidSet(), [one.manifest for one in decoded]
    for manifest in manifests:
        gtids |= manifest.gtids
    _wait_until_executed(context, gtids)
    _prove_cuts(context, manifests)
    _wait_for_later_seconds(context, manifests)
    context.lease.assert_held()
    context.spool.append(manifests)
    for one in decoded:
        context.profile += one.profile
        for table, error in one.stopped.items():
            context.unwatch(table, error)
    rows = sum(entry[1] for manifest in manifests for entry in manifest.tables.values() if entry)
    transactions = sum(
        pq.read_metadata(context.spool.folder / manifest.transactions).num_rows for manifest in manifests
    )
    context.observe(Spooled(str(context.spool.position.at), transactions, rows, seconds))


def _prove_cuts(context: Context, manifests: Sequence[Manifest]) -> None:
    """BinlogGone unless all segments are of one history. A reader proves where the first one starts, and no other."""
    if len(manifests) > 1:
        files, position = file_sizes(context.connection), context.spool.position
        for manifest in manifests:
            position = position.moved(manifest.stop, manifest.gtids, manifest.history)
            prove(context.config.source, position, files)


def _wait_for_later_seconds(context: Context, manifests: Sequence[Manifest]) -> None:
    """A position in a new file names the second in which the file began: it is noted once that second is over."""
    known = context.spool.position.at.file
    began = [one.history.began or 0 for one in manifests if one.history and one.stop.file != known]
    if began:
        wait_until_over(context.connection, max(began))


def spool_to_now(context: Context) -> None:
    """Read the binlog up to the written position."""
    began = time.monotonic()
    readers = context.readers
    tasks = next_segments(context, PIECES_EACH * readers)
    decoded = scatter(context.workers(small=are_small(tasks)), SpoolSegment.run, tasks, readers)
    append_segments(context, decoded, time.monotonic() - began)


def are_small(tasks: Sequence[SpoolSegment]) -> bool:
    """Whether they are decoded here sooner than workers would begin."""
    return sum(task.bytes for task in tasks) < LEAST_BYTES


def _wait_until_executed(context: Context, gtids: GtidSet) -> None:
    deadline = time.monotonic() + EXECUTED_WITHIN_SECONDS
    while True:
        state = server_state(context.connection)
        same_history(state, context.spool.position)
        if state.executed is None or gtids <= state.executed:
            return
        if time.monotonic() > deadline:
            raise Retryable(f"{gtids - state.executed} is in the binlog but not executed; run the same command again")
        time.sleep(0.05)
