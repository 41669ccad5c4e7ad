"""The changelog of a table up to the place as of which readers of the lake see it, for the companions of its copy."""

from collections.abc import Generator
from dataclasses import replace

import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.errors import ChangelogGone
from lakeingest.pipeline.changelog.positions import position_after
from lakeingest.pipeline.changelog.reading import Changelog, Copied, Part
from lakeingest.rows import table_schema
from lakeingest.spool.changes import Changes
from lakeingest.spool.readers import Reader

ShownParts = Generator[Part, None, ReadTo]  # yields parts, returns the position of a reader of all of them


class _OwnReader(Reader):
    """The reader is the run that itself removes segments: it removes none while it reads, so it needs no note."""

    def __init__(self) -> None:
        """Make no file."""

    def has_read(self, place: Place) -> None:
        """Note nothing."""


class ShownChangelog(Changelog):
    """A changelog up to the place as of which readers see the table. It has no row that they do not see yet."""

    def read_shown(self, since: ReadTo | None, shown: Place, *, rereads: bool) -> ShownParts:
        """The parts after `since`, up to the place `shown` as of which readers see the table.

        Without `since`, the parts begin with a copy. `rereads`: whether the parts have the reread rows as of the place
        `shown`, too; give True if readers of the table see these rows.

        Raises ChangelogGone if changes after `since` are no longer stored, or if a reader at `since` lacks rows.
        """
        reader = _OwnReader()
        if since is None:
            return (yield from self._copy_and_changes(reader, shown, rereads=rereads))
        read_to = since
        if since.log != self.name:  # else `_changes` looks whether all changes after it are stored
            read_to = position_after(self.table, since, self._log, self.name, self._restarted_at)
        if not self._has_all_rows(read_to):
            raise ChangelogGone(
                f"{self.table}: its rows were read again after {since}; read the changelog from its beginning, into"
                " an empty table"
            )
        return (yield from self._changes_to(reader, replace(read_to, log=self.name), shown, rereads=rereads))

    def _copy_and_changes(self, reader: Reader, shown: Place, *, rereads: bool) -> ShownParts:
        """The oldest published version for which all later changes are stored, then these changes.

        A copy without rows is yielded as one part without rows.
        """
        _, stretch = self._log.stretch(self.table)
        oldest = self._oldest_of([one for one in self._published() if stretch.start <= one.place <= shown])
        if oldest is None:
            raise ChangelogGone(f"{self.table}: the changes after its published versions are no longer held")
        copied = ReadTo(oldest.place, log=self.name)
        reader.has_read(copied.place)
        schema, is_empty = self._schema_of_version(oldest.version), True
        for part in self._copy_parts(reader, oldest.place, oldest):
            is_empty = False
            yield part
        if is_empty and schema is not None:  # so that the reader knows the columns, and where the copy is
            yield Copied(pa.RecordBatch.from_pylist([], table_schema(schema)), schema, oldest.place, last=True)
        return (yield from self._changes_to(reader, copied, shown, rereads=rereads))

    def _changes_to(self, reader: Reader, read_to: ReadTo, shown: Place, *, rereads: bool) -> ShownParts:
        """The changes after `read_to`, which has the name of this changelog."""
        reader.has_read(read_to.place)
        with self._changes(read_to) as changes:
            if changes.end < shown:
                raise ChangelogGone(
                    f"{self.table}: the changes from {changes.end} to {shown} are in no changelog; read the changelog"
                    " from its beginning, into an empty table"
                )
            rows = changes.rows(stop=shown, rereads_at_stop=rereads)
            yield from self._change_parts(reader, changes, rows, read_to.place)
            return max(read_to, self._reached(changes, shown, rereads=rereads), key=lambda position: position.order)

    def _reached(self, changes: Changes, shown: Place, *, rereads: bool) -> ReadTo:
        """The position of a reader of all `changes` up to `shown`, with the name of this changelog."""
        return replace(changes.read_up_to(shown, rereads_at_stop=rereads), log=self.name)
