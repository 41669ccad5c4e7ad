"""Changelog: every row of a table as of one position, then its changes, in order. Needs no source, no Spark, no lease.

DDL that the copy has followed is a part of it. Rows before the DDL have the old columns, rows after it the new ones.

A reader that begins gets a *copy*, all rows of the oldest published version whose later changes are all held, and then
these changes: so it is complete, however long changes are kept. A reader that names a position gets the changes after
it. Where the table was not published there yet, the reader has only a part of it: it gets a copy after the changes that
lead to the first version from there on. Rows that were read again, which are not in the binlog, are among the
changes: so the reader has what the copy in the lake has.
"""

import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from lakeingest.commands.since import parse_since, resolved
from lakeingest.commands.unpublished import unpublished_rows
from lakeingest.config import Config
from lakeingest.core.position import FilePosition, Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableSchema
from lakeingest.errors import ChangelogGone, Retryable, SpoolGap, StateUnreadable, UsageError
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_target, open_versions
from lakeingest.lake.preflight import copied
from lakeingest.lake.versions import Published, Versions
from lakeingest.rows import DEFINITION
from lakeingest.spool.changelog import StoredChangelog
from lakeingest.spool.changes import Changes
from lakeingest.spool.followed import Altered
from lakeingest.spool.held import Held
from lakeingest.spool.readers import Reader, reading
from lakeingest.state.definition import Definition, definition
from lakeingest.state.owner import owner_of
from lakeingest.state.quiet import read_quiet

POLL_SECONDS = 0.5
_TRIES = 5  # of the rows of a table that is not published yet, beside a run that goes on


@dataclass(frozen=True, slots=True)
class Copied:
    """Rows as of a place, with the columns of the definition. `last` are the last ones of a whole copy."""

    rows: pa.RecordBatch
    schema: TableSchema
    place: Place
    last: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """Change rows, in order, with the columns that `rows.change_schema` says.

    Those without a commit time are rows that were read again as of their place (`rows.reread_schema`).
    """

    rows: pa.RecordBatch
    schema: TableSchema


Part = Copied | Changed | Altered
Begun = Generator[Part, None, tuple[ReadTo, bool]]  # how far the reader is then, and whether it has the whole table


