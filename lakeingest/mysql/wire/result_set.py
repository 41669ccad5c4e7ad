"""Decodes a result set of the binary protocol, from the first row packet on, to Arrow batches. Pure: no socket.

Source: MySQL's protocol documentation, "COM_STMT_EXECUTE Response".
"""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import ProtocolBroken, SchemaChanged, UnsupportedValue
from lakeingest.mysql.wire.buffer import Buffer
from lakeingest.mysql.wire.collations import charset_of
from lakeingest.mysql.wire.encodings import Encoding, FieldType, Mismatch, Sent, result_encoding
from lakeingest.mysql.wire.events import Cursor, Damaged
from lakeingest.mysql.wire.framing import DAMAGES, Status, payload_at
from lakeingest.mysql.wire.refusals import no_day, unholdable
from lakeingest.mysql.wire.temporals import NotADay
from lakeingest.mysql.wire.values import Values
from lakeingest.mysql.wire.walk import walk_result
from lakeingest.rows import table_schema

_BUFFER_BYTES = 2 << 20
_ROWS = 8_192  # of a batch
_UNSIGNED = 32  # the flag of an unsigned column in a column definition
_DEFINITION_STRINGS = 6  # catalog, schema, two names of the table, two names of the column


def read_definition(payload: bytes) -> Sent:
    """Read a column definition packet. Raises Damaged for an unknown type, UnknownCharset for an unknown charset."""
    body = Cursor(payload)
    for _ in range(_DEFINITION_STRINGS):
        body.take(body.packed())
    body.take(1)  # the length of the next fields
    collation, length, number, flags, decimals = struct.unpack("<HIBHB", body.take(10))
    try:
        type_ = FieldType(number)
    except ValueError as error:
        raise Damaged(f"a column of the unknown type {number}") from error
    unsigned = bool(flags & _UNSIGNED)
    # the length of a decimal is that of its longest text: with a point if it has decimals, with a sign if it is signed
    point_and_sign = (1 if decimals else 0) + (0 if unsigned else 1)
    precision = length - point_and_sign if type_ is FieldType.NEWDECIMAL else 0
    return Sent(type_, unsigned=unsigned, precision=precision, scale=decimals, charset=charset_of(collation))


class ResultSet:
    """Decodes the bytes of the rows, as they arrive, to batches of the table's columns.

    `definitions` are the columns as the server describes them, `sequence` is the number of the first row's packet.
    Raises SchemaChanged if the definitions do not match `schema`.
    """

    def __init__(self, schema: TableSchema, definitions: Sequence[Sent], sequence: int) -> None:
        self._schema = schema
        self._types = table_schema(schema)
        try:
            self._encodings = [
                result_encoding(column, sent, is_key=column.name in schema.key)
                for column, sent in zip(schema.columns, definitions, strict=True)
            ]
        except Mismatch as error:
            raise SchemaChanged(f"{schema.table}: {error}; copy the table again") from error
        self._widths = np.array([encoding.width for encoding in self._encodings], np.int64)
        self._start = np.empty((len(self._widths), _ROWS), np.int32)
        self._size = np.empty_like(self._start)
        self._rows = 0  # the number of rows whose values are in `_start` and `_size`
        self._buffer = Buffer(_BUFFER_BYTES)
        self._sequence = sequence
        self.nulled = 0  # the number of values that are NULL only because the user chose so
        self.is_done = False
        self.error: bytes | None = None  # the payload of the ERR packet, if the server sent one

    def free_space(self) -> memoryview:
        """The free space for the next bytes from the server."""
        return self._buffer.free_space()

    def take(self, count: int) -> Iterator[pa.RecordBatch]:
        """Use the next `count` bytes, which are in `free_space`; yield the batches that they complete.

        Raises ProtocolBroken for bytes that break the protocol, UnsupportedValue for a value that cannot be copied.
        """
        buffer = self._buffer
        buffer.end += count
        while not self.is_done:
            status, buffer.at, self._sequence, self._rows = walk_result(
                buffer.data, buffer.at, buffer.end, self._sequence, self._widths, self._start, self._size, self._rows
            )
            if status in DAMAGES:
                raise ProtocolBroken(f"{self._schema.table}: the source sends {DAMAGES[Status(status)]}")
            self.is_done = status in {Status.EOF, Status.ERROR}
            if status == Status.ERROR:
                self.error = payload_at(buffer.data, buffer.at)
            # at MORE (bytes are missing), the batch waits for more rows; but not if the buffer is full, because then
            # `_make_room` moves the bytes of the rows
            if self._rows and (status != Status.MORE or buffer.is_full):
                yield self._batch()
            if status == Status.MORE:
                self._make_room()
                return

    def _make_room(self) -> None:
        """Make room for more bytes if the buffer is full. Raises ProtocolBroken if a packet is too large for it."""
        try:
            if self._buffer.is_full:
                self._buffer.make_room()
        except Damaged as damage:
            raise ProtocolBroken(f"{self._schema.table}: the source sends {damage}") from damage

    def _batch(self) -> pa.RecordBatch:
        """The batch of the rows whose values the walk has found; the next walk begins with no rows."""
        row_count = self._rows
        self._rows = 0
        arrays = [
            self._array(encoding, Values(self._buffer.data, start[:row_count], size[:row_count]))
            for encoding, start, size in zip(self._encodings, self._start, self._size, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._types)

    def _array(self, encoding: Encoding, values: Values) -> pa.Array:
        """The Arrow column of these values. Adds to `nulled` its values that are NULL only because the user chose so.

        Raises UnsupportedValue, with the column's name, if a value cannot be copied.
        """
        column = encoding.column
        try:
            array = encoding.array(values)
        except NotADay as error:
            raise UnsupportedValue(f"{self._schema.table}: {no_day(column, str(error))}") from error
        except ValueError as error:
            raise UnsupportedValue(f"{self._schema.table}: {unholdable(column, error)}") from error
        if encoding.nulls_dates:
            self.nulled += int(encoding.nulled_rows(values, array).sum())
        return array
