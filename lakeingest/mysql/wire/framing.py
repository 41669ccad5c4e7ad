"""Finds packets and events in the bytes that a server sent, and proves that each one is complete and in order.

Sources: MySQL's protocol documentation, "MySQL Packets" (a payload of 16 MB or more comes in several packets) and
"Binlog Event Header".
"""

import enum

import numpy as np

from lakeingest.mysql.wire.compiled import int64, kernel, load64, number, step
from lakeingest.mysql.wire.events import Damaged, Type


class Status(enum.IntEnum):
    """The reason why a kernel returned."""

    MORE = 0  # more bytes are needed: the received bytes end within a packet or event, or exactly at its end
    FULL = 1  # of a kernel: the arrays are full; of a step that reads one packet or event: it is valid
    EOF = 2  # an EOF packet follows
    ERROR = 3  # an ERR packet follows
    LOOK = 4  # the last event is a FORMAT_DESCRIPTION event: it says whether the events after it have checksums
    DISORDERED = 5  # a packet whose number is not the expected one
    MALFORMED = 6  # a packet of unknown form
    SHORT = 7  # an event that is shorter than its header
    CUT = 8  # an event whose size is not the size in its header
    CHECKSUM = 9  # an event whose checksum is wrong


DAMAGES = {
    Status.DISORDERED: "a packet out of order",
    Status.MALFORMED: "a packet of unknown form",
    Status.SHORT: "an event that is shorter than its header",
    Status.CUT: "an event whose size is not the size in its header",
    Status.CHECKSUM: "an event whose checksum is wrong",
}

# numba takes only plain numbers of a module as constants
_MORE, _FULL, _EOF, _ERROR, _LOOK, _DISORDERED, _MALFORMED, _SHORT, _CUT, _CHECKSUM = (int(status) for status in Status)
_FORMAT_DESCRIPTION = int(Type.FORMAT_DESCRIPTION)

PACKET_HEADER = 4  # three bytes of size, one of number
_PACKET_MAX = 0xFFFFFF  # bytes of a payload; a payload of this size continues in the next packet
_EOF_BYTE, _ERROR_BYTE = 0xFE, 0xFF
_EOF_SIZE_MAX = 8  # a longer payload with the same first byte is no EOF
HEADER = 19  # bytes of an event's header
_TYPE, _SIZE = 4, 9  # offsets in this header
CHECKSUM_BYTES = 4
_POLYNOMIAL = 0xEDB88320  # of CRC-32


def _tables() -> np.ndarray:
    """In row n, the effect of each byte on the CRC-32 when n bytes follow it ("slicing by 8")."""
    table = np.zeros((8, 256), np.int64)
    table[0] = np.arange(256)
    for _ in range(8):  # for each bit of the byte, the lowest first
        table[0] = np.where(table[0] & 1, table[0] >> 1 ^ _POLYNOMIAL, table[0] >> 1)
    for n in range(1, 8):  # one more zero byte follows
        table[n] = table[n - 1] >> 8 ^ table[0, table[n - 1] & 0xFF]
    return table


_CRC = _tables()


@step
def crc32(data: np.ndarray, at: int, end: int) -> int:
    """The CRC-32 of the bytes from `at` up to `end`, as zlib computes it."""
    value = int64(0xFFFFFFFF)
    while end - at >= 8:  # eight bytes at a time: seven bytes of them follow the first one, and so on
        word = load64(data, at) ^ value
        value = (
            _CRC[7, word & 0xFF]
            ^ _CRC[6, word >> 8 & 0xFF]
            ^ _CRC[5, word >> 16 & 0xFF]
            ^ _CRC[4, word >> 24 & 0xFF]
            ^ _CRC[3, word >> 32 & 0xFF]
            ^ _CRC[2, word >> 40 & 0xFF]
            ^ _CRC[1, word >> 48 & 0xFF]
            ^ _CRC[0, word >> 56 & 0xFF]
        )
        at += 8
    while at < end:
        value = value >> 8 ^ _CRC[0, (value ^ data[at]) & 0xFF]
        at += 1
    return value ^ 0xFFFFFFFF


