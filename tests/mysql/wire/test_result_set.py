import random

import pyarrow as pa
import pytest

from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import ProtocolBroken, SchemaChanged, UnsupportedValue
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire import result_set
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.result_set import ResultSet, read_definition
from tests.mysql.wire.recorded import Rows, recorded_rows
from tests.mysql.wire.stream import EOF, feed, packets

RECORDED = recorded_rows()
SCHEMA = TableSchema(
    TableId("shop", "t"),
    (Column("id", Kind.INT32, source_type("int")), Column("v", Kind.STRING, source_type("text"))),
    ("id",),
)
SENT = (Sent(FieldType.LONG), Sent(FieldType.BLOB))


def read(rows: Rows, cut: random.Random | None = None) -> list[pa.RecordBatch]:
    """The batches of a recorded result set."""
    result = ResultSet(rows.schema, rows.definitions, rows.sequence)
    batches = list(feed(result, rows.data, cut))
    assert result.is_done
    return batches


def row(id_: int, text: bytes) -> bytes:
    """A row of `shop.t`."""
    return b"\0\0" + id_.to_bytes(4, "little") + bytes([len(text)]) + text


@pytest.mark.parametrize("rows", RECORDED, ids=lambda rows: rows.schema.table.name)
def test_rows_do_not_depend_on_how_the_bytes_arrive(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any cuts of the bytes, and with very small buffers."""
    [expected] = read(rows)
    expected.validate(full=True)
    assert expected.num_rows >= 6
    for seed in range(12):
        chance = random.Random(seed)
        monkeypatch.setattr(result_set, "_BUFFER_BYTES", chance.choice([16, 500, 5000]))
        monkeypatch.setattr(result_set, "_ROWS", chance.choice([1, 2, 4]))
        batches = read(rows, chance)
        assert len(batches) > 1
        assert pa.Table.from_batches(batches) == pa.Table.from_batches([expected])


def test_an_error_packet_within_a_result_is_kept_for_the_caller() -> None:
    """After the rows before it, so the caller knows that they are not all."""
    result = ResultSet(SCHEMA, SENT, 5)
    data = packets([row(1, b"a"), row(2, b"b"), b"\xff\x28\x04#70100stopped"], 5)
    [batch] = feed(result, data)
    assert batch["id"].to_pylist() == [1, 2]
    assert (result.is_done, result.error) == (True, b"\xff\x28\x04#70100stopped")


@pytest.mark.parametrize(
    "payload",
    [b"", b"\1\0", row(1, b"a") + b"x", row(1, b"a")[:-1], row(1, b"a")[:6] + b"\xfb", row(1, b"a")[:6] + b"\xff"],
)
def test_an_invalid_row_is_a_reason_to_retry(payload: bytes) -> None:
    """The protocol has no checksums except those of the network."""
    with pytest.raises(ProtocolBroken, match=r"shop\.t: the source sends a packet of unknown form"):
        list(feed(ResultSet(SCHEMA, SENT, 1), packets([row(1, b"a"), payload, EOF])))


def test_a_packet_out_of_order_is_a_reason_to_retry() -> None:
    """A missing row is never skipped silently."""
    with pytest.raises(ProtocolBroken, match="out of order"):
        list(feed(ResultSet(SCHEMA, SENT, 1), packets([row(1, b"a")]) + packets([row(3, b"c"), EOF], 3)))


def test_an_invalid_text_is_refused() -> None:
    """With the name of its column, its type in MySQL, and the ways out."""
    with pytest.raises(UnsupportedValue, match=r"shop\.t: column v \(text\): row 1 is not valid .*tables\.exclude"):
        list(feed(ResultSet(SCHEMA, SENT, 1), packets([row(1, b"a"), row(2, b"\xff"), EOF])))


@pytest.mark.parametrize(
    ("column", "sent"),
    [
        (Column("v", Kind.STRING, source_type("text")), Sent(FieldType.LONG)),
        (Column("v", Kind.INT32, source_type("int")), Sent(FieldType.LONG, unsigned=True)),
        (Column("v", Kind.INT32, source_type("int")), Sent(FieldType.LONGLONG)),
        (Column("v", Kind.UINT64, source_type("bigint unsigned")), Sent(FieldType.LONGLONG)),
        (
            Column("v", Kind.DECIMAL, source_type("decimal(9,2)"), precision=9, scale=2),
            Sent(FieldType.NEWDECIMAL, precision=9),
        ),
        (Column("v", Kind.NUMERAL, source_type("decimal(40)"), precision=40), Sent(FieldType.NEWDECIMAL, precision=41)),
        (Column("v", Kind.DATE, source_type("date")), Sent(FieldType.DATETIME)),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(column: Column, sent: Sent) -> None:
    """Before any row is read."""
    schema = TableSchema(SCHEMA.table, (SCHEMA.columns[0], column), ("id",))
    with pytest.raises(SchemaChanged, match=r"shop\.t: column v .*copy the table again"):
        ResultSet(schema, (SENT[0], sent), 1)


def definition(type_: int, length: int = 0, flags: int = 0, decimals: int = 0) -> bytes:
    """A column definition packet."""
    names = b"\3def" + b"\4shop" + b"\1t\1t\1v\1v"
    fixed = length.to_bytes(4, "little") + bytes([type_]) + flags.to_bytes(2, "little") + bytes([decimals])
    return names + b"\x0c\xff\0" + fixed + bytes(2)


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        (definition(3), Sent(FieldType.LONG)),
        (definition(3, flags=32), Sent(FieldType.LONG, unsigned=True)),
        (definition(246, 12, 0, 2), Sent(FieldType.NEWDECIMAL, precision=10, scale=2)),
        (definition(246, 11, 32, 2), Sent(FieldType.NEWDECIMAL, unsigned=True, precision=10, scale=2)),
        (definition(246, 11), Sent(FieldType.NEWDECIMAL, precision=10)),
        (definition(246, 66, 32), Sent(FieldType.NEWDECIMAL, unsigned=True, precision=66)),
    ],
)
def test_a_column_definition_has_the_type_of_the_column(payload: bytes, sent: Sent) -> None:
    """The digits of a decimal follow from the length of its text."""
    assert read_definition(payload) == sent


@pytest.mark.parametrize("payload", [definition(99), definition(3)[:-3], b""])
def test_an_invalid_column_definition_is_damage(payload: bytes) -> None:
    """An unknown type, or too few bytes."""
    with pytest.raises(Damaged):
        read_definition(payload)
