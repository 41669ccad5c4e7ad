import itertools
import json
import math
import random
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymysql.constants import COMMAND

from lakeingest.config import Source
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.connection import connect, query, written_position
from lakeingest.mysql.wire import json_text
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.json_text import json_texts
from lakeingest.mysql.wire.values import Values
from tests.plugins.profiles import walks

SERVER_IDS = itertools.count(75_000)
WRITE_ROWS, UPDATE_ROWS = 30, 31
HEADER, CHECKSUM = 19, 4

# What MySQL 9.7 wrote, and what it printed: every type, both widths of containers.
CORPUS = {
    '{"w": 12.375, "sku": "S1", "dims": [1, 2], "gift": true}': (
        "0004004100200001002100030024000400280004000b2c000c340002370004010077736b7564696d736769667400000000"
        "00c0284002533102000a00050100050200"
    ),
    "[null, true, false, -1, 32768, -32769, 4294967295, -9223372036854775808, 18446744073709551615]": (
        "0209003f0004000004010004020005ffff071f00072300092700092f000a370000800000ff7fffffffffffff0000000000"
        "00000000000080ffffffffffffffff"
    ),
    "[0.0, -0.5, 1e100, -0.00000015, 123456789012345.6]": (
        "0205003b000b13000b1b000b23000b2b000b33000000000000000000000000000000e0bf7dc39425ad49b25476830df4f5"
        "2184be66de77832112dc42"
    ),
    '{"": {}, "a": [], "b\\n": {"é": [["\\"\\\\\\u0001", "€𝄞"]]}}': (
        "0003004e0019000000190001001a000200001c0002200000240061620a000004000000040001002a000b000200020d00c3"
        "a901001d00020700020016000c0a000c0e0003225c0107e282acf09d849e"
    ),
    "[1.50, -0.001, 123456789012345678.9]": (
        "02030027000f0d000f13000f1a00f60403028132f60504037ffffef60b1301875bcd1500bc614e09"
    ),
    '["2024-02-29", "-838:59:59.000000", "1999-12-31 23:59:59.999999", "base64:type15:AP8=", ""]': (
        "02050036000f13000f1d000f27000f31000c35000a080000000000bab2190b080000000591cbffff0c083f420ffb7eff63190f0200ff00"
    ),
    "7": "050700",
    '"text"': "0c0474657874",
    "null": "",
}
SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL, INT16, UINT16, INT32, UINT32 = range(9)
DOUBLE, STRING, OPAQUE = 11, 12, 15
DATE, TIME, DATETIME, DECIMAL, VAR_STRING = 10, 11, 12, 246, 253
A_TIME = 12 << 12 | 34 << 6 | 56
A_DATE = (2024 * 13 + 2) << 5 | 29


def container(kind: int, *values: bytes, keys: Sequence[bytes] = ()) -> bytes:
    """A value that is a container of these values, as the server lays it out."""
    width, code = (4, "I") if kind in {LARGE_OBJECT, LARGE_ARRAY} else (2, "H")
    inlined = {LITERAL, INT16, UINT16} | ({INT32, UINT32} if width == 4 else set())
    header = 2 * width + len(keys) * (width + 2) + len(values) * (1 + width)
    key_entries, entries, content = b"", b"", b"".join(keys)
    place = header
    for key in keys:
        key_entries += struct.pack(f"<{code}H", place, len(key))
        place += len(key)
    for value in values:
        if value[0] in inlined:
            entries += value.ljust(1 + width, b"\0")
        else:
            entries += value[:1] + struct.pack(f"<{code}", header + len(content))
            content += value[1:]
    sizes = struct.pack(f"<{code}{code}", len(values), header + len(content))
    return bytes([kind]) + sizes + key_entries + entries + content


def string(text: str) -> bytes:
    """A value that is a string."""
    return bytes([STRING]) + packed(len(text.encode())) + text.encode()


def opaque(kind: int, content: bytes) -> bytes:
    """A value of one of MySQL's other types."""
    return bytes([OPAQUE, kind]) + packed(len(content)) + content