@step
def next_packet(data: np.ndarray, at: int, end: int, sequence: int) -> tuple[int, int, int, int, int]:
    """Find the next payload, from `at` on. `sequence` is the number that its first packet must have.

    Returns a status (FULL if the payload is complete), the payload's begin and end, the begin of the packet after it,
    and the number of its packets. A payload in several packets is made contiguous: its parts are moved over the packet
    headers between them. So this step must not read a complete payload a second time.
    """
    start = at + PACKET_HEADER
    size = int64(_PACKET_MAX)  # lets the loop begin: after a packet of this size the payload goes on
    packets = 0
    while size == _PACKET_MAX:
        if end - at < PACKET_HEADER:
            return _MORE, start, start, at, packets
        size = number(data, at, 3)
        if data[at + 3] != (sequence + packets) & 0xFF:
            return _DISORDERED, start, start, at, packets
        if end - at - PACKET_HEADER < size:
            return _MORE, start, start, at, packets
        at += PACKET_HEADER + size
        packets += 1
    stop = start + size  # of a payload in one packet
    if packets > 1:  # move the parts together
        stop = start + _PACKET_MAX  # the end of the parts that are contiguous
        header = stop  # the begin of the next packet
        for _ in range(packets - 1):
            size = number(data, header, 3)
            for i in range(size):  # not `copy`, which would overwrite the next header
                data[stop + i] = data[header + PACKET_HEADER + i]
            stop += size
            header += PACKET_HEADER + size
    return _FULL, start, stop, at, packets


@step
def payload_kind(data: np.ndarray, start: int, stop: int) -> int:
    """The status for a payload: EOF, ERROR, FULL (valid) for an event or a row, or MALFORMED.

    Events and rows begin with a zero byte.
    """
    if start == stop:
        return _MALFORMED
    if data[start] == _EOF_BYTE and stop - start <= _EOF_SIZE_MAX:
        return _EOF
    if data[start] == _ERROR_BYTE:
        return _ERROR
    return _FULL if data[start] == 0 else _MALFORMED


@kernel
def frame_events(
    data: np.ndarray, at: int, end: int, sequence: int, checksums: bool, offset: np.ndarray, size: np.ndarray
) -> tuple[int, int, int, int]:
    """Find the complete events, each the payload of a packet, and check their checksums if `checksums`.

    Fills `offset` with the begins of the events' headers, and `size` with the events' sizes, header and checksum
    included. Returns a status, the begin of the next packet, its number, and the number of events found.

    After a FORMAT_DESCRIPTION event the kernel returns with the status LOOK, because that event says whether the next
    events have checksums. The event's own checksum is not checked here.
    """
    count = 0  # of events found
    while count < len(offset):
        status, start, stop, next_at, packets = next_packet(data, at, end, sequence)
        if status == _FULL:
            status = payload_kind(data, start, stop)
        if status == _FULL:
            status = event_status(data, start + 1, stop, checksums)
        if status != _FULL and status != _LOOK:
            return status, at, sequence, count
        offset[count], size[count] = start + 1, stop - start - 1  # without the zero byte before the event
        count += 1
        at, sequence = next_at, sequence + packets
        if status == _LOOK:
            return _LOOK, at, sequence, count
    return _FULL, at, sequence, count


@kernel
def frame_bare_events(
    data: np.ndarray, at: int, end: int, offset: np.ndarray, size: np.ndarray
) -> tuple[int, int, int]:
    """Find the complete events in bytes without packets and checksums, as a TRANSACTION_PAYLOAD event has them.

    Fills `offset` and `size`. Returns a status, the offset behind the last event found, and the number of events found.
    """
    count = 0  # of events found
    while count < len(offset):
        if end - at < HEADER:
            return _MORE, at, count
        declared = number(data, at + _SIZE, 4)
        if declared < HEADER:
            return _SHORT, at, count
        if end - at < declared:
            return _MORE, at, count
        offset[count], size[count] = at, declared
        count += 1
        at += declared
    return _FULL, at, count


@step
def event_status(data: np.ndarray, start: int, stop: int, checksums: bool) -> int:
    """The status for an event: LOOK for a FORMAT_DESCRIPTION event, FULL if any other is valid, else its damage."""
    if stop - start < HEADER + (CHECKSUM_BYTES if checksums else 0):
        return _SHORT
    if number(data, start + _SIZE, 4) != stop - start:
        return _CUT
    if data[start + _TYPE] == _FORMAT_DESCRIPTION:  # it says itself whether it has a checksum
        return _LOOK
    body = stop - CHECKSUM_BYTES
    if checksums and crc32(data, start, body) != number(data, body, 4):
        return _CHECKSUM
    return _FULL


def payload_at(data: np.ndarray, at: int) -> bytes:
    """The payload of the complete packet that begins at `at`."""
    size = int.from_bytes(data[at : at + 3].tobytes(), "little")
    return bytes(data[at + PACKET_HEADER : at + PACKET_HEADER + size].tobytes())


def require_undamaged(status: int) -> None:
    """Raise Damaged for a status in DAMAGES."""
    if status in DAMAGES:
        raise Damaged(DAMAGES[Status(status)])
