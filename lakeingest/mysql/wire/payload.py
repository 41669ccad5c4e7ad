"""TRANSACTION_PAYLOAD events: the events of a whole transaction, compressed.

Source: MySQL's source documentation, "Transaction_payload_event".
"""

import enum
from typing import Any

import pyarrow as pa

from lakeingest.mysql.wire.events import Damaged, Event


class _Field(enum.IntEnum):
    """The fields of the event's own header."""

    END = 0  # the events follow
    SIZE = 1
    COMPRESSION = 2
    UNCOMPRESSED_SIZE = 3


_ZSTD, _PLAIN = 0, 255


def open_payload(event: Event) -> Any:
    """A stream of the bytes of the events in a TRANSACTION_PAYLOAD event.

    Raises Damaged for a wrong size or an unknown compression.
    """
    body = event.body
    fields: dict[int, int] = {}
    while (field := body.packed()) != _Field.END:
        body.packed()  # the size of the next number; the number's first byte tells the size, too
        fields[field] = body.packed()
    size, compression = fields.get(_Field.SIZE), fields.get(_Field.COMPRESSION)
    if size != body.left or compression not in {_ZSTD, _PLAIN}:
        raise Damaged(f"a TRANSACTION_PAYLOAD event of {body.left} bytes, not {size}, with compression {compression}")
    # the rest of the event, as a view and not a copy, because it may be large
    payload = pa.BufferReader(pa.py_buffer(event.data).slice(len(event.data) - body.left))
    return pa.CompressedInputStream(payload, "zstd") if compression == _ZSTD else payload


def read_payload(stream: Any, room: memoryview) -> int:
    """Read the next bytes of a stream of events into `room`. Returns the number of bytes read, 0 at the stream's end.

    Raises Damaged for bytes that cannot be unpacked.
    """
    try:
        return int(stream.readinto(room))
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"a TRANSACTION_PAYLOAD event that cannot be unpacked: {error}") from error
