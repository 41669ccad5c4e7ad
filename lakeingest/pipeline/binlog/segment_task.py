"""The task of an executor that reads a segment of the binlog into files of the spool's folder."""

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from lakeingest.config import Source
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.copies.prepared import PreparedAt
from lakeingest.core.ddl.alteration import Ddl
from lakeingest.core.proofs.witness import NO_LOOK, Look, Looked
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, SourceAway, UnsupportedEvent
from lakeingest.files.file import File
from lakeingest.mysql.binlog_reader import SegmentFacts
from lakeingest.mysql.binlog_source import read_changes
from lakeingest.pipeline.binlog.second_look import look_again
from lakeingest.pipeline.run.profile import Profile
from lakeingest.spool.errors import spool_errors
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_files import SegmentFiles

Schemas = Mapping[TableId, TableSchema]

PAUSES_SECONDS = (0.1, 0.4, 1.5)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A segment that was decoded into files of the spool folder; it is not part of the spool yet.

    It has several manifests if it was cut at DDL of followed tables.
    """

    manifests: tuple[Manifest, ...]
    profile: Profile
    stopped: Mapping[TableId, LakeIngestError]  # tables with a change in the segment that cannot be replayed
    refused: Mapping[TableId, LakeIngestError]  # the tables of `stopped` whose change is DDL
    met: frozenset[TableId] = frozenset()  # tables with rows in the segment
    looked: tuple[Looked, ...] = ()  # what the second decoder has compared of each part

    @property
    def manifest(self) -> Manifest:
        """The only manifest of a segment that was read without followed tables, and so was not cut."""
        [manifest] = self.manifests
        return manifest


@dataclass(frozen=True, slots=True)
class SpoolSegment:
    """The task of one executor: decode a segment, and write one Parquet file for each table.

    `follows`: tables whose DDL is followed. At such DDL the segment is cut: the DDL becomes a segment of its own, and
    the table is not watched after the DDL. `waiting`: tables that have had such DDL before this segment. `prepared`:
    the XA transactions that are prepared at the start of the segment, or at an earlier position. `look`: what a second
    decoder reads of the segment.
    """

    source: Source
    segment: Segment
    schemas: Mapping[TableId, TableSchema]
    folder: File
    bytes: int
    follows: frozenset[TableId] = frozenset()
    waiting: Mapping[TableId, TableSchema] = field(default_factory=dict)
    prepared: PreparedAt | None = None
    look: Look = NO_LOOK

    def run(self) -> Decoded:
        """Decode the segment. When this returns, the files are complete, and nothing refers to them yet.

        The source does not always send its newest events at once, and connections break. So each part is read in up to
        four attempts, each with new file names, before SourceAway is raised. If a change of a table cannot be replayed,
        the part is read again without that table.
        """
        reading = _Reading(self)
        with spool_errors(self.folder):
            while not reading.is_over:
                reading.take_step()
        met = frozenset(reading.met)
        manifests, looked = tuple(reading.manifests), tuple(reading.looked)
        return Decoded(manifests, reading.profile, reading.stopped, reading.refused, met, looked)


class _Reading:
    """How far a segment has been read: the rest of the segment, and the tables that are still watched in the rest."""

    def __init__(self, task: SpoolSegment) -> None:
        self._task, self._rest = task, task.segment
        self._watched, self._waiting = dict(task.schemas), dict(task.waiting)
        self._ddl: Ddl | None = None  # the next DDL of followed tables, once an attempt has met it
        self.manifests, self.profile = list[Manifest](), Profile()
        self.stopped, self.refused = dict[TableId, LakeIngestError](), dict[TableId, LakeIngestError]()
        self.met, self.looked = set[TableId](), list[Looked]()
        self.is_over = False

    def take_step(self) -> None:
        """Read one more part of the segment. If an error concerns some tables, change what the next step reads.

        If the error is DDL of followed tables alone, the next step reads up to that DDL. After any other error, the
        next step leaves out the tables that the error concerns.
        """
        try:
            self._read_part()
        except LakeIngestError as error:
            tables = error.tables & (self._watched.keys() | self._waiting.keys())
            if not tables:
                raise
            ddl = error.ddl if isinstance(error, UnsupportedEvent) else None
            to_stop = tables if ddl is None else tables - self._task.follows
            if not to_stop:  # DDL of followed tables alone
                self._ddl = ddl
                return
            self._ddl = None  # it may be DDL of these tables alone; if not, the next step meets it again
            self._stop_tables(to_stop, error)

    def _read_part(self) -> None:
        """Read the next part of the rest: if no DDL is known, all of the rest; else the rest up to the DDL.

        If the rest begins with the DDL, only the DDL is read; after that, the altered tables wait. `Segment.history` is
        known only for the start of the segment, so the binlog's history is not checked at a later start.
        """
        ddl = self._ddl
        if ddl is None:
            self._read(self._rest, self._watched, self._waiting)
            self.is_over = True
        elif ddl.start != self._rest.start:
            self._read(replace(self._rest, stop=ddl.start), self._watched, self._waiting)
            self._rest = replace(self._rest, start=ddl.start, history=None)
        else:  # the DDL becomes a segment of its own
            watched = {table: schema for table, schema in self._watched.items() if table not in ddl.alterations}
            # `{}`: the DDL may also be of a table in `self._waiting`, and would then be an error
            self._read(replace(self._rest, stop=ddl.stop), watched, {}, ddl)
            self._waiting |= {table: self._watched[table] for table in self._watched.keys() & ddl.alterations.keys()}
            self._watched, self._ddl = watched, None
            self._rest = replace(self._rest, start=ddl.stop, history=None)
            self.is_over = self._rest.empty

    def _stop_tables(self, tables: Collection[TableId], error: LakeIngestError) -> None:
        """Read no more rows of these tables.

        If the error is DDL, the tables are `refused`, and do not wait any more. After any other error, followed tables
        wait, because the segment must still be cut at their later DDL.
        """
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
        """Read a part of the segment into files, in up to four attempts, and keep its manifest."""
        for pause in (*PAUSES_SECONDS, None):  # None: the last attempt
            try:
                manifest = self._attempt(segment, watched, waiting)
                break
            except SourceAway:
                if pause is None:
                    raise
                time.sleep(pause)
        self.manifests.append(manifest if ddl is None else replace(manifest, alterations=ddl.alterations))

    def _attempt(self, segment: Segment, schemas: Schemas, waiting: Schemas) -> Manifest:
        """Decode a part of the segment once, into files with new names."""
        profile, source, prepared = self.profile, self._task.source, self._task.prepared
        facts = SegmentFacts()
        parts = read_changes(source, segment, schemas, facts, waiting, prepared)
        with SegmentFiles(self._task.folder, schemas) as files, closing(parts):
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
        task = self._task
        looked, cost = look_again(task.look, source, segment, schemas, waiting, task.folder, manifest)
        self.looked.append(looked)
        profile.add(cost)
        return replace(manifest, pending=facts.pending, lacks_cascades=facts.lacks_cascades)
