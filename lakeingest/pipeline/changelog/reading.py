"""Changelog: every row of a table as of one position, then the table's changes in order.

To read a changelog needs no source, no Spark and no lease.

The changes include rows that were read again, which the binlog does not have: a reader gets the same rows as the lake.
The changes also include the DDL that the copy has followed. Rows before the DDL have the old columns, rows after the
DDL have the new ones.

There are three kinds of readers:
- A new reader gets a *copy* first: all rows of the oldest published version for which all later changes are stored.
  Then this reader gets these changes. So a new reader gets every row, however short the retention of changes is.
- A reader that names a position gets the changes after that position.
- A reader may name a position at which the table was not published yet. Such a reader has only some of the rows. This
  reader gets the changes up to the next published version, then a copy of this version, then the later changes.
"""

import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from lakeingest.config import Config
from lakeingest.core.binlog.position import FilePosition, Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import ChangelogGone, Retryable, SpoolGap, StateUnreadable
from lakeingest.files.file import state_of
from lakeingest.lake.formats import open_versions
from lakeingest.lake.versions import Published, Versions
from lakeingest.pipeline.changelog.positions import Since, position_after
from lakeingest.pipeline.changelog.unpublished import unpublished_rows
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
_TRIES = 5  # attempts to read the rows of an unpublished table, because a run may remove files that are being read


@dataclass(frozen=True, slots=True)
class Copied:
    """Rows of a copy as of a place, with the columns of `schema`. `last`: these are the last rows of the copy."""

    rows: pa.RecordBatch
    schema: TableSchema
    place: Place
    last: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """Change rows in order, with the columns of `lakeingest.rows.change_schema`; or reread rows.

    Reread rows have the columns of `lakeingest.rows.reread_schema`, and no commit time. Their place is the place as of
    which they were read.
    """

    rows: pa.RecordBatch
    schema: TableSchema


Part = Copied | Changed | Altered

# Yields parts. Returns the position that the reader has reached, and whether the reader has every row of the table.
PartStream = Generator[Part, None, tuple[ReadTo, bool]]