def packed_time(kind: int, clock: int, date: int = 0, micros: int = 0) -> bytes:
    """An opaque value that is a time."""
    return opaque(kind, ((date << 17 | clock) << 24 | micros).to_bytes(8, "little", signed=True))


def packed(size: int) -> bytes:
    """A size, seven bits in a byte."""
    return bytes([size & 0x7F | 0x80]) + packed(size >> 7) if size > 0x7F else bytes([size])


def nested(levels: int) -> bytes:
    """Arrays in arrays."""
    value = container(SMALL_ARRAY)
    for _ in range(levels - 1):
        value = container(SMALL_ARRAY, value)
    return value


def sharing(kind: int, target: bytes, count: int) -> bytes:
    """A container whose values, and keys, all stand in the same bytes."""
    is_object = kind == SMALL_OBJECT
    header = 4 + count * (3 + 4 * is_object)
    entries = struct.pack("<HH", header, len(target) - 1) * count * is_object
    entries += (target[:1] + struct.pack("<H", header)) * count
    return bytes([kind]) + struct.pack("<HH", count, header + len(target) - 1) + entries + target[1:]


def doubling(levels: int) -> bytes:
    """Arrays of two, both of which are the same array of two."""
    value = container(SMALL_ARRAY)
    for _ in range(levels):
        value = sharing(SMALL_ARRAY, value, 2)
    return value


