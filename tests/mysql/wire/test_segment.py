import random

import pyarrow as pa
import pytest

from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import SourceAway, UnsupportedEvent, UnsupportedValue
from lakeingest.mysql.wire import event_buffer, row_events, segment
from lakeingest.mysql.wire.events import Type
from lakeingest.mysql.wire.segment import SegmentDecoder
from lakeingest.rows import TRANSACTIONS, Part, change_schema
from tests.mysql.wire.recorded import Dump, recorded_dump
from tests.mysql.wire.stream import (
    EOF,
    FILE,
    SCHEMA,
    SOURCE,
    START,
    XID,
    Stream,
    event,
    feed,
    format_body,
    gtid_body,
    packets,
    payload_body,
    query_body,
    rows_body,
    table_map_body,
    tagged_gtid_body,
)

DUMP = recorded_dump()


def read(dump: Dump, cut: random.Random | None = None) -> tuple[dict[TableId | None, pa.Table], int]:
    """The rows of each table of a dump, those of the log for None, and in how many batches they came."""
    decoder = SegmentDecoder(dump.segment, dump.segment.start, dump.schemas, gtids=True)
    parts: list[Part] = list(feed(decoder, dump.data, cut))
    assert decoder.is_done
    types: dict[TableId | None, pa.Schema] = {None: TRANSACTIONS}
    types |= {table: change_schema(schema) for table, schema in dump.schemas.items()}
    return {
        table: pa.Table.from_batches([batch for found, batch in parts if found == table], schema)
        for table, schema in types.items()
    }, len(parts)


def test_a_recorded_dump_is_read_whole() -> None:
    """Plain, compressed and tagged transactions in two files, each with its rows and its place."""
    tables, _ = read(DUMP)
    log = tables.pop(None)
    assert set(log["tag"].to_pylist()) == {"", "tag"}
    assert len(set(log["file"].to_pylist())) == 2
    assert log["pos"].to_pylist()[-1] == DUMP.segment.stop.pos
    for table, rows in tables.items():
        assert rows.num_rows >= 20, table
        rows.validate(full=True)
        assert set(rows["_lakeingest_pos"].to_pylist()) <= set(log["pos"].to_pylist())


@pytest.mark.parametrize("seed", range(8))
def test_rows_do_not_depend_on_where_the_bytes_are_cut(seed: int) -> None:
    """For any cuts by the network, the batches are the same."""
    assert read(DUMP, random.Random(seed)) == read(DUMP)


SMALLEST = {
    (segment, "_BUFFER_BYTES"): (700, 1500, 9000),
    (segment, "_EVENTS"): (1, 2, 7),
    (event_buffer, "_ROW_EVENTS"): (1, 2, 5),
    (event_buffer, "_TRANSACTIONS"): (1, 2, 3),
    (row_events, "_VALUES_MAX"): (122, 200, 1000),
    (row_events, "_IMAGES_MAX"): (2, 3, 4),
}


@pytest.mark.parametrize("seed", range(20))
def test_rows_do_not_depend_on_the_size_of_the_buffers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With very small buffers, the rows are the same, in more batches."""
    expected, few = read(DUMP)
    sizes = random.Random(seed)
    chosen = {name: sizes.choice(values) for name, values in SMALLEST.items()}
    if seed < len(SMALLEST):  # one at a time, as small as can be
        only = list(SMALLEST)[seed]
        chosen = {only: SMALLEST[only][0]}
    for (module, name), size in chosen.items():
        monkeypatch.setattr(module, name, size)
    found, many = read(DUMP, sizes)
    assert found == expected
    assert many > few or (segment, "_EVENTS") in chosen


def test_the_buffer_grows_for_a_large_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event, plain or compressed, of many times the buffer's size is read whole."""
    monkeypatch.setattr(segment, "_BUFFER_BYTES", 64)
    stream = Stream()
    for number, count in enumerate((3, 3000, 5), start=1):
        stream.begin(number)
        stream.insert(*range(count))
        stream.commit()
    stream.add(Type.GTID, gtid_body(4))
    stream.add(Type.TRANSACTION_PAYLOAD, payload_body(inner(*range(2000))))
    ids, log = stream.read()
    assert ids == [*range(3), *range(3000), *range(5), *range(2000)]
    assert len(log) == 4


