"""Limits of the driver's packets, in bytes and in time, against servers that are hostile or broken.

A packet's size is known before its bytes are read, so nothing above a limit is stored. Rows of tables and events of the
binlog do not pass here: `row_stream` and `binlog_reader` read them, with the limits of `wire.buffer`.
"""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import CR
from pymysql.protocol import MysqlPacket

READ_SECONDS = 600  # the longest wait for the response to a query, or for the next packet of a long result
ANSWER_SECONDS = 60  # the longest wait for the response to a question that a server answers at once
RESULT_SECONDS = 1800  # for a whole result that is kept in memory, with the wait until it begins
LOGIN_BYTES = 1 << 20  # for everything that a server sends until the session is open
RESULT_BYTES = 1 << 30  # for a result that is kept in memory: the definitions of 100,000 tables take less
PACKET_BYTES = (1 << 30) + (1 << 10)  # the greatest max_allowed_packet, with a reserve; no row and no event is larger
COLUMNS = 0xFFFF  # the most columns of a result: other parts of the protocol count them in two bytes
_PACKET_COST = 256  # bytes that each packet takes in this process beside its content; the limits include these bytes

# The errors of the driver for an answer that breaks the protocol. RuntimeError: the answer asks for a local file.
_PARSING = (
    struct.error,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Surprise(pymysql.err.InternalError):
    """An answer that breaks the protocol; the message completes "the source sends …"."""


@contextmanager
def surprises(what: str) -> Iterator[None]:
    """Raise Surprise if the answer that the block reads breaks the protocol; `what` names the answer."""
    try:
        yield
    except pymysql.err.InternalError as error:
        if isinstance(error, Surprise) or (error.args and isinstance(error.args[0], int)):
            raise  # an error with a number is an error that the server reports
        raise Surprise(f"{what} that breaks the protocol ({error})") from error  # the driver's, without a number
    except _PARSING as error:
        raise Surprise(f"{what} that breaks the protocol ({type(error).__name__}: {str(error)[:100]})") from error


def dumped_events(connection: pymysql.Connection) -> Iterator[bytes]:
    """Yield the events of the binlog that the server sends, with their headers, up to the end of its binlog."""
    wire: Any = connection  # the driver has no public way to read a packet
    while not (packet := wire._read_packet()).is_eof_packet():  # noqa: SLF001
        yield packet.get_all_data()[1:]  # the first byte only says that an event follows


class _Result(MySQLResult):
    """A result with no more columns than a server can send."""

    def _get_descriptions(self) -> None:
        """Read the descriptions of the columns. Raises Surprise, and reads none, for too many columns or for none."""
        count: Any = self.field_count
        if not count or count > COLUMNS:
            raise Surprise(f"a result of {count} columns")
        super()._get_descriptions()  # type: ignore[misc]


class BoundedConnection(pymysql.Connection):
    """PyMySQL's connection with limits: for the whole login, then for each result, or for each packet of a dump."""

    _is_open = False  # whether the login is over
    _size, _seconds, _of_each = LOGIN_BYTES, 0.0, False  # the limits, and whether they are for each packet
    _bytes_left, _deadline = LOGIN_BYTES, 0.0  # what is left of the limits

    def allow(self, size: int, seconds: float, *, of_each: bool = False) -> None:
        """From now on, receive at most `size` bytes in at most `seconds`: in all or, with `of_each`, in each packet."""
        self._size, self._seconds, self._of_each = size, seconds, of_each
        self._bytes_left, self._deadline = size, time.monotonic() + seconds

    def query(self, sql: Any, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - the driver's
        """Run a statement. Raises Surprise if the answer breaks the protocol or a limit."""
        parent: Any = super()
        with surprises("an answer to a statement"):
            return int(parent.query(sql, unbuffered))

    def _execute_command(self, command: int, sql: Any) -> None:
        """Send a command. Once the login is over, each packet of the response has limits of its own."""
        if self._is_open:  # during the login, the limits of the login stay
            self.allow(PACKET_BYTES, READ_SECONDS, of_each=True)
        parent: Any = super()
        parent._execute_command(command, sql)  # noqa: SLF001

    def _read_query_result(self, unbuffered: bool = False) -> Any:  # noqa: FBT001, FBT002 - the driver's
        """Read a response as a `_Result`, with limits. This method replaces the driver's own."""
        # an unbuffered result is not kept in memory: the limits of `_execute_command`, for each packet, suffice
        if self._is_open and not unbuffered:
            self.allow(RESULT_BYTES, RESULT_SECONDS)
        driver: Any = self
        driver._result = None  # noqa: SLF001
        result: Any = _Result(self)
        if unbuffered:
            result.init_unbuffered_query()
        else:
            result.read()
        driver._result = result  # noqa: SLF001
        if result.server_status is not None:
            driver.server_status = result.server_status
        return result.affected_rows

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """Read the next packet within the limits."""
        if self._of_each:  # the limits begin anew
            self.allow(self._size, self._seconds, of_each=True)
        parent: Any = super()
        return parent._read_packet(packet_type)  # noqa: SLF001

    def _read_bytes(self, num_bytes: int) -> bytes:
        """Read `num_bytes` bytes. Raises Surprise, and reads nothing, if so many bytes are above the limit.

        Raises the driver's OperationalError after the deadline, or if the connection breaks. In all three cases the
        connection is closed.
        """
        self._bytes_left -= num_bytes + _PACKET_COST
        driver: Any = self
        if self._bytes_left < 0:
            driver._force_close()  # noqa: SLF001
            raise Surprise(f"more than {self._size} bytes in one answer")
        parts: list[bytes] = []
        missing = num_bytes
        try:
            while missing:
                if time.monotonic() > self._deadline:
                    raise TimeoutError(f"timed out: no whole answer in {self._seconds:.0f} seconds")
                part = driver._rfile.read1(missing)  # noqa: SLF001
                if not part:  # the server has closed the connection
                    break
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            driver._force_close()  # noqa: SLF001
            lost = f"Lost connection to MySQL server during query ({error})"
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, lost) from error
        if missing:
            driver._force_close()  # noqa: SLF001
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
        return b"".join(parts)
