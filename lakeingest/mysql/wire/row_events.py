"""Row events to row halves: the walk through the write, update and delete events of a table.

Source: MySQL's source documentation, "Rows_event" (versions 1 and 2).
"""

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakeingest.core.change import RowKind
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import SchemaChanged, UnsupportedEvent, UnsupportedValue, concerning
from lakeingest.mysql.wire.binding import bound
from lakeingest.mysql.wire.compiled import int64, kernel, number, step
from lakeingest.mysql.wire.encodings import Encoding, Mismatch, event_width, of_event
from lakeingest.mysql.wire.events import Type
from lakeingest.mysql.wire.follow import Row
from lakeingest.mysql.wire.framing import HEADER
from lakeingest.mysql.wire.images import missing, not_full
from lakeingest.mysql.wire.refusals import no_day, unholdable
from lakeingest.mysql.wire.table_map import TableMap
from lakeingest.mysql.wire.temporals import NotADay
from lakeingest.mysql.wire.values import Values
from lakeingest.mysql.wire.walk import packed, walk_row

_CELLS = 1 << 18  # values that the walk finds at most before they are decoded
_ROWS_MAX = 16_384  # halves of a batch


class _Status(enum.IntEnum):
    DONE = 0
    FULL = 1
    WIDTH = 2
    IMAGE = 3
    CUT = 4


_DONE, _FULL, _WIDTH, _IMAGE, _CUT = (int(status) for status in _Status)
_V1, _V2 = int(Type.WRITE_ROWS_V1), int(Type.WRITE_ROWS)
_UPDATE = 1  # the type of an update, counted from the first type of its version
_INSERT, _BEFORE, _AFTER, _DELETE = (int(kind) for kind in RowKind)
_NEW = (_INSERT, _AFTER)
_START, _STOP = int(Row.START), int(Row.STOP)
_POST_HEADER = 8  # table id, flags


@dataclass(frozen=True, slots=True)
class Halves:
    """Row halves of a table: their columns, and by half its kind, its event, and its number within the event."""

    table: int
    columns: list[pa.Array]
    kind: np.ndarray
    event: np.ndarray
    within: np.ndarray