def inner(*ids: int, database: str = "shop") -> bytes:
    """The events of a compressed transaction."""
    events = [
        (Type.QUERY, query_body("BEGIN")),
        (Type.TABLE_MAP, table_map_body(5, database, "orders")),
        (Type.WRITE_ROWS, rows_body(5, *ids)),
        (Type.XID, XID),
    ]
    return b"".join(event(type_, body, checksum=False) for type_, body in events)


@pytest.mark.parametrize("compression", ["zstd", None])
def test_the_rows_of_a_compressed_transaction_are_read(compression: str | None) -> None:
    """Between plain transactions; a payload may also be uncompressed."""
    stream = Stream()
    for number in range(1, 6):
        if number % 2:
            stream.begin(number)
            stream.insert(number)
            stream.commit()
        else:
            stream.add(Type.GTID, gtid_body(number))
            stream.add(Type.TRANSACTION_PAYLOAD, payload_body(inner(number, -number), compression))
    ids, log = stream.read()
    assert ids == [1, 2, -2, 3, 4, -4, 5]
    assert [row["number"] for row in log] == [1, 2, 3, 4, 5]


WHOLE = inner(1)
PIECES = [event(type_, body, checksum=False) for type_, body in ((Type.QUERY, query_body("BEGIN")), (Type.XID, XID))]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (payload_body(WHOLE)[:-1], "bytes, not"),
        (payload_body(WHOLE).replace(b"\x02\x01\x00", b"\x02\x01\x07"), "compression 7"),
        (payload_body(WHOLE, None)[:9] + payload_body(WHOLE, None)[9:].replace(b"BEGIN", b"BEGUN"), "BEGUN"),
        (payload_body(WHOLE[:-1], None), "ends within its transaction"),
        (payload_body(PIECES[0], None), "ends within its transaction"),
        (payload_body(b"", None), "ends within its transaction"),
        (payload_body(b"not compressed at all", "broken"), "cannot be unpacked"),
        (payload_body(WHOLE + WHOLE, None), "where it is not allowed"),
        (payload_body(event(Type.TRANSACTION_PAYLOAD, payload_body(WHOLE), checksum=False), None), "it is not allowed"),
        (payload_body(event(99, b"", checksum=False), None), "unknown type 99"),
        (
            payload_body(WHOLE + event(Type.GTID, gtid_body(9, 1000), checksum=False) + WHOLE, None),
            "where it is not allowed",
        ),
        (payload_body(PIECES[0][:9] + b"\x05\0\0\0" + PIECES[0][13:], None), "shorter than its header"),
    ],
)
def test_an_invalid_payload_is_fatal(body: bytes, message: str) -> None:
    """A payload that is cut, altered, nested or out of order is an error, never fewer rows."""
    stream = Stream()
    stream.add(Type.GTID, gtid_body(1))
    stream.add(Type.TRANSACTION_PAYLOAD, body)
    with pytest.raises(UnsupportedEvent, match=message):
        stream.read()


