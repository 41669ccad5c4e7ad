"""Reads the rows of a SELECT into Arrow batches. The binary result of a prepared statement bypasses the driver.

Source: MySQL's protocol documentation, "COM_STMT_PREPARE" and "COM_STMT_EXECUTE". The driver does the handshake,
authentication, TLS, and all other queries of the connection.
"""

import io
import ssl
import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND, CR

from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.mysql.connection import query
from lakeingest.mysql.packets import READ_SECONDS, surprises

_PREPARED = struct.Struct("<xIHHxH")
_EXECUTE = struct.Struct("<IBI")
_NO_CURSOR, _ONCE = 0, 1
_LITTLE_BYTES, _PAUSE_SECONDS = 128 << 10, 0.002  # after a read of fewer bytes, `Receiver` pauses for so many seconds
_PACE_BYTES = 1 << 20  # a server that lets us wait for more than READ_SECONDS for so many bytes is too slow


def stream_rows(
    connection: pymysql.Connection, schema: TableSchema, sql: str, nulled: Counter[TableId] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `sql`, which selects the columns of `schema` in order, in batches.

    At the end, the number of values that are NULL only because the user chose so is added to `nulled`. The connection
    can be used again after the iterator has ended without an error. Raises SchemaChanged if the columns of the result
    have other types, UnsupportedValue for a value that Arrow cannot hold exactly, and the driver's errors.
    """
    from lakeingest.mysql.wire.result_set import ResultSet, read_definition  # numba: it takes a second to import

    # each text is sent in its column's charset, because a conversion would replace codes without Unicode by `?`
    query(connection, "SET character_set_results = NULL")
    wire: Any = connection  # the driver has no public way to send a command or to read a packet
    with surprises("an answer to a prepared statement"):
        wire._execute_command(COMMAND.COM_STMT_PREPARE, sql)  # noqa: SLF001
        statement, columns, parameters, _ = _PREPARED.unpack_from(wire._read_packet().get_all_data())  # noqa: SLF001
        # skip these definitions: the server sends them again with the result
        _definitions(wire, parameters)
        _definitions(wire, columns)
        wire._execute_command(COMMAND.COM_STMT_EXECUTE, _EXECUTE.pack(statement, _NO_CURSOR, _ONCE))  # noqa: SLF001
        wire._read_packet()  # noqa: SLF001 - it has only the number of columns
        definitions = [read_definition(packet) for packet in _definitions(wire, columns)]
    result = ResultSet(schema, definitions, wire._next_seq_id)  # noqa: SLF001
    receiver = Receiver(connection)
    while not result.is_done:
        yield from result.take(receiver.receive(result.free_space()))
    if result.error is not None:
        pymysql.err.raise_mysql_exception(result.error)
    if nulled is not None:
        nulled[schema.table] += result.nulled
    wire._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", statement))  # noqa: SLF001 - it has no response
    query(connection, "SET character_set_results = utf8mb4")


class Receiver:
    """Receives the bytes that the server sends after the last packet that the driver has read.

    After a short read it pauses for a moment, but not with TLS, where every read is short. Without the pause, a server
    that is slower than the reader would wake the reader for every few rows, which costs both sides more than the pause.

    A server that sends too slowly is given up: the waits for each MiB take at most READ_SECONDS together.
    """

    def __init__(self, connection: pymysql.Connection) -> None:
        wire: Any = connection
        self._buffered, self._socket = wire._rfile, wire._sock  # noqa: SLF001
        self._is_drained = False  # whether the bytes in the driver's buffer have been received: they come first
        self._pauses = False  # whether the last read was short, so that a pause comes before the next read
        # with TLS no read counts as short
        self._short_read_bytes = 0 if isinstance(self._socket, ssl.SSLSocket) else _LITTLE_BYTES
        self._bytes, self._waited = 0, 0.0  # the bytes received, and the seconds waited, since the last full MiB

    def receive(self, buffer: memoryview) -> int:
        """Receive bytes into `buffer`; return their number.

        Raises the driver's OperationalError if the connection is broken or closed, or if the server is too slow.
        """
        began = time.monotonic()
        try:
            if not self._is_drained:
                # at most the size of the driver's buffer, because for more bytes the call would wait for the server
                count = self._buffered.readinto1(buffer[: io.DEFAULT_BUFFER_SIZE])
                self._is_drained = True
            else:
                if self._pauses:
                    time.sleep(_PAUSE_SECONDS)
                count = self._socket.recv_into(buffer)
                is_buffer_full = count == len(buffer)
                self._pauses = count < self._short_read_bytes and not is_buffer_full
        except OSError as error:
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"the connection broke: {error}") from error
        if not count:
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the server closed the connection")
        self._count_received(count, time.monotonic() - began)
        return int(count)

    def _count_received(self, count: int, seconds: float) -> None:
        """Count received bytes and the wait for them. Raises the driver's OperationalError for a slow server."""
        self._bytes += count
        self._waited += seconds
        if self._bytes >= _PACE_BYTES:
            self._bytes, self._waited = 0, 0.0
        elif self._waited > READ_SECONDS:
            slow = f"the server sent {self._bytes} bytes in {READ_SECONDS} seconds"
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, slow)


def _definitions(wire: Any, count: int) -> list[bytes]:
    """Read and return `count` packets that describe columns or parameters. The EOF packet after them is read, too."""
    packets = [bytes(wire._read_packet().get_all_data()) for _ in range(count)]  # noqa: SLF001
    if count:
        wire._read_packet()  # noqa: SLF001
    return packets