class RowReader:
    """Decodes row events. A table, as a TABLE_MAP event describes it, is known by the number that `add` returns."""

    def __init__(self) -> None:
        self._tables: list[tuple[TableSchema, TableMap]] = []
        self._known: list[TableMap] = []  # by table, as its event was
        self.nulled: Counter[TableId] = Counter()  # values of new rows that are NULL only because the user chose so
        self._encodings: list[list[tuple[int, Encoding]]] = []  # by table: each copied column, with its place
        self._widths: list[np.ndarray] = []  # by table, of all columns
        self._optional: list[np.ndarray] = []  # by table: 1 for skipped columns, which an image may lack
        self._start = np.empty(_CELLS, np.int32)
        self._size = np.empty(_CELLS, np.int32)
        self._event = np.empty(_ROWS_MAX, np.int32)
        self._within = np.empty(_ROWS_MAX, np.int32)
        self._kind = np.empty(_ROWS_MAX, np.int8)

    def schema(self, table: int) -> TableSchema:
        """The schema of a table, by its number."""
        return self._tables[table][0]

    def add(self, schema: TableSchema, found: TableMap, where: str) -> int:
        """The number of the table as `found` describes it.

        SchemaChanged when its columns are not those of the schema.
        """
        for number_, ((known, _), event) in enumerate(zip(self._tables, self._known, strict=True)):
            if known is schema and replace(event, id=found.id) == found:
                return number_
        where, event = f"{schema.table} {where}", found
        found, places = bound(found, schema, where)
        try:
            encodings = [
                (place, of_event(column, found.columns[place], is_key=column.name in schema.key))
                for column, place in zip(schema.columns, places, strict=True)
            ]
        except Mismatch as error:
            raise SchemaChanged(f"{where}: {error}; copy the table again") from error
        self._tables.append((schema, found))
        self._known.append(event)
        self._encodings.append(encodings)
        self._widths.append(np.array([event_width(sent) for sent in found.columns], np.int64))
        self._optional.append(np.array([name in schema.skipped for name in found.names], np.uint8))
        return len(self._tables) - 1

    def read(self, data: np.ndarray, rows: np.ndarray, file: str) -> Iterator[Halves]:
        """The halves of row events (`follow.Row`), table by table, in order within each.

        UnsupportedEvent when a row image lacks a copied column or the bytes are damaged, UnsupportedValue for a value
        that cannot be copied exactly; both name the place.
        """
        for table in np.unique(rows[:, Row.TABLE]).tolist():
            chosen = np.flatnonzero(rows[:, Row.TABLE] == table)
            with concerning(self.schema(table).table):
                yield from self._read(data, rows, chosen, table, file)

    def _read(self, data: np.ndarray, rows: np.ndarray, chosen: np.ndarray, table: int, file: str) -> Iterator[Halves]:
        widths = self._widths[table]
        capacity = min(_CELLS // len(widths), _ROWS_MAX)
        shape = (len(widths), capacity)
        start = self._start[: shape[0] * capacity].reshape(shape)
        size = self._size[: shape[0] * capacity].reshape(shape)
        place = np.zeros(3, np.int64)
        status = _FULL
        while status == _FULL:
            status, found = walk_rows(
                data,
                rows,
                chosen,
                place,
                widths,
                self._optional[table],
                start,
                size,
                self._event[:capacity],
                self._within,
                self._kind,
            )
            if status not in {_DONE, _FULL}:
                event = rows[chosen[place[0]]]
                raise self._refused(
                    _Status(status), table, data[event[Row.START] : event[Row.STOP]], f"{file}:{event[Row.POS]}"
                )
            if found:
                event = self._event[:found].copy()
                columns = []
                for place_, encoding in self._encodings[table]:
                    values = Values(data, start[place_, :found], size[place_, :found])
                    columns.append(self._array(encoding, values, table, f"{file}:{{}}", rows, event))
                    if encoding.may_null:
                        nulled = encoding.nulled(values, columns[-1]) & np.isin(self._kind[:found], _NEW)
                        self.nulled[self.schema(table).table] += int(nulled.sum())
                yield Halves(table, columns, self._kind[:found].copy(), event, self._within[:found].copy())

    def _array(
        self, encoding: Encoding, values: Values, table: int, where: str, rows: np.ndarray, event: np.ndarray
    ) -> pa.Array:
        try:
            return encoding.array(values)
        except NotADay as error:
            at = where.format(rows[event[error.row], Row.POS])
            refused = no_day(encoding.column, str(error))
            raise UnsupportedValue(f"{self.schema(table).table} at {at}: {refused}") from error
        except ValueError as error:
            at = where.format(rows[event[0], Row.POS])
            refused = unholdable(encoding.column, error)
            raise UnsupportedValue(f"{self.schema(table).table} from {at} on: {refused}") from error

    def _refused(self, status: _Status, table: int, event: np.ndarray, at: str) -> UnsupportedEvent:
        schema, found = self._tables[table]
        where = f"{schema.table} at {at}"
        if status is _Status.IMAGE:
            return UnsupportedEvent(f"{where}: {not_full(schema, missing(event.tobytes(), found.names))}")
        what = "has another number of columns than its table" if status is _Status.WIDTH else "ends within a row"
        return UnsupportedEvent(
            f"{where}: the binlog is damaged, a row event {what}; run again; if the error stays, copy the table again"
        )


@step
def _present(data: np.ndarray, at: int, optional: np.ndarray) -> int:
    """The number of columns of the row image whose bitmap is at `at`; −1 if it lacks a column that is not optional."""
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
    place: np.ndarray,
    widths: np.ndarray,
    optional: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    event_of: np.ndarray,
    within: np.ndarray,
    kind: np.ndarray,
) -> tuple[int, int]:
    """Find the values of the row halves of the chosen row events, as many as the arrays have room for.

    Returns a status and the number of halves. `place` says where to go on, and is changed: the event (its index in
    `chosen`), the offset (0: the event's beginning), and the number of its halves that were found before. A row image
    may lack columns that are `optional`.
    """
    found = 0
    while place[0] < len(chosen):
        event = chosen[place[0]]
        begin, stop = rows[event, _START], rows[event, _STOP]
        type_ = int64(data[begin + 4])
        version = _V2 if type_ >= _V2 else _V1
        at = begin + HEADER + _POST_HEADER
        if version == _V2:
            extra = number(data, at, 2)  # including these two bytes
            if extra < 2 or extra > stop - at:
                return _CUT, found
            at += extra
        if at >= stop:
            return _CUT, found
        taken, columns = packed(data, at)
        at += taken
        bitmap = (len(widths) + 7) >> 3
        images = 2 if type_ == version + _UPDATE else 1
        if at + bitmap * images > stop or columns != len(widths):
            return _WIDTH, found
        first = _present(data, at, optional)
        second = _present(data, at + bitmap, optional) if images == 2 else first
        if first < 0 or second < 0:
            return _IMAGE, found
        present = at
        at += bitmap * images
        if place[1]:
            at = place[1]
        while at < stop:
            if found + images > len(event_of):
                place[1] = at
                return _FULL, found
            for image in range(images):
                columns = second if image else first
                present_at = -1 if columns == len(widths) else present + image * bitmap
                at = walk_row(data, at, stop, 0, columns, present_at, widths, start, size, found)
                if at < 0:
                    return _CUT, found
                event_of[found] = event
                within[found] = place[2]
                if images == 2:
                    kind[found] = _AFTER if image else _BEFORE
                else:
                    kind[found] = _INSERT if type_ == version else _DELETE
                found += 1
                place[2] += 1
        place[0] += 1
        place[1] = place[2] = 0
    return _DONE, found