def test_a_payload_is_allowed_only_after_a_gtid() -> None:
    """Not between transactions, and not after BEGIN."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TRANSACTION_PAYLOAD, payload_body(WHOLE))
    with pytest.raises(UnsupportedEvent, match="after BEGIN, where it is not allowed"):
        stream.read()
    outside = Stream()
    outside.add(Type.TRANSACTION_PAYLOAD, payload_body(WHOLE))
    with pytest.raises(UnsupportedEvent, match="between transactions, where it is not allowed"):
        outside.read()


def test_a_tagged_transaction_has_its_tag() -> None:
    """In the GTID of its rows and in the log."""
    stream = Stream()
    ends = []
    for number, tag in ((1, "load"), (2, "load"), (1, "other")):
        begins = len(stream.raw)
        at = stream.pos
        stream.add(Type.GTID_TAGGED, tagged_gtid_body(number, tag, 1000))
        stream.add(Type.QUERY, query_body("BEGIN"))
        stream.insert(number)
        stream.commit()
        body = tagged_gtid_body(number, tag, stream.pos - at)
        stream.raw[begins] = event(Type.GTID_TAGGED, body, at + len(stream.raw[begins]))
        ends.append(stream.pos)
    ids, log = stream.read()
    assert ids == [1, 2, 1]
    assert [(row["uuid"], row["tag"], row["number"], row["pos"]) for row in log] == [
        (SOURCE, "load", 1, ends[0]),
        (SOURCE, "load", 2, ends[1]),
        (SOURCE, "other", 1, ends[2]),
    ]
    assert stream.read(skip=f"{SOURCE}:load:1-2")[0] == [1]


@pytest.mark.parametrize("skip", ["1-40", "2-40", "1-7:9-30", "3:5:39-60", "40", "41-50", "1-3:6-9:12-39", "70"])
def test_only_transactions_of_the_skip_set_are_skipped(skip: str) -> None:
    """For skip sets with gaps, and for any content of the skipped transactions."""
    stream = Stream()
    skipped = GtidSet.parse(f"{SOURCE}:{skip}")
    for number in range(1, 61):
        stream.begin(number)
        stream.insert(number)
        if Gtid(SOURCE, number) in skipped and number % 3 == 0:
            stream.add(40, bytes(40))  # of an unknown type
        stream.commit()
    ids, log = stream.read(skip=str(skipped))
    left = [number for number in range(1, 61) if Gtid(SOURCE, number) not in skipped]
    assert ids == [row["number"] for row in log] == left


def test_a_zero_uuid_is_not_confused_with_a_tag() -> None:
    """A GTID whose UUID has only zeros keeps its prefix beside tagged ones."""
    stream = Stream()
    at, begins = stream.pos, len(stream.raw)
    stream.add(Type.GTID_TAGGED, tagged_gtid_body(1, "load", 1000))
    stream.add(Type.QUERY, query_body("BEGIN"))
    stream.commit()
    body = tagged_gtid_body(1, "load", stream.pos - at)
    stream.raw[begins] = event(Type.GTID_TAGGED, body, at + len(stream.raw[begins]))
    for number in (1, 2):
        body = gtid_body(number)
        stream.add(Type.GTID, body[:1] + bytes(16) + body[17:])
        stream.add(Type.QUERY, query_body("BEGIN"))
        stream.commit()
    nobody = "00000000-0000-0000-0000-000000000000"
    assert [(row["uuid"], row["tag"], row["number"]) for row in stream.read()[1]] == [
        (SOURCE, "load", 1),
        (nobody, "", 1),
        (nobody, "", 2),
    ]


def test_row_events_of_version_1_are_read() -> None:
    """They lack only the room for extra data."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TABLE_MAP, table_map_body(5, "shop", "orders"))
    for type_ in (Type.WRITE_ROWS_V1, Type.DELETE_ROWS_V1):
        body = rows_body(5, 1, 2)
        stream.add(type_, body[:8] + body[10:])
    stream.commit()
    assert stream.read()[0] == [1, 2, 1, 2]


def test_extra_data_of_a_row_event_are_skipped() -> None:
    """Such as the number of the partition, before the rows."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TABLE_MAP, table_map_body(5, "shop", "orders"))
    body = rows_body(5, 1, 2)
    stream.add(Type.WRITE_ROWS, body[:8] + b"\x07\0\1\2\3\4\5" + body[10:])
    stream.commit()
    assert stream.read()[0] == [1, 2]


@pytest.mark.parametrize("extra", [b"\0\0", b"\1\0", b"\xff\xff"])
def test_extra_data_of_an_impossible_size_are_damage(extra: bytes) -> None:
    """Smaller than the size field itself, or larger than the event."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TABLE_MAP, table_map_body(5, "shop", "orders"))
    body = rows_body(5, 1, 2)
    stream.add(Type.WRITE_ROWS, body[:8] + extra + body[10:])
    stream.commit()
    with pytest.raises(UnsupportedEvent, match="damaged, a row event ends within a row"):
        stream.read()


