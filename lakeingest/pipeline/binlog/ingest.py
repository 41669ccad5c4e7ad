"""Binlog ingest: the binlog is read once for all tables. Executors read segments of it in parallel into the spool."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pymysql

from lakeingest.config import Source
from lakeingest.core.alteration import Ddl
from lakeingest.core.position import (
    GtidSet,
    Position,
    bytes_between,
    file_start,
    in_same_file,
    is_before,
    is_in_one_of,
)
from lakeingest.core.prepared import PreparedAt
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import LEAST_BYTES, Segment, cut
from lakeingest.errors import LakeIngestError, SourceAway, UnsupportedEvent
from lakeingest.files.file import File
from lakeingest.mysql.binlog_reader import SegmentFacts, read_segment
from lakeingest.mysql.connection import connect, file_sizes, free_server_id, written_position
from lakeingest.mysql.continuity import executed_with, prove, same_history, still_there, wait_until_over
from lakeingest.pipeline.events import Spooled
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.foreign_keys import know_foreign_keys
from lakeingest.pipeline.run.profile import Profile
from lakeingest.pipeline.run.stopping import unwatch
from lakeingest.pipeline.run.table_run import Watch
from lakeingest.spark.scatter import scatter
from lakeingest.spool.errors import spool_errors
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_files import SegmentFiles

Schemas = Mapping[TableId, TableSchema]

PAUSES_SECONDS = (0.1, 0.4, 1.5)
PIECES_PER_READER = 4  # change rows are not spread evenly, and each piece costs a connection


@dataclass(frozen=True, slots=True)
class Decoded:
    """A segment in files of the spool folder, cut at the DDL of tables; it is not part of the spool yet."""

    manifests: tuple[Manifest, ...]
    profile: Profile
    stopped: Mapping[TableId, LakeIngestError]  # tables of which it holds a change that cannot be replayed
    refused: Mapping[TableId, LakeIngestError]  # of these, the tables of which it holds DDL
    met: frozenset[TableId] = frozenset()  # the tables of which it has rows

    @property
    def manifest(self) -> Manifest:
        """The manifest of a segment that was read without `follows`: it is not cut."""
        [manifest] = self.manifests
        return manifest


@dataclass(frozen=True, slots=True)
class SpoolSegment:
    """The task of one executor: decode a segment, write a Parquet file per table.

    At DDL of a table in `follows` the segment is cut: the DDL is a segment of its own, and the table is not watched
    from there on. `waiting` are tables with such DDL before this segment. `prepared` is what is prepared (XA) at its
    start or before it.
    """

    source: Source
    segment: Segment
    schemas: Mapping[TableId, TableSchema]
    folder: File
    bytes: int
    follows: frozenset[TableId] = frozenset()
    waiting: Mapping[TableId, TableSchema] = field(default_factory=dict)
    prepared: PreparedAt | None = None

    def run(self) -> Decoded:
        """The files are complete when this returns. Each attempt has new file names, and nothing refers to them yet.

        The source does not always send at once what is written, and connections break: SourceAway only after a few
        attempts. When a change of a table cannot be replayed, the segment is read again without that table.
        """
        reading = _Reading(self)
        with spool_errors(self.folder):
            while not reading.is_over:
                reading.go_on()
        met = frozenset(reading.met)
        return Decoded(tuple(reading.manifests), reading.profile, reading.stopped, reading.refused, met)


class _Reading:
    """How far a segment is read: what of it is left, and which tables are still watched there."""

    def __init__(self, task: SpoolSegment) -> None:
        self._task, self._left = task, task.segment
        self._watched, self._waiting = dict(task.schemas), dict(task.waiting)
        self._ddl: Ddl | None = None  # the next DDL of tables that are followed, once it was met
        self.manifests, self.profile = list[Manifest](), Profile()
        self.stopped, self.refused = dict[TableId, LakeIngestError](), dict[TableId, LakeIngestError]()
        self.met = set[TableId]()
        self.is_over = False

    def go_on(self) -> None:
        """Read what is left, or up to the DDL that was met, or that DDL; whatever concerns some tables is met here."""
        try:
            self._go_on()
        except LakeIngestError as error:
            tables = error.tables & (self._watched.keys() | self._waiting.keys())
            if not tables:
                raise
            ddl = error.ddl if isinstance(error, UnsupportedEvent) else None
            others = tables if ddl is None else tables - self._task.follows
            if ddl is None or others:
                self._ddl = None  # it may be of these tables, too
                self._leave(others, error)
            else:
                self._ddl = ddl

    def _go_on(self) -> None:
        """The DDL becomes a segment of its own. The table waits in the segments after it."""
        ddl = self._ddl
        if ddl is None:
            self._read(self._left, self._watched, self._waiting)
            self.is_over = True
        elif ddl.start != self._left.start:
            self._read(replace(self._left, stop=ddl.start), self._watched, self._waiting)
            self._left = replace(self._left, start=ddl.start, history=None)
        else:
            watched = {table: schema for table, schema in self._watched.items() if table not in ddl.alterations}
            self._read(replace(self._left, stop=ddl.stop), watched, {}, ddl)
            self._waiting |= {table: self._watched[table] for table in self._watched.keys() & ddl.alterations.keys()}
            self._watched, self._ddl = watched, None
            self._left = replace(self._left, start=ddl.stop, history=None)
            self.is_over = self._left.empty

    def _leave(self, tables: Collection[TableId], error: LakeIngestError) -> None:
        """The tables are not read any more; of those whose rows cannot be decoded DDL is still looked for."""
        is_ddl = isinstance(error, UnsupportedEvent) and error.alterations is not None
        for table in tables:
            self.stopped.setdefault(table, error)
            schema = self._watched.pop(table, None) or self._waiting[table]
            if is_ddl:
                self.refused.setdefault(table, error)
                self._waiting.pop(table, None)
            elif table in self._task.follows:
                self._waiting[table] = schema

    def _read(self, segment: Segment, watched: Schemas, waiting: Schemas, ddl: Ddl | None = None) -> None:
        for pause in (*PAUSES_SECONDS, None):
            try:
                manifest = self._attempt(segment, watched, waiting)
                break
            except SourceAway:
                if pause is None:
                    raise
                time.sleep(pause)
        self.manifests.append(manifest if ddl is None else replace(manifest, alterations=ddl.alterations))

    def _attempt(self, segment: Segment, schemas: Schemas, waiting: Schemas) -> Manifest:
        profile, source, prepared = self.profile, self._task.source, self._task.prepared
        with SegmentFiles(self._task.folder, schemas) as files, connect(source) as connection:
            server_id = free_server_id(connection, source)
            facts = SegmentFacts()
            parts = read_segment(connection, segment, schemas, server_id, facts, waiting, prepared)
            while True:
                with profile.stage("binlog: decode"):
                    part = next(parts, None)
                if part is None:
                    break
                with profile.stage("binlog: write"):
                    files.write(part)
            self.met |= facts.met
            with profile.stage("binlog: write"):
                manifest = files.complete(segment, facts.nulled, facts.history)
                return replace(manifest, pending=facts.pending, lacks_cascades=facts.lacks_cascades)


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
    source, folder = edges.config.source, binlog.spool.folder
    schemas, waiting, follows = binlog.schemas, binlog.waiting, binlog.followed
    pending = binlog.spool.pending
    prepared = None if pending is None else PreparedAt(position.at, pending.prepared)
    return [SpoolSegment(source, one, schemas, folder, sized(one, sizes), follows, waiting, prepared) for one in cuts]


def sized(segment: Segment, sizes: Mapping[str, int]) -> int:
    """The number of bytes in a segment, from the sizes of the binlog files; 0 if the server has removed one of them."""
    known = is_in_one_of(segment.start, sizes) and is_in_one_of(segment.stop, sizes)
    return bytes_between(segment.start, segment.stop, sizes) if known else 0


def append_segments(edges: Edges, binlog: BinlogRun, decoded: Sequence[Decoded], seconds: float) -> None:
    """Make a batch part of the spool once all its transactions are executed: then a crash cannot lose any of them.

    A table that a segment does not watch stops at its last commit; one that is altered waits before that. The segments
    after the DDL, which were read at the same time, may have rows of it: they were read with its old definition.
    """
    gtids, manifests = GtidSet(), list[Manifest]()
    altered, stopped = set(binlog.waiting), dict[TableId, LakeIngestError]()
    for segment in decoded:
        for table in segment.stopped.keys() - stopped.keys():
            errors = segment.refused if table in altered else segment.stopped
            stopped |= {table: errors[table]} if table in errors else {}
        for manifest in segment.manifests:
            manifests.append(_without(manifest, altered))
            altered |= manifest.alterations.keys()
    for manifest in manifests:
        gtids |= manifest.gtids
    position = binlog.spool.position
    executed_with(edges.connection, gtids, lambda state: same_history(state, position))
    _prove_cuts(edges, position, manifests)
    _wait_for_later_seconds(edges.connection, position, manifests)
    edges.lease.assert_held()
    binlog.append(manifests)
    for segment in decoded:
        edges.profile.add(segment.profile)
        binlog.met |= segment.met - binlog.tables.keys()
    for table in altered - stopped.keys():
        binlog.tables[table].watch = Watch.WAITING
    for table, error in stopped.items():
        unwatch(edges, binlog.tables[table], error)
    if binlog.logs_cascades and any(manifest.lacks_cascades for manifest in manifests):
        know_foreign_keys(edges, binlog)
    rows = sum(entry[1] for manifest in manifests for entry in manifest.tables.values() if entry)
    transactions = binlog.spool.count_transactions(manifests)
    edges.observe(Spooled(str(binlog.spool.position.at), transactions, rows, seconds))


def _without(manifest: Manifest, tables: Collection[TableId]) -> Manifest:
    """The manifest without these tables, which other definitions are in force of."""
    watched = {table: file for table, file in manifest.tables.items() if table not in tables}
    nulled = {table: count for table, count in manifest.nulled.items() if table not in tables}
    return replace(manifest, tables=watched, nulled=nulled)


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
