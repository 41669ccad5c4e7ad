import random
import zlib

import numpy as np
import pytest

from lakeingest.mysql.wire import framing
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.framing import Status, frame_bare_events, frame_events, payload_at
from tests.mysql.wire.steps import array, entry
from tests.mysql.wire.stream import PACKET_MAX, event, format_body, packets

crc32, next_packet = entry(framing.crc32), entry(framing.next_packet)
event_status, payload_kind = entry(framing.event_status), entry(framing.payload_kind)


def test_crc32_equals_that_of_zlib() -> None:
    """For any bytes at any offset."""
    data = random.Random(1).randbytes(5000)
    for at in range(16):
        for end in (*range(at, at + 40), 4999, 5000):
            assert crc32(array(data), at, end) == zlib.crc32(data[at:end])
    for byte in (0, 255):
        assert crc32(array(bytes([byte]) * 1000), 0, 1000) == zlib.crc32(bytes([byte]) * 1000)


@pytest.mark.parametrize(
    "size",
    [0, 1, 300, PACKET_MAX - 1, PACKET_MAX, PACKET_MAX + 1, PACKET_MAX + 7, 2 * PACKET_MAX, 2 * PACKET_MAX + 100],
)
def test_a_payload_of_any_size_is_found_whole(size: int) -> None:
    """A payload of 16 MB or more is joined from two or three packets, the last of which may be empty."""
    payload = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    count = size // PACKET_MAX + 1
    data = array(packets([payload, b"after"], first=254))
    end = len(data) - SLACK
    for short, expected in ((9, Status.FULL), (10, Status.MORE)):  # bytes that are still to come, the second's are 9
        assert next_packet(data.copy(), 0, end - short, 254)[0] == expected
    status, start, stop, after, used = next_packet(data, 0, end, 254)
    assert (status, used, data[start:stop].tobytes() == payload) == (Status.FULL, count, True)
    status, start, stop, _, used = next_packet(data, after, end, 254 + count)
    assert (status, used, data[start:stop].tobytes()) == (Status.FULL, 1, b"after")


def test_a_packet_that_is_cut_waits_for_more_bytes() -> None:
    """In its header or in its payload."""
    data = array(packets([b"abcdef"]))
    for end in range(10):
        assert next_packet(data, 0, end, 1)[0] == Status.MORE
    assert next_packet(data, 0, 10, 1)[0] == Status.FULL


@pytest.mark.parametrize(("number", "status"), [(1, Status.FULL), (257, Status.FULL), (2, Status.DISORDERED)])
def test_packets_are_numbered_up_to_255(number: int, status: Status) -> None:
    """Then from 0 again; another number is an error."""
    assert next_packet(array(packets([b"a"])), 0, 5, number)[0] == status


def test_the_second_packet_of_a_payload_has_the_next_number() -> None:
    """So a missing part is detected."""
    data = packets([bytes(PACKET_MAX), b""])
    wrong = array(packets([bytes(PACKET_MAX) + b"x"])[: PACKET_MAX + 4] + b"\1\0\0\7x")
    assert next_packet(wrong, 0, len(wrong) - SLACK, 1)[0] == Status.DISORDERED
    assert next_packet(array(data), 0, len(data), 1)[0] == Status.FULL


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"", Status.MALFORMED),
        (b"\0", Status.FULL),
        (b"\0row", Status.FULL),
        (b"\xfe\0\0\2\0", Status.EOF),
        (b"\xfe", Status.EOF),
        (b"\xfe" + bytes(8), Status.MALFORMED),
        (b"\xff\1\1", Status.ERROR),
        (b"\1abc", Status.MALFORMED),
    ],
)
def test_the_kind_of_a_payload_is_known_by_its_beginning(payload: bytes, kind: Status) -> None:
    """A row or event, an EOF, an error, or malformed."""
    assert payload_kind(array(payload), 0, len(payload)) == kind


def found_in(data: bytes, room: int = 10, *, checksums: bool = True) -> tuple[int, list[bytes]]:
    """The status, and the events that were found."""
    offset, size = np.empty(room, np.int64), np.empty(room, np.int64)
    bytes_ = array(data)
    status, _, _, found = frame_events(bytes_, 0, len(data), 1, checksums, offset, size)
    return status, [bytes_[at : at + count].tobytes() for at, count in zip(offset[:found], size[:found], strict=True)]


def test_events_are_found_until_the_arrays_are_full() -> None:
    """In order."""
    events = [event(16, bytes(i), 100) for i in range(5)]
    data = packets([b"\0" + one for one in events])
    assert found_in(data) == (Status.MORE, events)
    assert found_in(data, 3) == (Status.FULL, events[:3])
    assert found_in(data[:-1]) == (Status.MORE, events[:-1])


def test_the_search_stops_after_a_format_description_event() -> None:
    """It says how the next events are encoded; its own checksum is not checked here."""
    events = [event(15, format_body(0), 100)[:-1] + b"?", event(16, b"", 100, checksum=False)]
    assert found_in(packets([b"\0" + one for one in events])) == (Status.LOOK, events[:1])
    assert found_in(packets([b"\0" + events[1]]), checksums=False) == (Status.MORE, events[1:])


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (event(16, bytes(8), 1), Status.FULL),
        (event(16, bytes(8), 1)[:22], Status.SHORT),
        (event(16, bytes(8), 1) + b"\0", Status.CUT),
        (event(16, bytes(8), 1)[:-1], Status.CUT),
        (event(16, bytes(8), 1)[:-1] + b"\1", Status.CHECKSUM),
        (event(16, bytes(8), 1).replace(b"\x10", b"\x11"), Status.CHECKSUM),
    ],
)
def test_the_size_and_checksum_of_an_event_are_checked(raw: bytes, status: Status) -> None:
    """The status says what is wrong."""
    data = array(raw)
    assert event_status(data, 0, len(raw), True) == status
    assert found_in(packets([b"\0" + raw]))[0] == (Status.MORE if status == Status.FULL else status)


def test_bare_events_are_found_without_packets_and_checksums() -> None:
    """As in a payload event; an event that is cut waits for more bytes."""
    events = [event(16, bytes(i), checksum=False) for i in range(4)]
    data = b"".join(events)
    offset, size = np.empty(3, np.int64), np.empty(3, np.int64)
    assert frame_bare_events(array(data), 0, len(data), offset, size) == (Status.FULL, sum(map(len, events[:3])), 3)
    assert list(zip(offset.tolist(), size.tolist(), strict=True)) == [(0, 19), (19, 20), (39, 21)]
    assert frame_bare_events(array(data), 0, 38, offset, size) == (Status.MORE, 19, 1)
    assert frame_bare_events(array(data), 0, 25, offset, size) == (Status.MORE, 19, 1)
    short = data[:9] + b"\x12\0\0\0" + data[13:]
    assert frame_bare_events(array(short), 0, len(short), offset, size) == (Status.SHORT, 0, 0)


def test_payload_at_returns_the_bytes_after_the_header() -> None:
    """Of a complete packet."""
    assert payload_at(array(packets([b"first", b"second"])), 9) == b"second"