def test_a_transaction_without_its_length_is_refused() -> None:
    """The decoder needs the place of a transaction at its beginning."""
    stream = Stream()
    stream.raw.append(event(Type.GTID, gtid_body(1), stream.pos + 85))
    with pytest.raises(UnsupportedEvent, match="without its length"):
        stream.read(stop=stream.pos + 85)


@pytest.mark.parametrize("wrong", [-1, 1, -31, 10_000, 1 << 63, (1 << 64) - 1])
def test_a_transaction_of_another_length_is_damage(wrong: int) -> None:
    """It would end elsewhere than its GTID event says, so the place of its rows would be wrong."""
    honest = Stream()
    honest.begin()
    honest.insert(1)
    honest.commit()
    stream = Stream()
    stream.begin(length=(honest.pos - honest.start.pos + wrong) % (1 << 64))
    stream.insert(1)
    stream.commit()
    with pytest.raises(UnsupportedEvent, match="damaged"):
        stream.read()


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1])
def test_a_gtid_number_above_63_bits_is_fatal(number: int) -> None:
    """The server's numbers have 63 bits."""
    stream = Stream()
    stream.begin(number)
    stream.commit()
    with pytest.raises(UnsupportedEvent, match="damaged"):
        stream.read()


def test_an_unknown_collation_is_refused_by_name() -> None:
    """It is not damage, since newer servers may have more collations; and it matters only in a copied table."""
    text = bytes([1, 15, 2, 20, 0, 0]) + bytes([4, 3]) + b"\2id" + bytes([2, 3]) + b"\xfc\xff\x07"
    for database, expected in (("shop", None), ("elsewhere", [])):
        stream = Stream()
        stream.begin()
        stream.add(Type.TABLE_MAP, table_map_body(5, database, "orders").partition(b"\1\3\0\0")[0] + text)
        stream.commit()
        if expected is None:
            with pytest.raises(UnsupportedEvent, match=r"collation 2047 at .*; report it to"):
                stream.read()
        else:
            assert stream.read()[0] == expected


def test_rows_need_a_table_map_in_their_own_transaction() -> None:
    """A table id of an earlier transaction may name another table by now."""
    stream = Stream()
    stream.begin(1)
    stream.insert(1)
    stream.commit()
    stream.begin(2)
    stream.add(Type.WRITE_ROWS, rows_body(5, 2))
    stream.commit()
    with pytest.raises(UnsupportedEvent, match="a row event without a TABLE_MAP event"):
        stream.read()


def test_a_table_id_may_name_another_table_later() -> None:
    """The last map of an id counts, also where both were seen before."""
    stream = Stream()
    for number in range(1, 7):
        stream.begin(number)
        stream.insert(number, database="shop" if number % 2 else "elsewhere")
        stream.insert(-number, database="elsewhere" if number % 2 else "shop")
        stream.commit()
    assert stream.read()[0] == [1, -2, 3, -4, 5, -6]


def test_many_table_ids_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many ids, also with collisions in the hash table, and after they were forgotten."""
    monkeypatch.setattr("lakeingest.mysql.wire.maps._IDS_MAX", 100)
    stream = Stream()
    ids = [*range(60), *range(1024, 1084), *range(1 << 40, (1 << 40) + 200), *range(60)]
    for number, table_id in enumerate(ids, start=1):
        stream.begin(number)
        stream.insert(number, database="elsewhere" if table_id % 3 else "shop", table_id=table_id)
        stream.commit()
    assert stream.read()[0] == [number for number, table_id in enumerate(ids, start=1) if not table_id % 3]


def test_a_transaction_may_have_more_tables_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own maps are not forgotten before its end."""
    monkeypatch.setattr("lakeingest.mysql.wire.maps._IDS_MAX", 100)
    stream = Stream()
    for number in (1, 2):
        stream.begin(number)
        for table_id in range(1000):
            stream.add(Type.TABLE_MAP, table_map_body(table_id, "shop", "orders"))
        for table_id in range(1000):
            stream.add(Type.WRITE_ROWS, rows_body(table_id, table_id))
        stream.commit()
    assert stream.read()[0] == [*range(1000), *range(1000)]


