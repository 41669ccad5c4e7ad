"""The task of an executor that reads a segment of the binlog into files of the spool's folder."""

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from lakeingest.config import Source
from lakeingest.core.alteration import Ddl
from lakeingest.core.prepared import PreparedAt
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import LakeIngestError, SourceAway, UnsupportedEvent
from lakeingest.files.file import File
from lakeingest.mysql.binlog_reader import SegmentFacts
from lakeingest.mysql.binlog_source import read_changes
from lakeingest.pipeline.run.profile import Profile
from lakeingest.spool.errors import spool_errors
from lakeingest.spool.manifest import Manifest
from lakeingest.spool.segment_files import SegmentFiles

Schemas = Mapping[TableId, TableSchema]

PAUSES_SECONDS = (0.1, 0.4, 1.5)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A segment in files of the spool folder, cut at the DDL of tables; it is not part of the spool yet."""

    manifests: tuple[Manifest, ...]
    profile: Profile
    stopped: Mapping[TableId, LakeIngestError]  # tables with a change in the segment that cannot be replayed
    refused: Mapping[TableId, LakeIngestError]  # those of them whose change is DDL
    met: frozenset[TableId] = frozenset()  # tables with rows in the segment

    @property
    def manifest(self) -> Manifest:
        """The manifest of a segment that was read without `follows`: it is not cut."""
        [manifest] = self.manifests
        return manifest


@dataclass(frozen=True, slots=True)
class SpoolSegment:
    """The task of one executor: decode a segment, write a Parquet file per table.

    At DDL of a table in `follows` the segment is cut: the DDL is a segment of its own, and the table is not watched
    from there on. `waiting` are tables with such DDL before this segment. `prepared` are the XA transactions that are
    prepared at its start, or at an earlier position.
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
        """Decode the segment. The files are complete when this returns, and nothing refers to them yet.

        The source does not always send its newest events at once, and connections break, so there are a few attempts,
        each with new file names; then SourceAway is raised. If a change of a table cannot be replayed, the segment is
        read again without that table.
        """
        reading = _Reading(self)
        with spool_errors(self.folder):
            while not reading.is_over:
                reading.go_on()
        met = frozenset(reading.met)
        return Decoded(tuple(reading.manifests), reading.profile, reading.stopped, reading.refused, met)


class _Reading:
    """How far a segment is read: the part that is left, and the tables that are still watched there."""

    def __init__(self, task: SpoolSegment) -> None:
        self._task, self._left = task, task.segment
        self._watched, self._waiting = dict(task.schemas), dict(task.waiting)
        self._ddl: Ddl | None = None  # the next DDL of followed tables, once an attempt has met it
        self.manifests, self.profile = list[Manifest](), Profile()
        self.stopped, self.refused = dict[TableId, LakeIngestError](), dict[TableId, LakeIngestError]()
        self.met = set[TableId]()
        self.is_over = False

    def go_on(self) -> None:
        """Take one more step through the segment. An error that concerns some tables changes how the next step reads.

        After DDL of followed tables alone, the next step reads up to that DDL. After any other error, it reads without
        the tables concerned.
        """
        try:
            self._go_on()
        except LakeIngestError as error:
            tables = error.tables & (self._watched.keys() | self._waiting.keys())
            if not tables:
                raise
            ddl = error.ddl if isinstance(error, UnsupportedEvent) else None
            refused = tables if ddl is None else tables - self._task.follows
            if ddl is None or refused:
                self._ddl = None  # it may be DDL of these tables, too: the next attempt meets it again
                self._leave(refused, error)
            else:
                self._ddl = ddl

    def _go_on(self) -> None:
        """Read everything that is left; or, if DDL was met, the part before it; or, at its start, the DDL alone.

        The altered tables wait in the segments behind their DDL.
        """
        ddl = self._ddl
        if ddl is None:
            self._read(self._left, self._watched, self._waiting)
            self.is_over = True
        elif ddl.start != self._left.start:
            self._read(replace(self._left, stop=ddl.start), self._watched, self._waiting)
            self._left = replace(self._left, start=ddl.start, history=None)
        else:  # the DDL becomes a segment of its own
            watched = {table: schema for table, schema in self._watched.items() if table not in ddl.alterations}
            self._read(replace(self._left, stop=ddl.stop), watched, {}, ddl)
            self._waiting |= {table: self._watched[table] for table in self._watched.keys() & ddl.alterations.keys()}
            self._watched, self._ddl = watched, None
            self._left = replace(self._left, start=ddl.stop, history=None)
            self.is_over = self._left.empty

    def _leave(self, tables: Collection[TableId], error: LakeIngestError) -> None:
        """Stop to read these tables. If rows could not be decoded, followed tables wait: their DDL is still met."""
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
                return replace(manifest, pending=facts.pending, lacks_cascades=facts.lacks_cascades)
