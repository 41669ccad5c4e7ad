"""The changes of a table after a position: change rows of the binlog, DDL, and reread rows, in one order."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ChangelogGone
from lakeingest.files import file as files
from lakeingest.rows import DEFINITION
from lakeingest.spool.followed import Altered
from lakeingest.spool.reread_files import RereadRows, rereads_unreadable

BATCH_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """An open file of change rows, and the fingerprint of the rows' definition; '' if the definition is not known."""

    file: pq.ParquetFile
    definition: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table after `since`, up to the place `end`.

    The files of `parts` are open. The files of `rereads` are opened one after another, when they are read, because they
    may be too many to be open at once. `ends_watch`: the table is not watched after `end`.
    """

    table: TableId
    since: ReadTo
    end: Place
    parts: tuple[ChangeFile | Altered, ...]
    rereads: tuple[RereadRows, ...] = ()
    ends_watch: bool = False

    @property
    def read_to(self) -> ReadTo:
        """The position of a reader that has read all of these changes."""
        return max([ReadTo(self.end), *(rows.last for rows in self.rereads)], key=lambda position: position.order)

    def read_up_to(self, stop: Place, *, rereads_at_stop: bool) -> ReadTo:
        """The position of a reader that has read what `rows` yields with this `stop` and this `rereads_at_stop`."""
        rereads = (rows.last for rows in self.rereads if _is_up_to(rows, stop, at_stop=rereads_at_stop))
        return max([ReadTo(stop), *rereads], key=lambda position: position.order)

    def rows(
        self, since: ReadTo | None = None, stop: Place | None = None, *, rereads_at_stop: bool = False
    ) -> Iterator[pa.RecordBatch | Altered]:
        """Change rows, reread rows and DDL in order, after `since` and up to `stop`.

        If `since` is None, the rows begin after `self.since`; if `stop` is None, they end at `self.end`. The metadata
        of each batch have the fingerprint of its rows' definition (`rows.DEFINITION`). Reread rows have no commit time.
        Reread rows as of a place come after all changes up to this place. Those as of `stop` are yielded only if
        `rereads_at_stop` is true.

        Raises ChangelogGone if a file of reread rows was removed before its turn. That happens to slow readers that do
        not report that they are at work (`spool.readers`). Raises StateUnreadable if a file of reread rows is damaged.
        """
        since = since or self.since
        # the files of reread rows whose turn is still to come
        waiting = [rows for rows in self.rereads if stop is None or _is_up_to(rows, stop, at_stop=rereads_at_stop)]
        for part in self.parts:
            if isinstance(part, Altered):
                ddl_at = part.followed.read_to
                # reread rows as of a place before the DDL come before the DDL, with the old definition
                while waiting and waiting[0].last.order < ddl_at.order:
                    yield from self._reread(waiting.pop(0), since)
                if since.order < ddl_at.order and (stop is None or ddl_at.place <= stop):
                    yield part
                continue
            for batch in part.file.iter_batches(BATCH_ROWS):
                changes = batch.replace_schema_metadata({DEFINITION: part.definition})
                yield from self._with_rereads(changes, waiting, since, stop)
        for reread in waiting:
            yield from self._reread(reread, since)

    def _with_rereads(
        self, changes: pa.RecordBatch, waiting: list[RereadRows], since: ReadTo, stop: Place | None
    ) -> Iterator[pa.RecordBatch]:
        """The change rows of a batch, and the reread rows that come between them.

        Reread rows as of a place come before the first change row after that place. Their files are removed from the
        caller's list `waiting`. Files that stay in it come in or after a later batch.
        """
        remaining = changes
        while waiting:
            is_later = _is_after(remaining, ReadTo(waiting[0].last.place))
            if not is_later.any():  # a later batch may have more rows up to this place
                break
            yield from _between(remaining.filter(pa.array(~is_later)), since, stop)
            yield from self._reread(waiting.pop(0), since)
            remaining = remaining.filter(pa.array(is_later))
        yield from _between(remaining, since, stop)

    def _reread(self, rows: RereadRows, since: ReadTo) -> Iterator[pa.RecordBatch]:
        """The rows of one file, all as of one place, that come after `since`.

        Raises ChangelogGone if the file was removed, and StateUnreadable if it is damaged.
        """
        if rows.last.order <= since.order:
            return
        # the number of the last row as of the file's place that the reader has read; −1 if it has read none
        last_read = since.reread if since.place == rows.last.place and since.reread is not None else -1
        try:
            with files.parquet(rows.path) as file:
                metadata = {DEFINITION: definition_of(file) or self._definition_at(rows.last.place)}
                for batch in file.iter_batches(BATCH_ROWS):
                    unread = batch.filter(pa.array(batch[change.ORDINAL].to_numpy() > last_read))
                    if unread.num_rows:
                        yield unread.replace_schema_metadata(metadata)
        except FileNotFoundError as error:
            raise ChangelogGone(
                f"{self.table}: rows that were read again at {rows.first} are no longer held; read the changelog from"
                " its beginning, into an empty table"
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise rereads_unreadable(rows.path, error) from error

    def _definition_at(self, place: Place) -> str:
        """The fingerprint of the definition at a place, for files that do not name it; '' if it is not known."""
        all_followed = [part.followed for part in self.parts if isinstance(part, Altered)]
        return next((followed.before.fingerprint for followed in all_followed if followed.place > place), "")


def definition_of(file: pq.ParquetFile) -> str:
    """The fingerprint of the definition in the metadata of a file; '' in a file of an earlier version."""
    return str((file.schema_arrow.metadata or {}).get(DEFINITION, b""), "ascii")


def _is_up_to(rows: RereadRows, stop: Place, *, at_stop: bool) -> bool:
    """Whether reread rows are as of a place before `stop`; with `at_stop`, also if they are as of `stop`."""
    return rows.last.place < stop or (at_stop and rows.last.place == stop)


def _between(batch: pa.RecordBatch, since: ReadTo, stop: Place | None) -> Iterator[pa.RecordBatch]:
    """Yield one batch with the change rows after `since`, up to `stop` if there is one; nothing if there are none."""
    is_between = _is_after(batch, since)
    if stop is not None:
        is_between &= ~_is_after(batch, ReadTo(stop))
    rows = batch if is_between.all() else batch.filter(pa.array(is_between))
    if rows.num_rows:
        yield rows


def _is_after(batch: pa.RecordBatch, since: ReadTo) -> "np.ndarray":
    """For each change row of a batch, whether it is after `since`."""
    epoch, file, pos, ordinal = (batch[name].to_numpy() for name in change.ORDER)
    place = since.place
    # Without an ordinal, the reader has read all rows of the transaction at `since`, so none of them is after `since`.
    is_after = np.zeros(batch.num_rows, bool) if since.ordinal is None else ordinal > since.ordinal
    # The epoch counts most, so it comes last: each part that differs overrules the result of the parts before it.
    for column, value in ((pos, place.pos), (file, place.file), (epoch, place.epoch)):
        is_after = (column > value) | ((column == value) & is_after)
    return is_after