def test_checksums_in_a_file_that_claims_to_have_none_are_damage() -> None:
    """A single altered bit says so; the checksums would then be read as rows."""
    stream = Stream()
    stream.raw[1] = event(Type.FORMAT_DESCRIPTION, format_body(algorithm=0), 0, 0x20)
    stream.begin()
    stream.insert(1)
    stream.commit()
    with pytest.raises(UnsupportedEvent, match=r"damaged .* events have checksums although"):
        stream.read()


def test_packets_out_of_order_are_fatal() -> None:
    """The numbers of packets show one that is missing or comes twice."""
    stream = Stream()
    for number in range(1, 100):
        stream.begin(number)
        stream.insert(number)
        stream.commit()
    assert len(stream.raw) > 256  # numbers begin again
    assert len(stream.read()[0]) == 99
    sent = [b"\0" + one for one in stream.raw]
    with pytest.raises(UnsupportedEvent, match="packet out of order"):
        read_packets(stream, packets(sent[:300]) + packets(sent[300:], 300))


def read_packets(stream: Stream, data: bytes) -> SegmentDecoder:
    """A decoder that was fed with these bytes."""
    segment_ = Segment(SOURCE, 1, START, FilePosition(FILE, stream.pos), DUMP.segment.skip)
    decoder = SegmentDecoder(segment_, START, {SCHEMA.table: SCHEMA}, gtids=True)
    for _ in feed(decoder, data):
        pass
    return decoder


def test_a_packet_without_an_event_is_fatal() -> None:
    """A payload without its zero byte, an empty payload, and one that is shorter than a header."""
    stream = Stream()
    for payload in (b"\1" + stream.raw[0], b"", b"\0" + stream.raw[0][:18]):
        with pytest.raises(UnsupportedEvent, match="damaged"):
            read_packets(stream, packets([payload]))


def test_an_error_packet_is_kept_for_the_caller() -> None:
    """The driver raises the server's error."""
    stream = Stream()
    stream.begin()
    stream.pos += 100
    decoder = read_packets(stream, packets([*(b"\0" + one for one in stream.raw), b"\xff\x00\x01#HY000gone"]))
    assert decoder.error == b"\xff\x00\x01#HY000gone"
    assert not decoder.is_done


def test_an_end_of_the_binlog_before_the_stop_is_a_reason_to_retry() -> None:
    """Between flush and sync, the end of a commit group is written but not sent yet."""
    stream = Stream()
    stream.pos += 100
    with pytest.raises(SourceAway, match="run the same command again"):
        read_packets(stream, packets([*(b"\0" + one for one in stream.raw), EOF]))


def test_a_row_image_that_lacks_columns_is_refused() -> None:
    """MINIMAL images are not completed by guesses."""
    stream = Stream()
    stream.begin()
    stream.add(Type.TABLE_MAP, table_map_body(5, "shop", "orders"))
    stream.add(Type.WRITE_ROWS, rows_body(5, 1).replace(b"\1\xff", b"\1\0"))
    stream.commit()
    with pytest.raises(UnsupportedEvent, match="row image not FULL"):
        stream.read()


@pytest.mark.parametrize("cut", range(1, 7))
def test_a_row_event_that_ends_within_a_row_is_damage(cut: int) -> None:
    """Even if its checksum is right."""
    stream = Stream()
    stream.begin()
    at = stream.add(Type.TABLE_MAP, table_map_body(5, "shop", "orders"))
    stream.add(Type.WRITE_ROWS, rows_body(5, 1, 2)[:-cut] if cut != 5 else rows_body(5, 1, 2) + b"\0")
    stream.commit()
    with pytest.raises(UnsupportedEvent, match=rf"shop\.orders at {FILE}:{at}: the binlog is damaged"):
        stream.read()


def test_the_message_of_damage_has_the_table_and_the_place() -> None:
    """Invalid text stops the reader at the event that has it."""
    dump = recorded_dump()
    damaged = dump.data.replace("grüße".encode(), "gr\udcffüße".encode(errors="surrogateescape")[:7])
    assert damaged != dump.data
    with pytest.raises((UnsupportedEvent, UnsupportedValue), match=r"damaged at binlog|texts"):
        read(Dump(dump.segment, dump.schemas, damaged))
