"""The changes of a table after a position: change rows of the binlog, DDL, and rows read again, in one order."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core import change
from lakeingest.core.position import Place
from lakeingest.core.reading import ReadTo
from lakeingest.core.schema import TableId
from lakeingest.errors import ChangelogGone
from lakeingest.files import file as files
from lakeingest.rows import DEFINITION
from lakeingest.spool.followed import Altered
from lakeingest.spool.reread_files import RereadRows, unreadable

BATCH_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Stored:
    """An open file of change rows, and the fingerprint of the rows' definition; '' where it is not known."""

    file: pq.ParquetFile
    definition: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table after `since`, up to the place `end`.

    The files of `parts` are open; those of `rereads` may be too many to keep open. `stops`: the table is not watched
    after `end`.
    """

    table: TableId
    since: ReadTo
    end: Place
    parts: tuple[Stored | Altered, ...]
    rereads: tuple[RereadRows, ...] = ()
    stops: bool = False

    @property
    def read_to(self) -> ReadTo:
        """The position of a reader that has read all of these changes."""
        return max([ReadTo(self.end), *(rows.last for rows in self.rereads)], key=lambda position: position.order)

    def rows(self, since: ReadTo | None = None, stop: Place | None = None) -> Iterator[pa.RecordBatch | Altered]:
        """Change rows and DDL in order, after `since` and up to `stop`, where they are given.

        The metadata of each batch have the fingerprint of its rows' definition (`rows.DEFINITION`). Rows that were read
        again have no commit time. Those as of `stop` come after `stop`, and are left out. Raises ChangelogGone where a
        file of such rows is removed meanwhile: the reader is slow, and has not said that it is at work.
        """
        since, waiting = since or self.since, list(self.rereads)
        for part in self.parts:
            if isinstance(part, Altered):
                at = part.followed.read_to
                while waiting and waiting[0].last.order < at.order:
                    yield from self._reread(waiting.pop(0), since, stop)
                if since.order < at.order and (stop is None or at.place <= stop):
                    yield part
                continue
            for batch in part.file.iter_batches(BATCH_ROWS):
                remaining = batch.replace_schema_metadata({DEFINITION: part.definition})
                # rows that were read again as of a place come before the first change row after that place
                while waiting and (is_later := _is_after(remaining, ReadTo(waiting[0].last.place))).any():
                    yield from _between(remaining.filter(pa.array(~is_later)), since, stop)
                    yield from self._reread(waiting.pop(0), since, stop)
                    remaining = remaining.filter(pa.array(is_later))
                yield from _between(remaining, since, stop)
        for reread in waiting:
            yield from self._reread(reread, since, stop)

    def _reread(self, rows: RereadRows, since: ReadTo, stop: Place | None) -> Iterator[pa.RecordBatch]:
        """The rows of one `RereadRows` that are after `since`; none if they are as of `stop` or later."""
        if rows.last.order <= since.order or (stop is not None and rows.last.place >= stop):
            return
        last_read = since.reread if since.place == rows.last.place and since.reread is not None else -1
        try:
            with files.parquet(rows.path) as file:
                mark = {DEFINITION: definition_of(file) or self._definition_at(rows.last.place)}
                for batch in file.iter_batches(BATCH_ROWS):
                    unread = batch.filter(pa.array(batch[change.ORDINAL].to_numpy() > last_read))
                    if unread.num_rows:
                        yield unread.replace_schema_metadata(mark)
        except FileNotFoundError as error:
            raise ChangelogGone(
                f"{self.table}: rows that were read again at {rows.first} are no longer held; read the changelog from"
                " its beginning, into an empty table"
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise unreadable(rows.path, error) from error

    def _definition_at(self, place: Place) -> str:
        """The fingerprint of the definition at a place, for rows that an earlier version wrote; '' if not known."""
        all_followed = [part.followed for part in self.parts if isinstance(part, Altered)]
        return next((followed.before.fingerprint for followed in all_followed if followed.place > place), "")


def definition_of(file: pq.ParquetFile) -> str:
    """The fingerprint that a file of change rows carries; '' in one of an earlier version."""
    return str((file.schema_arrow.metadata or {}).get(DEFINITION, b""), "ascii")


def _between(batch: pa.RecordBatch, since: ReadTo, stop: Place | None) -> Iterator[pa.RecordBatch]:
    """The change rows of a batch that are after `since` and up to `stop`; no batch where there are none."""
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
    # compared by the ordinal first, then by each part of the place: a more significant part overrules the ones before
    is_after = np.zeros(batch.num_rows, bool) if since.ordinal is None else ordinal > since.ordinal
    for column, value in ((pos, place.pos), (file, place.file), (epoch, place.epoch)):
        is_after = (column > value) | ((column == value) & is_after)
    return is_after