BINARY = {text: bytes.fromhex(written) for text, written in CORPUS.items()} | {
    '{"a": [-1, 65536, "x"], "b": {}, "cc": {"d": -2.5}}': container(
        LARGE_OBJECT,
        container(LARGE_ARRAY, struct.pack("<bi", INT32, -1), struct.pack("<bI", UINT32, 65536), string("x")),
        container(SMALL_OBJECT),
        container(LARGE_OBJECT, struct.pack("<bd", DOUBLE, -2.5), keys=[b"d"]),
        keys=[b"a", b"b", b"cc"],
    ),
    '["12:34:56.000000", "-12:34:56.000001", "2024-02-29 12:34:56.000007"]': container(
        SMALL_ARRAY,
        packed_time(TIME, A_TIME),
        opaque(TIME, (-((A_TIME << 24) + 1)).to_bytes(8, "little", signed=True)),
        packed_time(DATETIME, A_TIME, A_DATE, 7),
    ),
    json.dumps("x" * 300): string("x" * 300),
    '["A\\""]': container(SMALL_ARRAY, opaque(VAR_STRING, b'A"')),
}
DAMAGE = {
    "an unknown type": b"\x0d\0\0",
    "a type that no byte has room for": b"\xff",
    "no literal": bytes([LITERAL, 3]),
    "an integer that ends too early": bytes([INT32, 1, 2, 3]),
    "a double that ends too early": bytes([DOUBLE]) + bytes(7),
    "a string that ends too early": bytes([STRING, 5]) + b"abcd",
    "a string of 4 GiB": bytes([STRING]) + packed(2**32 - 1),
    "a size that does not end": bytes([STRING]) + b"\x80" * 9 + b"\0",
    "a string without a size": bytes([STRING]),
    "an opaque value without a size": bytes([OPAQUE, DATE]),
    "an opaque value without a type": bytes([OPAQUE]),
    "a container without a size": bytes([SMALL_ARRAY, 0, 0]),
    "a container that is larger than the value": container(SMALL_ARRAY, string("abc"))[:-1],
    "more values than a container has room for": bytes([LARGE_ARRAY]) + struct.pack("<II", 2**32 - 1, 13) + bytes(5),
    "more members than a container has room for": bytes([SMALL_OBJECT]) + struct.pack("<HH", 1, 8) + bytes(4),
    "a value that is its own container": bytes([SMALL_ARRAY]) + struct.pack("<HHBH", 1, 7, SMALL_ARRAY, 0),
    "a value that is its own entry": bytes([SMALL_ARRAY]) + struct.pack("<HHBH", 1, 8, STRING, 6) + b"\0",
    "a value after its container": bytes([SMALL_ARRAY]) + struct.pack("<HHBH", 1, 7, STRING, 7) + b"\0",
    "a key among the entries": container(SMALL_OBJECT, b"\4\0", keys=[b"k"]).replace(b"\x0b\0\1", b"\x0a\0\1"),
    "a key after its container": container(SMALL_OBJECT, b"\4\0", keys=[b"k"]).replace(b"\x0b\0\1", b"\x0c\0\1"),
    "a key that is longer than its container": container(SMALL_OBJECT, b"\4\0", keys=[b"k"]).replace(
        b"\x0b\0\1", b"\x0b\0\2"
    ),
    "a level too many": nested(101),
    "not a number": struct.pack("<bd", DOUBLE, math.nan),
    "infinity": container(SMALL_ARRAY, struct.pack("<bd", DOUBLE, -math.inf)),
    "a string that is not UTF-8": bytes([STRING, 2, 0xC3, 0x28]),
    "half a sign": bytes([STRING, 1, 0xC3]),
    "a surrogate": bytes([STRING, 3, 0xED, 0xA0, 0x80]),
    "a key that is not UTF-8": container(SMALL_OBJECT, b"\4\0", keys=[b"\xff"]),
    "a time of seven bytes": opaque(TIME, bytes(7)),
    "hour 24 of a day": packed_time(DATETIME, 24 << 12, A_DATE),
    "hour 839": packed_time(TIME, 839 << 12),
    "minute 60": packed_time(TIME, 60 << 6),
    "second 60": packed_time(TIME, 60),
    "a million microseconds": packed_time(TIME, 0, 0, 1_000_000),
    "year 10000": packed_time(DATE, 0, (10000 * 13 + 1) << 5 | 1),
    "a date before all dates": packed_time(DATE, 0, -1),
    "a decimal without digits": opaque(DECIMAL, b"\0\0"),
    "a decimal without a scale": opaque(DECIMAL, b"\1"),
    "a decimal with more scale than precision": opaque(DECIMAL, b"\1\2\x80\1"),
    "a decimal that is too long": opaque(DECIMAL, b"\1\0\x81\0"),
    "a decimal with a digit above nine": opaque(DECIMAL, b"\1\0\x8a"),
    "a decimal of 82 digits": opaque(DECIMAL, bytes([82, 0, 0x80]) + bytes(36)),
    "values that are the same string": sharing(SMALL_ARRAY, string("x" * 40_000), 5_000),
    "values that are the same bytes": sharing(SMALL_ARRAY, opaque(252, b"x" * 40_000), 5_000),
    "keys that are the same": sharing(SMALL_OBJECT, string("x" * 30_000), 5_000),
    "arrays that double with each level": doubling(60),
}
SEEDS = [raw for raw in BINARY.values() if raw]
MUTATIONS = 200_000
BATCH = 100

