"""Decodes row events to row halves: the walk through the write, update and delete events of a table.

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
    """Row halves of a table: their columns, and for each half its kind, its event, and its number within the event."""

    table: int
    columns: list[pa.Array]
    kind: np.ndarray
    event: np.ndarray
    within: np.ndarray


class RowReader:
    """Decodes row events. `add` numbers the tables: a table has a number for each description by a TABLE_MAP event."""

    def __init__(self) -> None:
        self._tables: list[tuple[TableSchema, TableMap]] = []
        self._known: list[TableMap] = []  # by table: its TABLE_MAP event as it was sent
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

    def add(self, schema: TableSchema, sent: TableMap, where: str) -> int:
        """The number of the table as the TABLE_MAP event `sent` describes it; `where` completes messages.

        Raises SchemaChanged if the event's columns are not the schema's.
        """
        for number_, ((known_schema, _), earlier) in enumerate(zip(self._tables, self._known, strict=True)):
            if known_schema is schema and replace(earlier, id=sent.id) == sent:
                return number_
        where = f"{schema.table} {where}"
        table_map, places = bound(sent, schema, where)
        try:
            encodings = [
                (place, of_event(column, table_map.columns[place], is_key=column.name in schema.key))
                for column, place in zip(schema.columns, places, strict=True)
            ]
        except Mismatch as error:
            raise SchemaChanged(f"{where}: {error}; copy the table again") from error
        self._tables.append((schema, table_map))
        self._known.append(sent)
        self._encodings.append(encodings)
        self._widths.append(np.array([event_width(column) for column in table_map.columns], np.int64))
        self._optional.append(np.array([name in schema.skipped for name in table_map.names], np.uint8))
        return len(self._tables) - 1

    def read(self, data: np.ndarray, rows: np.ndarray, file: str) -> Iterator[Halves]:
        """Yield the halves of row events (`follow.Row`), table by table, in binlog order within a table.

        Raises UnsupportedEvent if a row image lacks a copied column or the bytes are damaged, UnsupportedValue for a
        value that cannot be copied exactly. Both name the place.
        """
        for table in np.unique(rows[:, Row.TABLE]).tolist():
            chosen = np.flatnonzero(rows[:, Row.TABLE] == table)
            with concerning(self.schema(table).table):
                yield from self._read(data, rows, chosen, table, file)

    def _read(self, data: np.ndarray, rows: np.ndarray, chosen: np.ndarray, table: int, file: str) -> Iterator[Halves]:
        """Yield the halves of the chosen row events, which are all of one table."""
        widths = self._widths[table]
        capacity = min(_CELLS // len(widths), _ROWS_MAX)
        shape = (len(widths), capacity)
        start = self._start[: shape[0] * capacity].reshape(shape)
        size = self._size[: shape[0] * capacity].reshape(shape)
        place = np.zeros(3, np.int64)
        status = _FULL
        while status == _FULL:
            status, count = walk_rows(
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
            if count:
                event = self._event[:count].copy()
                columns = []
                for place_, encoding in self._encodings[table]:
                    values = Values(data, start[place_, :count], size[place_, :count])
                    columns.append(self._array(encoding, values, table, f"{file}:{{}}", rows, event))
                    if encoding.may_null:
                        nulled = encoding.nulled(values, columns[-1]) & np.isin(self._kind[:count], _NEW)
                        self.nulled[self.schema(table).table] += int(nulled.sum())
                yield Halves(table, columns, self._kind[:count].copy(), event, self._within[:count].copy())

    def _array(
        self, encoding: Encoding, values: Values, table: int, where: str, rows: np.ndarray, event: np.ndarray
    ) -> pa.Array:
        """The column of these values. Raises UnsupportedValue, with the event's place, if one cannot be copied."""
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
        """The error for a row event that the walk could not read."""
        schema, table_map = self._tables[table]
        where = f"{schema.table} at {at}"
        if status is _Status.IMAGE:
            return UnsupportedEvent(f"{where}: {not_full(schema, missing(event.tobytes(), table_map.names))}")
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

    Returns a status and the number of halves. `place` says where the walk goes on, and is updated: the index of the
    event in `chosen`, the offset in the buffer (0: the event's beginning), and the number of the event's halves that
    were found already. A row image may lack columns that are `optional`.
    """
    halves = 0
    while place[0] < len(chosen):
        event = chosen[place[0]]
        begin, stop = rows[event, _START], rows[event, _STOP]
        type_ = int64(data[begin + 4])
        version = _V2 if type_ >= _V2 else _V1
        at = begin + HEADER + _POST_HEADER
        if version == _V2:
            extra = number(data, at, 2)  # including these two bytes
            if extra < 2 or extra > stop - at:
                return _CUT, halves
            at += extra
        if at >= stop:
            return _CUT, halves
        taken, columns = packed(data, at)
        at += taken
        bitmap = (len(widths) + 7) >> 3
        images = 2 if type_ == version + _UPDATE else 1
        if at + bitmap * images > stop or columns != len(widths):
            return _WIDTH, halves
        first = _present(data, at, optional)
        second = _present(data, at + bitmap, optional) if images == 2 else first
        if first < 0 or second < 0:
            return _IMAGE, halves
        present = at
        at += bitmap * images
        if place[1]:
            at = place[1]
        while at < stop:
            if halves + images > len(event_of):
                place[1] = at
                return _FULL, halves
            for image in range(images):
                columns = second if image else first
                present_at = -1 if columns == len(widths) else present + image * bitmap
                at = walk_row(data, at, stop, 0, columns, present_at, widths, start, size, halves)
                if at < 0:
                    return _CUT, halves
                event_of[halves] = event
                within[halves] = place[2]
                if images == 2:
                    kind[halves] = _AFTER if image else _BEFORE
                else:
                    kind[halves] = _INSERT if type_ == version else _DELETE
                halves += 1
                place[2] += 1
        place[0] += 1
        place[1] = place[2] = 0
    return _DONE, halves
