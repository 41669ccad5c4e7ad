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