# Kinds of values that other statements than those with a text of JSON make.
EXPRESSIONS = (
    "JSON_ARRAY(1.5, CAST(0.000001 AS DECIMAL(65,30)), -0.5, 123456789012345678901234567890.123, -0.00)",
    "JSON_ARRAY(CAST(0 AS DECIMAL(10,0)), -123456789.123456789, 0.000000001, 999999999999999999.9, -0.1234567890)",
    f"JSON_ARRAY({'9' * 65}, -{'9' * 65}, {'9' * 65} * 1.0, 0.{'9' * 30}, -{'9' * 35}.{'9' * 30})",
    "CAST(1.10 AS JSON)",
    "JSON_ARRAY(CAST('2020-01-02' AS DATE), CAST('2020-00-00' AS DATE), CAST('0000-00-00' AS DATETIME))",
    "JSON_ARRAY(CAST('-838:59:59' AS TIME), CAST('-00:00:00.000001' AS TIME(6)), CAST('838:59:59' AS TIME))",
    "JSON_ARRAY(TIMESTAMP'9999-12-31 23:59:59.999999', TIMESTAMP'1000-01-01 00:00:00', TIMEDIFF('1:0:0', '2:0:0'))",
    "CAST(NOW(6) AS JSON)",
    "JSON_ARRAY(x'', x'00', x'0001', x'000102', b'101', CAST('a' AS BINARY))",
    *(f"JSON_ARRAY(REPEAT(x'FB00', {size}), 1)" for size in (28, 29, 57, 58, 30_000)),
    "CAST(POINT(1, 2) AS JSON)",
    "JSON_ARRAY(18446744073709551615, -9223372036854775808, 1e0, 1e20, 1.5e-7, -0e0, 1e15, 1e16, 1e-15, 1e-16)",
    "JSON_ARRAY(CAST(2020 AS YEAR), 1 = 1, NULL)",
    *(f"(SELECT JSON_OBJECT('k', {column}) FROM kinds)" for column in "abcdefghijkl"),
)
KINDS = (
    "a ENUM('é'), b SET('a','b'), c BIT(5), d POINT, e BLOB, f YEAR, g VARBINARY(9), h TIMESTAMP(3), i BINARY(3), "
    "j FLOAT, k DATETIME(6), l LONGTEXT"
)
A_KIND = "('é', 'a,b', b'101', POINT(1, 2), x'FF', 2020, x'FF', '2020-01-01 01:02:03.456', x'FF', 1.1, NOW(6), 'é')"
SIGNS = "".join(map(chr, range(0x20))) + '"\\/\x7f\x80é€𝄞\u2028\ufffe'
DOCUMENTS = (
    *("null", "true", "false", "{}", "[]", '""', "0", "-0", "-0.0", "0.1", "1e-400", "[[], {}, [{}], [[[]]]]"),
    *(str(sign * 2**power + more) for power in (7, 15, 16, 31, 32, 62) for sign in (-1, 1) for more in (-1, 0, 1)),
    *(str(number) for number in (2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**19, 10**30)),
    *(json.dumps({sign * size: sign * size for size in (1, 7, 8, 9, 17)}) for sign in SIGNS),
    *(json.dumps("x" * size) for size in (126, 127, 128, 16_383, 16_384, 65_535, 65_536, 2_097_152)),
    *(json.dumps({"k" * size: [size]}) for size in (1, 255, 256, 65_535)),
    json.dumps({f"{key}": key for key in range(300)}),
)


@dataclass(frozen=True)
class Documents:
    """Tables of JSON documents on a server, and what its binlog says of them."""

    source: Source
    connection: pymysql.Connection

    def differences(
        self, *statements: str, texts: Sequence[str] = (), table: str = "t"
    ) -> tuple[int, list[tuple[str | None, str | None]]]:
        """Fill the empty table with these documents, run the statements: the rows, and where our text is another."""
        query(self.connection, f"TRUNCATE {table}")
        before = written_position(self.connection)
        with self.connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for text in texts:
                cursor.execute("INSERT INTO t (j) VALUES (%s)", (text,))
            cursor.execute("COMMIT")
            for statement in statements:
                cursor.execute(statement)
        binary = self._binary(before.file, before.pos)
        shown = {int(key): text for key, text in query(self.connection, f"SELECT id, j FROM {table}")}
        assert set(binary) == set(shown)
        ours = json_texts(values([binary[key] for key in shown])).to_pylist()
        pairs = zip(shown.values(), ours, strict=True)
        return len(shown), [(theirs and theirs[:200], our and our[:200]) for theirs, our in pairs if theirs != our]

    def _binary(self, file: str, pos: int) -> dict[int, bytes | None]:
        """By id, the last value of each row in the binlog from there on."""
        found: dict[int, bytes | None] = {}
        with connect(self.source) as connection:
            query(connection, "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")
            wire: Any = connection
            wire._execute_command(  # noqa: SLF001 - the driver has no public way
                COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", pos, 1, next(SERVER_IDS)) + file.encode()
            )
            while not (packet := wire._read_packet()).is_eof_packet():  # noqa: SLF001 - nor to this
                event = packet.get_all_data()[1:-CHECKSUM]
                if event[4] in {WRITE_ROWS, UPDATE_ROWS}:
                    found |= row_images(event)
        return found


