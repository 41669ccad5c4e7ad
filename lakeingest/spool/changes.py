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
    """A file of change rows, which is open, and the fingerprint of their definition; '' where it is not known."""

    file: pq.ParquetFile
    definition: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What comes after `since`, up to the place `end`.

    The files of `parts` are open; those of `rereads` may be too many for that. `stops`: the table is not watched from
    the end on.
    """

    table: TableId
    since: ReadTo
    end: Place
    parts: tuple[Stored | Altered, ...]
    rereads: tuple[RereadRows, ...] = ()
    stops: bool = False

    @property
    def read_to(self) -> ReadTo:
        """Where someone is who has read all of it."""
        return max([ReadTo(self.end), *(one.last for one in self.rereads)], key=lambda one: one.order)

    def rows(self, since: ReadTo | None = None, stop: Place | None = None) -> Iterator[pa.RecordBatch | Altered]:
        """Change rows and DDL in order, after `since` and up to `stop`, where they are given.

        The metadata of change rows have the fingerprint of their definition (`rows.DEFINITION`). Rows that were read
        again have no commit time; those as of `stop` come after it. ChangelogGone where they are removed meanwhile: the
        reader is slow, and has not said that it is at work.
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
                left = batch.replace_schema_metadata({DEFINITION: part.definition})
                while waiting and (after := _is_after(left, ReadTo(waiting[0].last.place))).any():
                    yield from _between(left.filter(pa.array(~after)), since, stop)
                    yield from self._reread(waiting.pop(0), since, stop)
                    left = left.filter(pa.array(after))
                yield from _between(left, since, stop)
        for one in waiting:
            yield from self._reread(one, since, stop)

    def _reread(self, rows: RereadRows, since: ReadTo, stop: Place | None) -> Iterator[pa.RecordBatch]:
        """The rows of a file, after `since`, and as of a place before `stop`."""
        if rows.last.order <= since.order or (stop is not None and rows.last.place >= stop):
            return
        read = since.reread if since.place == rows.last.place and since.reread is not None else -1
        try:
            with files.parquet(rows.path) as file:
                mark = {DEFINITION: definition_of(file) or self._definition_at(rows.last.place)}
                for batch in file.iter_batches(BATCH_ROWS):
                    left = batch.filter(pa.array(batch[change.ORDINAL].to_numpy() > read))
                    if left.num_rows:
                        yield left.replace_schema_metadata(mark)
        except FileNotFoundError as error:
            raise ChangelogGone(
                f"{self.table}: rows that were read again at {rows.first} are no longer held; read the changelog from"
                " its beginning, into an empty table"
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise unreadable(rows.path, error) from error

    def _definition_at(self, place: Place) -> str:
        """The fingerprint of the definition as of a place, for rows that an earlier version wrote; '' if not known."""
        followed = [part.followed for part in self.parts if isinstance(part, Altered)]
        return next((one.before.fingerprint for one in followed if one.place > place), "")


def definition_of(file: pq.ParquetFile) -> str:
    """The fingerprint that a file of change rows carries; '' in one of an earlier version."""
    return str((file.schema_arrow.metadata or {}).get(DEFINITION, b""), "ascii")


def _between(batch: pa.RecordBatch, since: ReadTo, stop: Place | None) -> Iterator[pa.RecordBatch]:
    """The change rows of a batch after `since` and up to `stop`, if there are any."""
    wanted = _is_after(batch, since)
    if stop is not None:
        wanted &= ~_is_after(batch, ReadTo(stop))
    rows = batch if wanted.all() else batch.filter(pa.array(wanted))
    if rows.num_rows:
        yield rows


def _is_after(batch: pa.RecordBatch, since: ReadTo) -> "np.ndarray":
    """Which change rows the reader does not have yet."""
    epoch, file, pos, ordinal = (batch[name].to_numpy() for name in change.ORDER)
    place = since.place
    same = np.ones(batch.num_rows, bool) if since.ordinal is not None else np.zeros(batch.num_rows, bool)
    if since.ordinal is not None:
        same = ordinal > since.ordinal
    for column, value in ((pos, place.pos), (file, place.file), (epoch, place.epoch)):
        same = (column > value) | ((column == value) & same)
    return same
