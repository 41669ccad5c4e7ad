"""Decodes row events (write, update, delete) to row images in Arrow: one of each insert or delete, two of each update.

Source: MySQL's source documentation, "Rows_event" (versions 1 and 2).
"""

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import SchemaChanged, UnsupportedEvent, UnsupportedValue, concerning
from lakeingest.mysql.wire.binding import bind_columns
from lakeingest.mysql.wire.compiled import int64, kernel, number, step
from lakeingest.mysql.wire.encodings import Encoding, Mismatch, event_encoding, event_width
from lakeingest.mysql.wire.events import Type
from lakeingest.mysql.wire.follow import Row
from lakeingest.mysql.wire.framing import HEADER
from lakeingest.mysql.wire.images import missing_columns, not_full_message
from lakeingest.mysql.wire.refusals import no_day, unholdable
from lakeingest.mysql.wire.table_map import TableMap
from lakeingest.mysql.wire.temporals import NotADay
from lakeingest.mysql.wire.values import Values
from lakeingest.mysql.wire.walk import packed, walk_row

_VALUES_MAX = 1 << 18  # the walk finds at most so many values before they are decoded
_IMAGES_MAX = 16_384  # of a batch


class _Status(enum.IntEnum):
    """The reason why the kernel returned."""

    DONE = 0  # all events were read
    FULL = 1  # the next row does not fit into the arrays
    WIDTH = 2  # an event has another number of columns than its table
    IMAGE = 3  # a column that is not optional is missing in a row image
    CUT = 4  # an event ends within a row


_DONE, _FULL, _WIDTH, _IMAGE, _CUT = (int(status) for status in _Status)
# The first event type of each version, which is that of a write
_V1, _V2 = int(Type.WRITE_ROWS_V1), int(Type.WRITE_ROWS)
_UPDATE = 1  # the type of an update, minus the first type of its version
_INSERT, _BEFORE, _AFTER, _DELETE = (int(kind) for kind in RowKind)
_NEW_ROWS = (_INSERT, _AFTER)
_START, _STOP = int(Row.START), int(Row.STOP)
_POST_HEADER = 8  # table id, flags


@dataclass(frozen=True, slots=True)
class RowImages:
    """Row images of one table, in binlog order."""

    table: int  # the number of the table (`RowReader.add`)
    columns: list[pa.Array]
    kind: np.ndarray  # of each image: its RowKind
    event: np.ndarray  # of each image: the index of its row event
    within: np.ndarray  # of each image: its number within the row event