def row_images(event: bytes) -> list[tuple[int, bytes | None]]:
    """The rows of an event on a table (id INT, j JSON): those after an update, not those before it."""
    images = 2 if event[4] == UPDATE_ROWS else 1
    at = HEADER + 8 + struct.unpack_from("<H", event, HEADER + 8)[0] + 1 + images
    halves = []
    while at < len(event):
        is_null, key = event[at] & 2, struct.unpack_from("<i", event, at + 1)[0]
        at += 5
        value = None
        if not is_null:
            size = struct.unpack_from("<I", event, at)[0]
            value = event[at + 4 : at + 4 + size]
            at += 4 + size
        halves.append((key, value))
    return halves[images - 1 :: images]


@pytest.fixture(scope="module")
def documents(mysql_server: LocalServer) -> Iterator[Documents]:
    """An empty table (id INT, j JSON)."""
    account = {"user": mysql_server.user, "password": mysql_server.password}
    source = Source.model_validate({"host": mysql_server.host, "port": mysql_server.port, **account})
    with connect(source) as connection:
        query(connection, "CREATE DATABASE json_text")
        query(connection, "USE json_text")
        query(connection, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, j JSON)")
        try:
            yield Documents(source, connection)
        finally:
            query(connection, "DROP DATABASE json_text")


def texts(raw: Sequence[bytes | None]) -> list[str | None]:
    """The texts of these values, checked as a column."""
    column = json_texts(values(raw))
    column.validate(full=True)
    return list(column.to_pylist())


def values(raw: Sequence[bytes | None], around: bytes = b"") -> Values:
    """Values that stand in bytes with something around each of them."""
    data, start = bytearray(around), []
    for one in raw:
        start.append(-1 if one is None else len(data))
        data += (one or b"") + around
    sizes = np.array([len(one or b"") for one in raw], np.int32)
    return Values(np.frombuffer(data + bytes(SLACK), np.uint8), np.array(start, np.int32), sizes)


def judged(column: Values) -> Iterator[str | None]:
    """The text of each value, None where it is damaged."""
    first = 0
    while first < len(column):
        rest = Values(column.data, column.start[first:], column.size[first:])
        try:
            yield from json_texts(rest).to_pylist()
            return
        except Damaged as error:
            found = re.match(r"row (\d+): ", str(error))
            assert found
            good = int(found[1])
        yield from judged(Values(rest.data, rest.start[:good], rest.size[:good]))
        yield None
        first += good + 1


def mutated(chance: random.Random) -> bytes:
    """A value of the corpus with some bytes changed, put in, left out, or taken from elsewhere in it."""
    raw = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(raw)), chance.randint(1, 4)
        match chance.randrange(6):
            case 0 | 1:
                raw[at] = chance.randrange(256)
            case 2:
                raw[at] = chance.choice(b"\0\1\2\3\4\5\7\x0b\x0c\x0f\x22\x7f\x80\xff")
            case 3:
                raw[at] ^= 1 << chance.randrange(8)
            case 4:
                other = chance.randrange(len(raw))
                raw[at : at + size] = raw[other : other + size]
            case 5:
                raw[at : at + size] = chance.randbytes(chance.randint(0, 4)) or b"\0"
    return bytes(raw)


@pytest.mark.parametrize("text", BINARY)
def test_recorded_values_have_the_text_of_the_server(text: str) -> None:
    """Also after NULL, before another value, and where the text does not fit at first."""
    raw = BINARY[text]
    many = string("\1" * 5_000)
    assert texts([raw]) == [text]
    assert texts([None, raw, many, None, raw, raw]) == [None, text, json.dumps("\1" * 5_000), None, text, text]


