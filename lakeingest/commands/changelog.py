"""Changelog: every row of a table as of one position, then its changes, in order. Needs no source, no Spark, no lease.

The changelog includes the DDL that the copy has followed. Rows before the DDL have the old columns, rows after it the
new ones.

A new reader gets a *copy* first: all rows of the oldest published version whose later changes are all held. Then it
gets these changes. So it has every row, however short the retention of changes is. A reader that names a position gets
the changes after that position. If the table was not published yet at that position, the reader has only some of its
rows. This reader gets the changes up to the next published version, then a copy of this version, then later changes.
The changes include rows that were read again, which the binlog does not have. So the reader has the same rows as the
lake.
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
    """Rows of a copy as of a place, with the columns of the definition. `last`: the last rows of a whole copy."""

    rows: pa.RecordBatch
    schema: TableSchema
    place: Place
    last: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """Change rows, in order, with the columns that `rows.change_schema` says.

    Rows without a commit time were read again, as of their place (`rows.reread_schema`).
    """

    rows: pa.RecordBatch
    schema: TableSchema


Part = Copied | Changed | Altered
Begun = Generator[Part, None, tuple[ReadTo, bool]]  # returns the reader's position, and whether it has the whole table


class Changelog:
    """The changelog of one table. Each of its positions carries its `name`.

    The name is that of the stored changelog. If the copy was started over, the name has a suffix for the place of this
    restart, because earlier readers then have the rows of another changelog.
    """

    def __init__(self, config: Config, table: str) -> None:
        with_copy = config.tables.select(copied(open_target(config), config.target))
        if not with_copy:
            raise UsageError(f"{table} has no copy yet; run once, then the same command again")
        [self.table] = config.tables.choose(with_copy, [table])
        self._state = state_of(config)
        owner_of(self._state)  # refuses a state folder that a newer version has written
        self._versions: Versions = open_versions(config)
        self._schemas = dict[str, TableSchema]()  # by their fingerprints
        self._restarted = self._definition().restarted
        suffix = "" if self._restarted is None else f"r{zlib.crc32(str(self._restarted).encode()):08x}"
        self._log = StoredChangelog(self._state / "spool", self._shown, suffix)
        self._stored = self._held().name
        self.name = self._stored + suffix

    @property
    def end(self) -> FilePosition:
        """The position in the source's binlog at which the stored changes end."""
        return self._held().end.at

    def read(
        self, since: str | None = None, *, follow: bool = False, stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[Part]:
        """All parts up to the end of the spool; with `follow` also later ones, until `stopping` returns True.

        Raises ChangelogGone if changes after `since` are no longer held, or are removed before this reader reads them.
        """
        with reading(self._log.folder) as reader:
            start = None if since is None else parse_since(since, datetime.now(UTC))
            if start is None or (isinstance(start, datetime) and self._is_before_copy(start)):
                read_to, whole = yield from self._begin(reader)
            else:
                if isinstance(start, datetime):
                    start = self._after_first(start)
                read_to = resolved(self.table, start, self._log, self.name, self._restarted)
                whole = self._is_whole(read_to)
                read_to, whole = yield from self._go_on(reader, read_to, whole=whole)
            while follow and not stopping():
                last_read_to = read_to
                read_to, whole = yield from self._go_on(reader, read_to, whole=whole)
                if read_to == last_read_to:
                    time.sleep(POLL_SECONDS)

    def _begin(self, reader: Reader) -> Begun:
        """A copy and the changes after it; for a table that is not published yet, the rows that it has so far."""
        with ExitStack() as opened:
            while True:
                # Step 1: list the changes. Versions are listed later, so a version that is missing in the list is
                # published at the end of these changes or after it.
                _, stretch = self._log.stretch(self.table)
                published = self._published()
                if not published:
                    begun = yield from self._unpublished(reader)
                    if begun is not None:
                        return begun
                    published = self._published()
                # Step 2: choose the oldest version whose later changes are all held, and whose definition is kept.
                continuable = (version for version in published if version.place >= stretch.start)
                oldest = next((version for version in continuable if self._schema_of(version.version)), None)
                if oldest is None:
                    raise ChangelogGone(
                        f"{self.table}: the changes after its published versions are no longer held; run once, then"
                        " read the changelog from its beginning"
                    )
                # Step 3: open the changes before the copy is read: they stay readable, however long that takes.
                read_to = ReadTo(oldest.place, log=self.name)
                reader.has_read(read_to.place)
                try:
                    changes = opened.enter_context(self._changes(read_to))
                    break
                except ChangelogGone:
                    if self._log.stretch(self.table)[1].start <= stretch.start:
                        raise
                    # a file was lost or removed: try again with a later version, which does not need it
            # Step 4: read the copy, then the changes.
            yield from self._copy(reader, oldest.place, oldest)
            yield from self._changed(reader, changes, changes.rows(), read_to.place)
            return self._end(changes, read_to), True

    def _unpublished(self, reader: Reader) -> Generator[Part, None, tuple[ReadTo, bool] | None]:
        """The rows that a table has before its first publish; returns None if it is published by now."""
        for attempt in range(1, _TRIES + 1):
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
                batches = (batch for batch in rows if batch.num_rows)
                batch = next(batches, None)  # once the first batch is read, a run beside this reader does no harm
            except (SpoolGap, StateUnreadable):
                if attempt == _TRIES:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            while batch is not None:
                reader.has_read(place)
                yield Copied(batch, schema, place)
                batch = next(batches, None)
            return ReadTo(place, copying=True, log=self.name), False
        return None

    def _go_on(self, reader: Reader, read_to: ReadTo, *, whole: bool) -> Begun:
        """The changes after `read_to`; with a copy between them if the reader does not have the `whole` table."""
        reader.has_read(read_to.place)
        while True:
            with self._changes(read_to) as changes:
                published = [] if whole else self._published()
                following = next((version for version in published if version.place >= read_to.place), None)
                if following is None:
                    yield from self._changed(reader, changes, changes.rows(), read_to.place)
                    return self._end(changes, read_to), whole
                if following.place <= changes.end:
                    # the changes up to the version, a copy of the version, the changes after it
                    yield from self._changed(reader, changes, changes.rows(stop=following.place), read_to.place)
                    yield from self._copy(reader, read_to.place, following)
                    copied_at = ReadTo(following.place, log=self.name)
                    yield from self._changed(reader, changes, changes.rows(copied_at), read_to.place)
                    return self._end(changes, copied_at), True
            # the version was published after the changes were listed: wait until its changes are listed, too
            self._assert_watched(following.place)
            time.sleep(POLL_SECONDS)

    def _assert_watched(self, place: Place) -> None:
        """Raise ChangelogGone if the spool has this place, and the table's changes end before it."""
        held, stretch = self._log.stretch(self.table)
        if stretch.end < place <= held.end.place:
            raise ChangelogGone(
                f"{self.table}: the changes from {stretch.end} to {place} are in no changelog, because all rows were"
                " read again; read the changelog from its beginning, into an empty table"
            )

    def _copy(self, reader: Reader, read_to: Place, version: Published) -> Iterator[Part]:
        """All rows of a published version. Raises ChangelogGone if it expires before all rows are read."""
        try:
            schema = self._schema_of(version.version)
            if schema is None:
                raise self._undefined(version.place)
            batches = (rows for rows in self._versions.rows(schema, version.version) if rows.num_rows)
            batch = next(batches, None)
            while batch is not None:
                following = next(batches, None)
                reader.has_read(read_to)
                yield Copied(batch, schema, version.place, last=following is None)
                batch = following
        except StateUnreadable as error:
            if version.version in {published.version for published in self._published()}:
                raise
            raise ChangelogGone(
                f"{self.table}: the version at {version.place} expired while it was read (target.history is too short);"
                " read the changelog from its beginning, into an empty table"
            ) from error

    def _is_whole(self, read_to: ReadTo) -> bool:
        """Whether a reader that has read up to `read_to` has every row of the table; False if that is not known."""
        if read_to.copying:
            return False
        first = self._definition().first
        places = [version.place for version in self._published()] if first is None else [first.place]
        # a copy comes after all changes at its place: a reader between these changes (`ordinal`) does not have it yet
        return any(place < read_to.place or (place == read_to.place and read_to.ordinal is None) for place in places)

    def _published(self) -> Sequence[Published]:
        """The versions that were published since the copy was last started over, oldest first.

        If the table has not changed since the last version, this version is listed again with the later position.
        """
        published = self._versions.published(self.table, self._definition().before)
        quiet = read_quiet(self._state).get(self.table)
        if not published or quiet is None or quiet.version != published[-1].version:
            return published
        return [*published, replace(published[-1], place=max(published[-1].place, quiet.position.place))]

    def _shown(self) -> Place | None:
        """The newest published place of the copy that belongs to this changelog; None if it has none."""
        return max((version.place for version in self._published()), default=None)

    def _is_before_copy(self, moment: datetime) -> bool:
        """Whether nothing was published yet at `moment`, so that no reader can have a copy; False if not known."""
        kept = self._definition()
        if kept.before is not None:
            return False
        if kept.first_at is not None:
            return moment.timestamp() < kept.first_at
        held, stretch = self._log.stretch(self.table)
        has_begun_later = not self._published() if kept.first is None else stretch.start <= kept.first.place
        return has_begun_later and self._log.place_of_time(held, moment) is None

    def _after_first(self, moment: datetime) -> datetime | ReadTo:
        """The place of the first publish, if all held transactions are later than `moment`; otherwise `moment`.

        Also `moment` if not all changes after the first publish are held.
        """
        kept = self._definition()
        held, stretch = self._log.stretch(self.table)
        if kept.before is not None or kept.first is None or stretch.start > kept.first.place:
            return moment
        return ReadTo(kept.first.place) if self._log.place_of_time(held, moment) is None else moment

    def _changed(
        self, reader: Reader, changes: Changes, rows: Iterator[pa.RecordBatch | Altered], read_to: Place
    ) -> Iterator[Changed | Altered]:
        """The DDL and the rows, each batch with its definition. Raises ChangelogGone if a definition is not kept."""
        for part in rows:
            reader.has_read(read_to)
            if isinstance(part, Altered):
                yield part
                continue
            # an earlier version wrote rows without a fingerprint: if no DDL follows, they have the newest definition
            schema = None if changes.stops else self._newest
            if fingerprint := part.schema.metadata[DEFINITION].decode():
                schema = self._known(fingerprint)
            if schema is None:
                raise self._undefined(changes.end)
            yield Changed(part, schema)

    def _undefined(self, place: Place) -> ChangelogGone:
        return ChangelogGone(
            f"{self.table}: the definition of its rows up to {place} is not kept any more; read the changelog from its"
            " beginning, into an empty table"
        )

    def _schema_of(self, version: int) -> TableSchema | None:
        """The definition of the rows of a published version; None if it is no longer kept."""
        return self._known(self._versions.fingerprint(self.table, version))

    def _known(self, fingerprint: str) -> TableSchema | None:
        """The definition with this fingerprint; None if neither the state nor the stored changelog has it."""
        if fingerprint not in self._schemas:
            kept, followed = self._definition(), self._held().definitions(self.table)
            self._schemas |= {schema.fingerprint: schema for schema in (*followed, *kept.earlier, kept.schema)}
        return self._schemas.get(fingerprint)

    def _end(self, changes: Changes, read_to: ReadTo) -> ReadTo:
        """The position of a reader that was at `read_to` and has read all of `changes`."""
        return max(read_to, replace(changes.read_to, log=self.name), key=lambda position: position.order)

    @contextmanager
    def _changes(self, since: ReadTo) -> Iterator[Changes]:
        """The changes after `since`, readable within the block. Raises ChangelogGone if the copy was started over."""
        kept = self._definition()  # read before the changes are listed, so that it has no later DDL than they have
        if kept.restarted != self._restarted:
            raise ChangelogGone(
                f"{self.table}: all its rows were read again; read the changelog from its beginning, into an empty"
                " table"
            )
        self._newest = kept.schema
        with self._log.opened(self.table, since, self._stored) as changes:
            yield changes

    def _definition(self) -> Definition:
        kept = definition(self._state, self.table)
        if kept is None:
            raise Retryable(f"{self.table}: its definition is not kept yet; run once, then the same command again")
        return kept

    def _held(self) -> Held:
        held = self._log.held()
        if held is None:
            raise Retryable(f"{self.table}: there is no spool yet; run once, then the same command again")
        return held