class Changelog:
    """The changelog of one table; positions in it carry its `name`.

    That is the name of the stored changelog. One more part says where the copy was started over, if it was: then the
    rows that readers had are of another changelog.
    """

    def __init__(self, config: Config, table: str) -> None:
        known = config.tables.select(copied(open_target(config), config.target))
        if not known:
            raise UsageError(f"{table} has no copy yet; run once, then the same command again")
        [self.table] = config.tables.choose(known, [table])
        self._state = state_of(config)
        owner_of(self._state)  # a newer version may have written it
        self._versions: Versions = open_versions(config)
        self._schemas = dict[str, TableSchema]()  # by their fingerprints
        self._restarted = self._definition().restarted
        suffix = "" if self._restarted is None else f"r{zlib.crc32(str(self._restarted).encode()):08x}"
        self._log = StoredChangelog(self._state / "spool", self._shown, suffix)
        self._stored = self._held().name
        self.name = self._stored + suffix

    @property
    def end(self) -> FilePosition:
        """Where the changes end in the source's binlog."""
        return self._held().end.at

    def read(
        self, since: str | None = None, *, follow: bool = False, stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[Part]:
        """All parts, to the end of the spool; with `follow` on and on, until `stopping` says so.

        ChangelogGone when `since` is older than what is held, or when this reader has fallen behind that.
        """
        with reading(self._log.folder) as reader:
            asked = None if since is None else parse_since(since, datetime.now(UTC))
            if asked is None or (isinstance(asked, datetime) and self._is_before_copy(asked)):
                read_to, whole = yield from self._begin(reader)
            else:
                if isinstance(asked, datetime):
                    asked = self._after_first(asked)
                read_to = resolved(self.table, asked, self._log, self.name, self._restarted)
                whole = self._is_whole(read_to)
                read_to, whole = yield from self._go_on(reader, read_to, whole=whole)
            while follow and not stopping():
                before = read_to
                read_to, whole = yield from self._go_on(reader, read_to, whole=whole)
                if read_to == before:
                    time.sleep(POLL_SECONDS)

    def _begin(self, reader: Reader) -> Begun:
        """A copy, and the changes after it."""
        with ExitStack() as opened:
            while True:
                _, found = self._log.stretch(self.table)
                # asked after the changes were listed: one that is not published now is published at their end or later
                published = self._published()
                if not published:
                    begun = yield from self._unpublished(reader)
                    if begun is not None:
                        return begun
                    published = self._published()
                held = (one for one in published if one.place >= found.start)
                oldest = next((one for one in held if self._schema_of(one.version) is not None), None)
                if oldest is None:
                    raise ChangelogGone(
                        f"{self.table}: the changes after its published versions are no longer held; run once, then"
                        " read the changelog from its beginning"
                    )
                read_to = ReadTo(oldest.place, log=self.name)
                reader.has_read(read_to.place)
                try:
                    changes = opened.enter_context(self._changes(read_to))
                    break
                except ChangelogGone:
                    if self._log.stretch(self.table)[1].start <= found.start:
                        raise
                    # a file was lost, or removed: a later version needs no such file
            yield from self._copy(reader, oldest.place, oldest)
            yield from self._changed(reader, changes, changes.rows(), read_to.place)
            return self._end(changes, read_to), True

    def _unpublished(self, reader: Reader) -> Generator[Part, None, tuple[ReadTo, bool] | None]:
        """The rows that are there of a table which is not published yet; None where it is by now."""
        for last_try in (*[False] * (_TRIES - 1), True):
            staged = self._versions.last(self.table)
            if staged is None:
                raise Retryable(f"{self.table} has no copy yet; run the same command again once a run has begun it")
            if staged.published is not None:
                return None
            schema = self._known(staged.progress.fingerprint)
            if schema is None:
                raise Retryable(f"{self.table}: the definition of its rows is not kept; run once, then try again")
            try:
                place, rows = unpublished_rows(self._versions, staged, schema, self._log.spool())
                rows = (batch for batch in rows if batch.num_rows)
                first = next(rows, None)  # from here on a run that goes on does not matter
            except (SpoolGap, StateUnreadable):
                if last_try:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            while first is not None:
                reader.has_read(place)
                yield Copied(first, schema, place)
                first = next(rows, None)
            return ReadTo(place, copying=True, log=self.name), False
        return None

    def _go_on(self, reader: Reader, read_to: ReadTo, *, whole: bool) -> Begun:
        """The changes that follow, and a copy where the reader has only a part of the table."""
        reader.has_read(read_to.place)
        while True:
            with self._changes(read_to) as changes:
                published = [] if whole else self._published()
                following = next((one for one in published if one.place >= read_to.place), None)
                if following is None:
                    yield from self._changed(reader, changes, changes.rows(), read_to.place)
                    return self._end(changes, read_to), whole
                if following.place <= changes.end:
                    yield from self._changed(reader, changes, changes.rows(stop=following.place), read_to.place)
                    yield from self._copy(reader, read_to.place, following)
                    copied_at = ReadTo(following.place, log=self.name)
                    yield from self._changed(reader, changes, changes.rows(copied_at), read_to.place)
                    return self._end(changes, copied_at), True
            self._assert_watched(following.place)
            time.sleep(POLL_SECONDS)  # it was published after the changes were listed

    def _assert_watched(self, place: Place) -> None:
        """ChangelogGone unless the table was watched up to this place of the spool."""
        held, found = self._log.stretch(self.table)
        if found.end < place <= held.end.place:
            raise ChangelogGone(
                f"{self.table}: the changes from {found.end} to {place} are in no changelog, because all rows were read"
                " again; read the changelog from its beginning, into an empty table"
            )

    def _copy(self, reader: Reader, read_to: Place, version: Published) -> Iterator[Part]:
        """All rows of a published version; ChangelogGone where it expires meanwhile."""
        try:
            schema = self._schema_of(version.version)
            if schema is None:
                raise self._undefined(version.place)
            batches = (one for one in self._versions.rows(schema, version.version) if one.num_rows)
            batch = next(batches, None)
            while batch is not None:
                following = next(batches, None)
                reader.has_read(read_to)
                yield Copied(batch, schema, version.place, last=following is None)
                batch = following
        except StateUnreadable as error:
            if any(one.version == version.version for one in self._published()):
                raise
            raise ChangelogGone(
                f"{self.table}: the version at {version.place} expired while it was read (target.history is too short);"
                " read the changelog from its beginning, into an empty table"
            ) from error

    def _is_whole(self, read_to: ReadTo) -> bool:
        """Whether a reader that has read up to there has every row; where that is not known it has not."""
        if read_to.copying:
            return False
        first = self._definition().first
        at = [one.place for one in self._published()] if first is None else [first.place]
        # a change at the very place was read before the copy that is made there
        return any(one < read_to.place or (one == read_to.place and read_to.ordinal is None) for one in at)

    def _published(self) -> Sequence[Published]:
        """The published versions, without those from before the copy was started over.

        The last one stands there twice if it is also the table at a later position.
        """
        published = self._versions.published(self.table, self._definition().before)
        quiet = read_quiet(self._state).get(self.table)
        if not published or quiet is None or quiet.version != published[-1].version:
            return published
        return [*published, replace(published[-1], place=max(published[-1].place, quiet.position.place))]

    def _shown(self) -> Place | None:
        """The newest place as of which readers of the lake see the copy, as far as it belongs to this changelog."""
        return max((one.place for one in self._published()), default=None)

    def _is_before_copy(self, moment: datetime) -> bool:
        """Whether nobody can have read the copy at that time: all that it has came later."""
        known = self._definition()
        if known.before is not None:
            return False
        if known.first_at is not None:
            return moment.timestamp() < known.first_at
        held, found = self._log.stretch(self.table)
        has_begun_later = not self._published() if known.first is None else found.start <= known.first.place
        return has_begun_later and self._log.place_of_time(held, moment) is None

    def _after_first(self, moment: datetime) -> datetime | ReadTo:
        """The first publish, for a time after it and before the first transaction that is held; else the time."""
        known, (held, found) = self._definition(), self._log.stretch(self.table)
        first = None if known.before is not None or known.first is None else known.first.place
        if first is None or found.start > first or self._log.place_of_time(held, moment) is not None:
            return moment
        return ReadTo(first)

    def _changed(
        self, reader: Reader, changes: Changes, rows: Iterator[pa.RecordBatch | Altered], read_to: Place
    ) -> Iterator[Changed | Altered]:
        """Each with the definition that it was read by; ChangelogGone where that is not known any more."""
        for one in rows:
            reader.has_read(read_to)
            if isinstance(one, Altered):
                yield one
                continue
            schema = None if changes.stops else self._newest  # of rows of an earlier version, which no DDL follows
            if fingerprint := one.schema.metadata[DEFINITION].decode():
                schema = self._known(fingerprint)
            if schema is None:
                raise self._undefined(changes.end)
            yield Changed(one, schema)

    def _undefined(self, place: Place) -> ChangelogGone:
        return ChangelogGone(
            f"{self.table}: the definition of its rows up to {place} is not kept any more; read the changelog from its"
            " beginning, into an empty table"
        )

    def _schema_of(self, version: int) -> TableSchema | None:
        """The definition of the rows of a published version; None where it is not known any more."""
        return self._known(self._versions.fingerprint(self.table, version))

    def _known(self, fingerprint: str) -> TableSchema | None:
        """The definition with this fingerprint, as the state or the stored changelog has it."""
        if fingerprint not in self._schemas:
            kept, followed = self._definition(), self._held().definitions(self.table)
            self._schemas |= {one.fingerprint: one for one in (*followed, *kept.earlier, kept.schema)}
        return self._schemas.get(fingerprint)

    def _end(self, changes: Changes, read_to: ReadTo) -> ReadTo:
        """All that the changes held was read."""
        return max(read_to, replace(changes.read_to, log=self.name), key=lambda one: one.order)

    @contextmanager
    def _changes(self, since: ReadTo) -> Iterator[Changes]:
        known = self._definition()  # before the changes are listed: DDL that is followed later is not in it
        if known.restarted != self._restarted:
            raise ChangelogGone(
                f"{self.table}: all its rows were read again; read the changelog from its beginning, into an empty"
                " table"
            )
        self._newest = known.schema
        with self._log.opened(self.table, since, self._stored) as changes:
            yield changes

    def _definition(self) -> Definition:
        known = definition(self._state, self.table)
        if known is None:
            raise Retryable(f"{self.table}: its definition is not kept yet; run once, then the same command again")
        return known

    def _held(self) -> Held:
        held = self._log.held()
        if held is None:
            raise Retryable(f"{self.table}: there is no spool yet; run once, then the same command again")
        return held