def test_empty_and_null_columns_are_read() -> None:
    """Columns without rows, and columns of NULLs."""
    assert texts([]) == []
    assert texts([None, None]) == [None, None]


def test_a_value_may_have_many_holes() -> None:
    """Thousands of doubles of 17 digits and decimals."""
    doubles = [0.1 + 0.2 + i for i in range(3_000)]
    one = container(SMALL_ARRAY, *(struct.pack("<bd", DOUBLE, double) for double in doubles))
    two = container(SMALL_ARRAY, *[opaque(DECIMAL, b"\2\1\x81\5")] * 3_000)
    assert texts([one, two, one]) == [json.dumps(doubles), f"[{', '.join(['1.5'] * 3_000)}]", json.dumps(doubles)]


def test_a_hundred_levels_are_read() -> None:
    """MySQL's limit."""
    assert texts([nested(100)]) == ["[" * 100 + "]" * 100]


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_message_of_damage_has_the_row(damage: str) -> None:
    """Bytes that the server does not write are refused, in any row."""
    good, bad = BINARY["[1.50, -0.001, 123456789012345678.9]"], DAMAGE[damage]
    for raw, row in (([bad], 0), ([good, None, bad, good], 2), ([None, good, good, good, bad, bad], 4)):
        with pytest.raises(Damaged, match=f"^row {row}: "):
            texts(raw)


@pytest.mark.parametrize("text", BINARY)
def test_a_value_that_is_cut_is_damage(text: str) -> None:
    """After any byte but the last; a value of no bytes is null."""
    raw = BINARY[text]
    for size in range(1, len(raw)):
        with pytest.raises(Damaged):
            json_texts(values([raw[:size]], around=raw[size:]))