class Changelog:
    """The changelog of one table. Each position in this changelog carries the `name` of the changelog.

    The name is that of the stored changelog. If the copy was started over, a suffix from the place of the restart lets
    earlier positions be recognised as those of another changelog. Raises Retryable if there is no spool or copy yet.
    """

    def __init__(self, config: Config, table: TableId, versions: Versions | None = None) -> None:
        self.table = table
        self._state = state_of(config)
        owner_of(self._state)  # refuses a state folder that a newer version has written
        self._versions: Versions = versions or open_versions(config)
        self._schemas = dict[str, TableSchema]()  # definitions by their fingerprints
        self._restarted_at = self._stored_definition().restarted  # None if the copy was never started over
        restarted = self._restarted_at
        suffix = "" if restarted is None else f"r{zlib.crc32(str(restarted).encode()):08x}"
        self._log = StoredChangelog(self._state / "spool", self._newest_published_place, suffix)
        self._stored_name = self._held().name  # the name of the stored changelog, which is the same for all tables
        self.name = self._stored_name + suffix

    @property
    def end(self) -> FilePosition:
        """The position in the source's binlog at which the stored changes end."""
        return self._held().end.at

    def read_to_end(self) -> ReadTo:
        """The position of a reader that has read all changes of the table that are stored now."""
        return ReadTo(self._log.stretch(self.table)[1].end, log=self.name)

    def time_of(self, place: Place) -> int | None:
        """The commit time of the last transaction up to this place, in µs since 1970; None if nobody knows it."""
        stored = self._log.time_of(self._held(), place)  # if it is None, a version as of this place may tell the time
        versions = (version for version in self._published() if stored is None and version.place == place)
        positions = (version.progress(self.table).position for version in versions)
        lasts = (position.history.last for position in positions if position and position.history)
        return next((last.committed_at for last in lasts if last), stored)

    def read(
        self, since: Since | None = None, *, follow: bool = False, stopping: Callable[[], bool] = lambda: False
    ) -> Generator[Part, None, None]:
        """The parts of the changelog up to the end of the spool; with `follow`, also later parts.

        With `follow`, the reading ends when `stopping()` returns True. Without `since`, or with a time before the first
        publish, the parts begin with a copy. With any other `since`, they are the parts after `since`.

        Raises ChangelogGone if changes after `since` are no longer stored, or are removed before they are read.
        """
        with reading(self._log.folder) as reader:  # runs keep the segments that this reader has still to read
            # before the first publish no reader had a copy, so such a reader counts as new
            if since is None or (isinstance(since, datetime) and self._is_before_first_publish(since)):
                read_to, has_all_rows = yield from self._parts_of_new_reader(reader)
            else:
                start = self._start_after(since) if isinstance(since, datetime) else since
                read_to = position_after(self.table, start, self._log, self.name, self._restarted_at)
                has_all_rows = self._has_all_rows(read_to)
                read_to, has_all_rows = yield from self._parts_after(reader, read_to, has_all_rows=has_all_rows)
            while follow and not stopping():
                last_read_to = read_to
                read_to, has_all_rows = yield from self._parts_after(reader, read_to, has_all_rows=has_all_rows)
                if read_to == last_read_to:
                    time.sleep(POLL_SECONDS)

    def _parts_of_new_reader(self, reader: Reader) -> PartStream:
        """A copy and the changes after it; for a table that is not published yet, the rows that runs have read so far.

        Raises ChangelogGone if no published version has both its definition and all later changes.
        """
        with ExitStack() as opened:
            while True:
                # Step 1: list the changes, then the versions. In this order, a version that is published in between is
                # not missed.
                _, stretch = self._log.stretch(self.table)
                published = self._published()
                if not published:
                    reached = yield from self._unpublished_parts(reader)
                    if reached is not None:
                        return reached
                    published = self._published()  # the table was published in between
                # Step 2: choose the oldest version for which all later changes, and the definition, are stored.
                oldest = self._oldest_of([version for version in published if version.place >= stretch.start])
                if oldest is None:
                    raise ChangelogGone(
                        f"{self.table}: the changes after its published versions are no longer held; run once, then"
                        " read the changelog from its beginning"
                    )
                # Step 3: open the changes before the copy is read. So they stay readable, however long that takes.
                read_to = ReadTo(oldest.place, log=self.name)
                reader.has_read(read_to.place)
                try:
                    changes = opened.enter_context(self._changes(read_to))
                    break
                except ChangelogGone:
                    # If a file was lost or removed, the stored changes begin later now: try again with a later version.
                    _, stretch_now = self._log.stretch(self.table)
                    begins_later = stretch_now.start > stretch.start
                    if not begins_later:
                        raise
            # Step 4: read the copy, then the changes.
            yield from self._copy_parts(reader, oldest.place, oldest)
            yield from self._change_parts(reader, changes, changes.rows(), read_to.place)
            has_all_rows = True
            return self._position_after(changes, read_to), has_all_rows

    def _oldest_of(self, published: Sequence[Published]) -> Published | None:
        """The oldest of these versions whose definition is stored; None if there is none.

        Of several versions as of one place, the last one is taken. Earlier ones may lack rows that were read again,
        and the spool may have lost these rows.
        """
        known = [version for version in published if self._schema_of_version(version.version)]
        return next((one for one in reversed(known) if one.place == known[0].place), None)

    def _unpublished_parts(self, reader: Reader) -> Generator[Part, None, tuple[ReadTo, bool] | None]:
        """The rows of a table before its first publish. Returns what a PartStream returns.

        Yields no rows and returns None if the table was published in the meantime.
        """
        for attempt in range(1, _TRIES + 1):
            staged = self._versions.last(self.table)
            if staged is None:
                raise Retryable(f"{self.table} has no copy yet; run the same command again once a run has begun it")
            if staged.published is not None:
                return None
            schema = self._schema_with(staged.progress.fingerprint)
            if schema is None:
                raise Retryable(f"{self.table}: the definition of its rows is not kept; run once, then try again")
            try:
                place, rows = unpublished_rows(self._versions, staged, schema, self._log.spool())
                batches = (batch for batch in rows if batch.num_rows)
                batch = next(batches, None)  # opens all files: if a run removes them later, they stay readable
            except (SpoolGap, StateUnreadable):  # perhaps a run has removed a file: try again
                if attempt == _TRIES:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            while batch is not None:
                reader.has_read(place)
                yield Copied(batch, schema, place)
                batch = next(batches, None)
            return ReadTo(place, copying=True, log=self.name), False
        return None  # never reached: the last attempt returns or raises an error

    def _parts_after(self, reader: Reader, read_to: ReadTo, *, has_all_rows: bool) -> PartStream:
        """The changes after `read_to`. They include a copy if the reader lacks rows and a version is published."""
        reader.has_read(read_to.place)
        while True:
            with self._changes(read_to) as changes:
                published = [] if has_all_rows else self._published()  # a reader with all rows needs no copy
                next_version = next((version for version in published if version.place >= read_to.place), None)
                if next_version is None:
                    yield from self._change_parts(reader, changes, changes.rows(), read_to.place)
                    return self._position_after(changes, read_to), has_all_rows
                if next_version.place <= changes.end:
                    # the changes up to the next version, a copy of this version, the changes after the copy
                    yield from self._change_parts(reader, changes, changes.rows(stop=next_version.place), read_to.place)
                    yield from self._copy_parts(reader, read_to.place, next_version)
                    copied_at = ReadTo(next_version.place, log=self.name)
                    yield from self._change_parts(reader, changes, changes.rows(copied_at), read_to.place)
                    return self._position_after(changes, copied_at), True
            # the next version is later than all listed changes: wait until the changes up to it are stored
            self._assert_watched(next_version.place)
            time.sleep(POLL_SECONDS)

    def _assert_watched(self, place: Place) -> None:
        """Raise ChangelogGone if the spool reaches this place, but the table's stored changes end before this place."""
        held, stretch = self._log.stretch(self.table)
        if stretch.end < place <= held.end.place:
            raise ChangelogGone(
                f"{self.table}: the changes from {stretch.end} to {place} are in no changelog, because all rows were"
                " read again; read the changelog from its beginning, into an empty table"
            )

    def _copy_parts(self, reader: Reader, reader_place: Place, version: Published) -> Iterator[Part]:
        """All rows of a published version, for a reader that has read up to `reader_place`.

        Raises ChangelogGone if the version expires before all rows are read.
        """
        try:
            schema = self._schema_of_version(version.version)
            if schema is None:
                raise self._definition_error(version.place)
            batches = (rows for rows in self._versions.rows(schema, version.version) if rows.num_rows)
            batch = next(batches, None)
            while batch is not None:
                next_batch = next(batches, None)
                reader.has_read(reader_place)
                yield Copied(batch, schema, version.place, last=next_batch is None)
                batch = next_batch
        except StateUnreadable as error:
            if version.version in {published.version for published in self._published()}:
                raise  # the version has not expired, so its files are damaged
            raise ChangelogGone(
                f"{self.table}: the version at {version.place} expired while it was read (target.history is too short);"
                " read the changelog from its beginning, into an empty table"
            ) from error

    def _has_all_rows(self, read_to: ReadTo) -> bool:
        """Whether a reader that has read up to `read_to` has every row of the table; False also if nobody knows."""
        if read_to.copying:
            return False
        first = self._stored_definition().first
        # If the place of the first publish is not known, the places of all versions that are still listed are used.
        places = [version.place for version in self._published()] if first is None else [first.place]
        # At each of these places a reader gets a copy, after all change rows of the place.
        is_within_place = read_to.ordinal is not None  # among the change rows of its place, so still before the copy
        if is_within_place:
            return any(place < read_to.place for place in places)
        return any(place <= read_to.place for place in places)

    def _published(self) -> Sequence[Published]:
        """The versions that were published since the copy was last started over, the oldest first.

        The last version of a quiet table is listed twice: as of its own place, and as of the later place up to which
        the table has not changed.
        """
        published = self._versions.published(self.table, self._stored_definition().before)
        quiet, last = read_quiet(self._state).get(self.table), published[-1] if published else None
        if last is None or quiet is None or quiet.version != last.version:  # not quiet since the last version
            return published
        return [*published, replace(last, place=max(last.place, quiet.position.place))]

    def _newest_published_place(self) -> Place | None:
        """The newest place as of which readers of the lake see the table; None if no version is published."""
        return max((version.place for version in self._published()), default=None)

    def _is_before_first_publish(self, moment: datetime) -> bool:
        """Whether nothing was published yet at `moment`, so that no reader had a copy; False also if nobody knows."""
        stored = self._stored_definition()
        if stored.before is not None:  # the copy was started over: readers may have had the earlier copy at `moment`
            return False
        if stored.first_at is not None:
            return moment.timestamp() < stored.first_at
        held, stretch = self._log.stretch(self.table)
        # The time of the first publish is unknown. But `moment` is before this publish if the stored changes begin
        # before the publish, and no place is found for `moment`: then it is before the first stored transaction. If the
        # place of the publish is unknown, too, the publish is still to come, unless a version is published.
        begins_before_publish = not self._published() if stored.first is None else stretch.start <= stored.first.place
        return begins_before_publish and self._log.place_of_time(held, moment) is None

    def _start_after(self, moment: datetime) -> datetime | ReadTo:
        """The start for a reader that asks for the changes after `moment`: a place, or `moment` itself.

        It is `moment` if the copy was started over, if the place of the first publish is unknown, if changes since that
        place are not stored, or if a place is known for `moment`. Otherwise it is the place of the first publish.
        """
        stored = self._stored_definition()
        held, stretch = self._log.stretch(self.table)
        was_started_over = stored.before is not None
        if was_started_over or stored.first is None:
            return moment
        if stretch.start > stored.first.place or self._log.place_of_time(held, moment) is not None:
            return moment
        return ReadTo(stored.first.place)

    def _change_parts(
        self, reader: Reader, changes: Changes, rows: Iterator[pa.RecordBatch | Altered], reader_place: Place
    ) -> Iterator[Changed | Altered]:
        """The DDL and the change rows in `rows`, for a reader that has read up to `reader_place`.

        Each batch of rows gets its definition. Raises ChangelogGone if this definition is not stored any more.
        """
        for part in rows:
            reader.has_read(reader_place)
            if isinstance(part, Altered):
                yield part
                continue
            # An earlier version of lakeingest stored rows without the fingerprint of their definition. They have the
            # newest definition, unless the table is not watched after these rows (`ends_watch`): then DDL may follow.
            if fingerprint := part.schema.metadata[DEFINITION].decode():
                schema = self._schema_with(fingerprint)
            else:
                schema = None if changes.ends_watch else self._newest_definition
            if schema is None:
                raise self._definition_error(changes.end)
            yield Changed(part, schema)

    def _definition_error(self, place: Place) -> ChangelogGone:
        """The error for rows up to `place` whose definition is not stored any more."""
        return ChangelogGone(
            f"{self.table}: the definition of its rows up to {place} is not kept any more; read the changelog from its"
            " beginning, into an empty table"
        )

    def _schema_of_version(self, version: int) -> TableSchema | None:
        """The definition of the rows of a published version; None if it is no longer stored."""
        return self._schema_with(self._versions.fingerprint(self.table, version))

    def _schema_with(self, fingerprint: str) -> TableSchema | None:
        """The definition with this fingerprint; None if neither the state nor the stored changelog has it."""
        if fingerprint not in self._schemas:
            stored, followed = self._stored_definition(), self._held().definitions(self.table)
            self._schemas |= {schema.fingerprint: schema for schema in (*followed, *stored.earlier, stored.schema)}
        return self._schemas.get(fingerprint)

    def _position_after(self, changes: Changes, read_to: ReadTo) -> ReadTo:
        """The later of two positions: `read_to`, where the reader was, and the end of `changes`, which it has read."""
        return max(read_to, replace(changes.read_to, log=self.name), key=lambda position: position.order)

    @contextmanager
    def _changes(self, since: ReadTo) -> Iterator[Changes]:
        """The changes after `since`, readable within the block. Raises ChangelogGone if the copy was started over."""
        # The definition is read before the changes are listed, so it is not newer than the changes.
        stored = self._stored_definition()
        if stored.restarted != self._restarted_at:
            raise ChangelogGone(
                f"{self.table}: all its rows were read again; read the changelog from its beginning, into an empty"
                " table"
            )
        self._newest_definition = stored.schema  # for `_change_parts`
        with self._log.opened(self.table, since, self._stored_name) as changes:
            yield changes

    def _stored_definition(self) -> Definition:
        stored = definition(self._state, self.table)
        if stored is None:
            raise Retryable(f"{self.table}: its definition is not kept yet; run once, then the same command again")
        return stored

    def _held(self) -> Held:
        held = self._log.held()
        if held is None:
            raise Retryable(f"{self.table}: there is no spool yet; run once, then the same command again")
        return held