class RowReader:
    """Decodes row events of tables.

    `add` gives each table a number, and a new number if a TABLE_MAP event describes the table differently.
    """

    def __init__(self) -> None:
        self._tables: list[tuple[TableSchema, TableMap]] = []
        self._numbers: dict[int, list[int]] = {}  # by the identity of a schema, which `_tables` keeps: its tables
        self._sent: list[TableMap] = []  # by table: its TABLE_MAP event as it was sent, without names from the schema
        self.nulled: Counter[TableId] = Counter()  # values of new rows that are NULL only because the user chose so
        self._encodings: list[list[tuple[int, Encoding]]] = []  # by table: index and encoding of each copied column
        self._widths: list[np.ndarray] = []  # by table: the width of each column
        self._optional: list[np.ndarray] = []  # by table: 1 for a skipped column, which images need not have, else 0
        # the arrays that `walk_rows` fills:
        self._start = np.empty(_VALUES_MAX, np.int32)
        self._size = np.empty(_VALUES_MAX, np.int32)
        self._event = np.empty(_IMAGES_MAX, np.int32)
        self._within = np.empty(_IMAGES_MAX, np.int32)
        self._kind = np.empty(_IMAGES_MAX, np.int8)

    def schema(self, table: int) -> TableSchema:
        """The schema of a table, by its number."""
        return self._tables[table][0]

    def add(self, schema: TableSchema, sent: TableMap, where: str) -> int:
        """Add a table as the TABLE_MAP event `sent` describes it, unless it has a number for this description already.

        Returns the table's number. `where` is the event's position, for messages. Raises SchemaChanged if event and
        schema differ in columns.
        """
        numbers = self._numbers.setdefault(id(schema), [])  # only these are searched: a run may have thousands
        for table in numbers:
            if replace(self._sent[table], id=sent.id) == sent:  # only the server's table id may differ
                return table
        table_and_place = f"{schema.table} {where}"
        table_map, indexes = bind_columns(sent, schema, table_and_place)  # the indexes of the copied columns
        try:
            encodings = [
                (index, event_encoding(column, table_map.columns[index], is_key=column.name in schema.key))
                for column, index in zip(schema.columns, indexes, strict=True)
            ]
        except Mismatch as error:
            raise SchemaChanged(f"{table_and_place}: {error}; copy the table again") from error
        self._tables.append((schema, table_map))
        self._sent.append(sent)
        self._encodings.append(encodings)
        self._widths.append(np.array([event_width(column) for column in table_map.columns], np.int64))
        self._optional.append(np.array([name in schema.skipped for name in table_map.names], np.uint8))
        numbers.append(len(self._tables) - 1)
        return numbers[-1]

    def read(self, data: np.ndarray, rows: np.ndarray, file: str) -> Iterator[RowImages]:
        """Yield the images of the row events in `rows` (`follow.Row`), table by table, in binlog order within a table.

        Raises UnsupportedEvent if an image lacks a copied column or the bytes are damaged, UnsupportedValue for a value
        that cannot be copied exactly. Both errors name the position of the event.
        """
        for table in np.unique(rows[:, Row.TABLE]).tolist():
            chosen = np.flatnonzero(rows[:, Row.TABLE] == table)
            with concerning(self.schema(table).table):
                yield from self._read(data, rows, chosen, table, file)

    def _read(
        self, data: np.ndarray, rows: np.ndarray, chosen: np.ndarray, table: int, file: str
    ) -> Iterator[RowImages]:
        """Yield the images of one table's row events, in batches; `chosen` are the indexes of these events in `rows`.

        Raises the errors of `read`.
        """
        widths = self._widths[table]
        capacity = min(_VALUES_MAX // len(widths), _IMAGES_MAX)  # the most images of a batch
        shape = (len(widths), capacity)
        start = self._start[: len(widths) * capacity].reshape(shape)
        size = self._size[: len(widths) * capacity].reshape(shape)
        progress = np.zeros(3, np.int64)  # of the walk: see `walk_rows`
        status = _FULL
        while status == _FULL:  # each call of `walk_rows` fills one batch; after a full one, more images follow
            status, image_count = walk_rows(
                data,
                rows,
                chosen,
                progress,
                widths,
                self._optional[table],
                start,
                size,
                self._event[:capacity],  # its length limits the images of a call
                self._within,
                self._kind,
            )
            if status not in {_DONE, _FULL}:
                event = rows[chosen[progress[0]]]  # the event that the walk could not read
                raise self._unreadable(
                    _Status(status), table, data[event[Row.START] : event[Row.STOP]], f"{file}:{event[Row.POS]}"
                )
            if image_count:
                # copies, because the next call overwrites the arrays
                event_of, kind = self._event[:image_count].copy(), self._kind[:image_count].copy()
                positions = rows[event_of, Row.POS]
                columns = []
                for index, encoding in self._encodings[table]:
                    values = Values(data, start[index, :image_count], size[index, :image_count])
                    array = self._array(encoding, values, table, file, positions)
                    columns.append(array)
                    if encoding.nulls_dates:
                        nulled = encoding.nulled_rows(values, array) & np.isin(kind, _NEW_ROWS)
                        self.nulled[self.schema(table).table] += int(nulled.sum())
                yield RowImages(table, columns, kind, event_of, self._within[:image_count].copy())

    def _array(self, encoding: Encoding, values: Values, table: int, file: str, positions: np.ndarray) -> pa.Array:
        """The Arrow column of a column's values; `positions` has the position of each value's event in the file.

        Raises UnsupportedValue for a value that cannot be copied exactly. The message has the position of the value's
        event, or the first of `positions` if the row of the value is not known.
        """
        try:
            return encoding.array(values)
        except NotADay as error:
            refused = no_day(encoding.column, str(error))
            raise UnsupportedValue(f"{self.schema(table).table} at {file}:{positions[error.row]}: {refused}") from error
        except ValueError as error:
            refused = unholdable(encoding.column, error)  # the error does not say which row, so name the first position
            raise UnsupportedValue(f"{self.schema(table).table} from {file}:{positions[0]} on: {refused}") from error

    def _unreadable(self, status: _Status, table: int, event: np.ndarray, at: str) -> UnsupportedEvent:
        """The error for a row event that the walk could not read: `event` has its bytes, `at` its position."""
        schema, table_map = self._tables[table]
        where = f"{schema.table} at {at}"
        if status is _Status.IMAGE:
            missing_names = missing_columns(event.tobytes(), table_map.names)
            return UnsupportedEvent(f"{where}: {not_full_message(schema, missing_names)}")
        what = "has another number of columns than its table" if status is _Status.WIDTH else "ends within a row"
        return UnsupportedEvent(
            f"{where}: the binlog is damaged, a row event {what}; run again; if the error stays, copy the table again"
        )


@step
def _count_columns(data: np.ndarray, at: int, optional: np.ndarray) -> int:
    """The number of columns in a row image, by the bitmap at `at`; −1 if a column that is not optional is missing."""
    count = 0
    for column in range(len(optional)):
        if data[at + (column >> 3)] >> (column & 7) & 1:
            count += 1
        elif not optional[column]:
            return -1
    return count


@kernel
def walk_rows(
    data: np.ndarray,
    rows: np.ndarray,
    chosen: np.ndarray,
    progress: np.ndarray,
    widths: np.ndarray,
    optional: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    event_of: np.ndarray,
    within: np.ndarray,
    kind: np.ndarray,
) -> tuple[int, int]:
    """Find the values of the row images of row events, as many as fit into the arrays.

    `chosen` has the indexes of the events in `rows`. `widths` and `optional` are those of the table in `RowReader`.
    `progress` says where the walk begins, and is updated for the next call: the index in `chosen`, the offset in `data`
    (0: the event's beginning), and the number of the event's images found before. Fills `start` and `size` as
    `walk_row` does, and for each image `event_of` (the index of its event in `rows`), `within` (its number in the
    event) and `kind`. Returns a `_Status` and the number of images found.
    """
    found = 0  # the number of images
    while progress[0] < len(chosen):
        event = chosen[progress[0]]
        begin, stop = rows[event, _START], rows[event, _STOP]
        type_ = int64(data[begin + 4])
        version = _V2 if type_ >= _V2 else _V1
        at = begin + HEADER + _POST_HEADER
        if version == _V2:
            extra = number(data, at, 2)  # the size of extra data, with these two bytes
            if extra < 2 or extra > stop - at:
                return _CUT, found
            at += extra
        if at >= stop:
            return _CUT, found
        taken, column_count = packed(data, at)
        at += taken
        bitmap_bytes = (len(widths) + 7) >> 3
        images = 2 if type_ == version + _UPDATE else 1  # of each row: an update has the old and the new one
        if at + bitmap_bytes * images > stop or column_count != len(widths):
            return _WIDTH, found
        first = _count_columns(data, at, optional)  # of the columns that the first image of each row has
        second = _count_columns(data, at + bitmap_bytes, optional) if images == 2 else first
        if first < 0 or second < 0:
            return _IMAGE, found
        bitmaps = at
        at += bitmap_bytes * images
        if progress[1]:  # an earlier call has found the event's first images: go on after them
            at = progress[1]
        while at < stop:
            if found + images > len(event_of):  # both images of an update are found in the same call
                progress[1] = at
                return _FULL, found
            for image in range(images):
                image_columns = second if image else first  # the number of columns that this image has
                bitmap = -1 if image_columns == len(widths) else bitmaps + image * bitmap_bytes  # −1: it has all
                at = walk_row(data, at, stop, 0, image_columns, bitmap, widths, start, size, found)
                if at < 0:
                    return _CUT, found
                event_of[found] = event
                within[found] = progress[2]
                if images == 2:
                    kind[found] = _AFTER if image else _BEFORE
                else:
                    kind[found] = _INSERT if type_ == version else _DELETE
                found += 1
                progress[2] += 1
        progress[0] += 1
        progress[1] = progress[2] = 0  # the next event is walked from its beginning
    return _DONE, found