@pytest.mark.long("200,000 values")
def test_mutated_values_are_text_or_damage() -> None:
    """200,000 of them: never a crash, never invalid JSON, never more text than the bytes allow."""
    chance = random.Random(20)
    counts = [0, 0]
    for _ in range(MUTATIONS // BATCH):
        raw = [mutated(chance) for _ in range(BATCH)]
        for one, text in zip(raw, judged(values(raw)), strict=True):
            counts[text is not None] += 1
            if text is not None:
                json.loads(text, parse_constant=pytest.fail)
                assert len(text) <= 12 * len(one) + 64
    assert min(counts) > MUTATIONS // 10


def test_the_bytes_around_a_value_do_not_matter() -> None:
    """Mutated values give the same result between any bytes: nothing outside of them is read."""
    chance = random.Random(21)
    for _ in range(walks(100)):
        raw = [mutated(chance) for _ in range(50)]
        zeros, ones, digits = (list(judged(values(raw, around=sign * 70_000))) for sign in (b"\0", b"\xff", b"7"))
        assert zeros == ones == digits


def test_more_text_than_a_column_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets in a column have 31 bits; also where only the filled holes are too much."""
    monkeypatch.setattr(json_text, "_TEXT_MAX", 1_000)
    for raw in ([string("x" * 900)], [opaque(252, b"x" * 900)]):
        with pytest.raises(UnsupportedValue, match=r"2 GiB.*tables\.exclude"):
            texts(raw)


@pytest.mark.mysql
def test_documents_of_every_kind_have_the_text_of_the_server(documents: Documents) -> None:
    """Types, sizes, escapes, and values that only SQL can put into a document."""
    query(documents.connection, f"CREATE TABLE kinds ({KINDS})")
    query(documents.connection, f"INSERT INTO kinds VALUES {A_KIND}")
    inserts = [f"INSERT INTO t (j) SELECT {expression}" for expression in EXPRESSIONS]
    assert documents.differences(*inserts, "INSERT INTO t (j) VALUES (NULL)") == (len(EXPRESSIONS) + 1, [])
    assert documents.differences(texts=DOCUMENTS) == (len(DOCUMENTS), [])


@pytest.mark.mysql
def test_null_in_a_not_null_column_is_the_literal_null(documents: Documents) -> None:
    """The server stores no bytes, and prints null."""
    query(documents.connection, "CREATE TABLE n (id INT PRIMARY KEY, j JSON NOT NULL)")
    insert = "INSERT IGNORE INTO n VALUES (1, NULL)"
    assert documents.differences(insert, "INSERT INTO n VALUES (2, 'null')", table="n") == (2, [])


@pytest.mark.mysql
def test_doubles_have_the_text_of_the_server(documents: Documents) -> None:
    """Random bits, short decimals, powers of two and ten with their neighbours: with and without an exponent."""
    chance = random.Random(22)
    drawn = (struct.unpack("<d", chance.randbytes(8))[0] for _ in range(20_000))
    short = (float(f"{chance.randrange(10 ** chance.randint(1, 17))}e{chance.randint(-25, 25)}") for _ in range(20_000))
    powers = [2.0**power for power in range(-1074, 1024)] + [float(f"1e{power}") for power in range(-323, 309)]
    near = (math.nextafter(power, toward) for power in powers for toward in (0, math.inf))
    places = (round(chance.uniform(0, 10**whole), places) for whole in range(17) for places in range(17))
    doubles = [double for double in (*drawn, *short, *powers, *near, *places) if math.isfinite(double)]
    doubles += [-double for double in doubles[::7]]
    drawn_documents = [json.dumps(doubles[at : at + 1_000]) for at in range(0, len(doubles), 1_000)]
    scalars = [json.dumps(double) for double in doubles[::50]]
    assert documents.differences(texts=drawn_documents + scalars) == (len(drawn_documents) + len(scalars), [])


@pytest.mark.mysql
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.integers(-300, 70_000)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=20), inner),
            max_leaves=20,
        ),
        min_size=10,
        max_size=30,
    )
)
def test_random_documents_have_the_text_of_the_server(documents: Documents, drawn: list[Any]) -> None:
    """Any document that JSON text can express."""
    assert documents.differences(texts=[json.dumps(one) for one in drawn]) == (len(drawn), [])


@pytest.mark.mysql
@pytest.mark.long("large documents")
def test_large_documents_have_the_text_of_the_server(documents: Documents) -> None:
    """Containers above 64 KiB with small ones and numbers in them, a hundred levels, and 20 MB of text."""
    mixed = [[i, -i, str(i), None, i / 8, 2**40 + i, {"k": [i]}] for i in range(20_000)]
    deep: Any = {"k": "x" * 70_000}
    for level in range(99):
        deep = [deep, level] if level % 2 else {"k": deep, "l": 70_000 * level}
    large = [
        *([*range(-40_000, 40_000)], mixed, {f"key {i}": one for i, one in enumerate(mixed)}, deep),
        *(["é\n" * 5_000_000], {"k": "x" * 20_000_000, "\t" * 60_000: [1.5]}),
    ]
    assert documents.differences(texts=[json.dumps(one) for one in large]) == (len(large), [])


@pytest.mark.mysql
def test_documents_that_were_changed_in_place_have_the_text_of_the_server(documents: Documents) -> None:
    """The server then leaves gaps between values, and moves them."""
    chance = random.Random(23)
    first = [json.dumps({f"k{i}": ["x" * chance.randint(0, 300), 2**40, 1.5, {"a": "y" * 9}] for i in range(9)})] * 50
    changes = []
    for _ in range(60):
        path = f"$.k{chance.randrange(9)}" + chance.choice(["", "[0]", "[1]", "[3].a"])
        value = chance.choice(
            ["1", "'é'", f"REPEAT('z', {chance.randint(0, 200)})", "1.25", "NULL", "CAST('[]' AS JSON)"]
        )
        change = chance.choice([f"JSON_SET(j, '{path}', {value})", f"JSON_REPLACE(j, '{path}', {value})"])
        if not chance.randrange(10):
            change = f"JSON_REMOVE(j, '{path}[0]')"
        changes.append(f"UPDATE t SET j = {change} WHERE id % 7 = {chance.randrange(7)}")
    assert documents.differences(*changes, texts=first) == (len(first), [])
