"""Two keys that MySQL tells apart are never one key in the lake: each is taken as another value, or refused."""

import functools
import itertools
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeingest.core.tables.schema import Column, Kind
from lakeingest.mysql.key_choice import NoKey, choose_key
from lakeingest.mysql.source_types import source_type
from lakeingest.mysql.wire.charsets import key_texts, texts
from lakeingest.mysql.wire.codes import CODECS, SIZE_AT, code_table, has_one_code_each
from lakeingest.mysql.wire.collations import CHARSETS
from lakeingest.mysql.wire.encodings import FieldType, Sent, event_encoding, result_encoding
from lakeingest.mysql.wire.values import Values

SEVERAL = {"armscii8": 6, "cp932": 396, "eucjpms": 23, "sjis": 1, "ujis": 2}  # characters with more than one code
# What the others are in Python; in gb18030 MySQL and Python have swapped two codes
OTHERS = {
    "ascii": "ascii", "gb18030": "gb18030", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be", "utf8mb3": "utf-8", "utf8mb4": "utf-8",
}  # fmt: skip


@functools.cache
def codes(charset: str) -> tuple[bytes, ...]:
    """Every code of a charset that is a character to us."""
    found = np.flatnonzero(code_table(charset) >> SIZE_AT).tolist()
    whole = (code if code < 0x10000 else 0x8F0000 | code & 0xFFFF for code in found)
    return tuple(code.to_bytes(max(1, (code.bit_length() + 7) // 8)) for code in whole)


@functools.cache
def doubled(charset: str) -> list[bytes]:
    """Codes whose character has another one."""
    every = codes(charset)
    found = texts(Values.of(every), charset).to_pylist()
    often = Counter(found)
    return [code for code, character in zip(every, found, strict=True) if often[character] > 1]


def is_taken(raw: bytes, charset: str) -> bool:
    """Whether the bytes may be a key."""
    try:
        key_texts(Values.of([raw]), charset)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("charset", sorted(CODECS))
def test_a_key_may_have_only_one_code_of_each_character(charset: str) -> None:
    """For all codes of every charset: of several codes of a character, all but one are refused."""
    every = codes(charset)
    characters = texts(Values.of(every), charset).to_pylist()
    found: dict[str, list[bytes]] = {}
    for code, character in zip(every, characters, strict=True):
        found.setdefault(character, []).append(code)
    several = [same for same in found.values() if len(same) > 1]
    assert (len(several), has_one_code_each(charset)) == (SEVERAL.get(charset, 0), charset not in SEVERAL)
    taken = [code for same in several for code in same if is_taken(code, charset)]
    assert len(taken) == len(several)
    refused = {code for same in several for code in same} - {*taken}
    kept = [code for code in every if code not in refused]
    found_in_keys = key_texts(Values.of(kept), charset).to_pylist()
    assert len({*found_in_keys}) == len(kept)
    assert dict(zip(every, characters, strict=True)).items() >= dict(zip(kept, found_in_keys, strict=True)).items()


def test_no_other_charset_has_two_codes_for_a_character() -> None:
    """Their texts, encoded again, give the same bytes; of the large charsets, every 61st character is tried."""
    assert CODECS.keys() | OTHERS.keys() == CHARSETS
    for charset, codec in OTHERS.items():
        end = {"ascii": 0x80, "ucs2": 0x10000, "utf8mb3": 0x10000}.get(charset, 0x110000)
        every = "".join(chr(code) for code in [*range(0x80), *range(0x80, end, 61)] if not 0xD800 <= code < 0xE000)
        raw = [character.encode(codec) for character in every]
        assert [character.encode(codec) for character in key_texts(Values.of(raw), charset).to_pylist()] == raw
    pairs = [bytes(pair) for pair in itertools.product(range(0x81, 0xFF), [*range(0x40, 0x7F), *range(0x80, 0xFF)])]
    assert len({*key_texts(Values.of(pairs), "gb18030").to_pylist()}) == len(pairs) == 23_940


@settings(deadline=None)
@given(st.data())
def test_texts_of_different_bytes_are_different_keys(data: st.DataObject) -> None:
    """Random texts, which prefer characters with several codes and may be cut anywhere."""
    charset = data.draw(st.sampled_from(sorted(SEVERAL)))
    every = codes(charset)
    text = st.lists(st.sampled_from(doubled(charset)) | st.sampled_from(every), max_size=4).map(b"".join)
    one, other = data.draw(text), data.draw(text)
    if one != other and is_taken(one, charset) and is_taken(other, charset):
        assert len({*key_texts(Values.of([one, other]), charset).to_pylist()}) == 2


def test_the_message_of_a_refused_key_has_its_bytes_and_the_fix() -> None:
    """0x879C and 0x81BE are the same character. In other columns both are read."""
    values = Values.of([b"a", b"\x81\xbe", b"\x87\x9c"])
    assert texts(values, "cp932").to_pylist() == ["a", "\u222a", "\u222a"]
    with pytest.raises(ValueError, match=r"^row 2 is a key with a second code .* cp932: 0x879c; .*utf8mb4"):
        key_texts(values, "cp932")
    assert key_texts(Values.of([b"a", b"\x81\xbe"]), "cp932").to_pylist() == ["a", "\u222a"]


@pytest.mark.parametrize("of", [event_encoding, result_encoding])
def test_a_second_code_is_refused_only_in_key_columns(of: Callable[..., object]) -> None:
    """On both paths."""
    column, sent = Column("c", Kind.STRING, source_type("varchar(9)")), Sent(FieldType.VARCHAR, size=1, charset="sjis")
    values = Values.of([b"\x5c", b"\x81\x5f"])
    assert event_encoding(column, sent).array(values).to_pylist() == ["\\", "\\"]
    with pytest.raises(ValueError, match="second code"):
        of(column, sent, is_key=True).array(values)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("enum('a','b')", True),
        ("enum('','a')", False),
        ("enum('a','','b')", False),
        ("enum('\u222a','\u222a')", False),  # in cp932 they are two
        ("enum('a,b','a')", True),
        ("set('a','b')", True),
        ("set('a','')", False),
        ("set('a','b','a,b')", False),  # in armscii8 this is no comma to MySQL
    ],
)
def test_an_enum_or_set_can_be_a_key_only_if_its_texts_differ(text: str, fits: bool) -> None:  # noqa: FBT001
    """Number 0 has the empty text, as has an empty member."""
    column = Column("k", Kind.STRING, source_type(text), nullable=False)
    part = {"index_name": "PRIMARY", "column_name": "k", "non_unique": 0, "nullable": "", "sub_part": None}
    for declared in ((), ("k",)):
        if fits:
            assert choose_key([column], [{**part, "index_type": "BTREE"}], declared)[0] == ("k",)
        else:
            with pytest.raises(NoKey, match="two of its values are the same text"):
                choose_key([column], [{**part, "index_type": "BTREE"}], declared)


@pytest.mark.parametrize("count", range(1, 5))
def test_every_number_of_a_set_has_a_different_text(count: int) -> None:
    """Including 0."""
    names = tuple("abcd"[:count])
    column = Column("k", Kind.STRING, source_type(f"set({','.join(map(repr, names))})"))
    encoding = event_encoding(column, Sent(FieldType.SET, size=1, members=names), is_key=True)
    found = encoding.array(Values.of([bytes([number]) for number in range(2**count)])).to_pylist()
    assert len({*found}) == 2**count


def whole(size: int) -> st.SearchStrategy[bytes]:
    """Any bytes of that size."""
    return st.binary(min_size=size, max_size=size)


def decimal(groups: tuple[int, ...]) -> st.SearchStrategy[bytes]:
    """A packed decimal of whole groups of nine digits and of some of fewer, given as their greatest numbers."""

    def packed(parts: tuple[int, ...], is_negative: bool) -> bytes:  # noqa: FBT001
        sizes = [(int(greatest).bit_length() + 7) // 8 for greatest in groups]
        raw = bytearray(b"".join(part.to_bytes(size) for part, size in zip(parts, sizes, strict=True)))
        raw[0] ^= 0x80
        return bytes(byte ^ 0xFF for byte in raw) if is_negative and any(parts) else bytes(raw)

    return st.builds(packed, st.tuples(*(st.integers(0, greatest) for greatest in groups)), st.booleans())


def datetimes() -> st.SearchStrategy[bytes]:
    """A DATETIME(6) of any fields, of days that there are not, too."""

    def packed(year: int, month: int, day: int, seconds: int, micros: int) -> bytes:
        clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        return (((year * 13 + month) << 22 | day << 17 | clock) + 0x8000000000).to_bytes(5) + micros.to_bytes(3)

    fields = (9999, 12, 31, 86_399, 999_999)
    return st.builds(packed, *(st.integers(0, greatest) for greatest in fields))


def times() -> st.SearchStrategy[bytes]:
    """A TIME(6)."""

    def packed(seconds: int, micros: int, is_negative: bool) -> bytes:  # noqa: FBT001
        fields = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 24 | micros
        return (0x800000000000 + (-fields if is_negative else fields)).to_bytes(6)

    return st.builds(packed, st.integers(0, 3_020_399), st.integers(0, 999_999), st.booleans())


@dataclass(frozen=True)
class Type:
    """A type of a key column, and what its values can be in a row image."""

    column: Column
    sent: Sent
    raw: st.SearchStrategy[bytes]


def of(kind: Kind, text: str, sent: Sent, raw: st.SearchStrategy[bytes], **more: int) -> Type:
    """A type of a column that is named `k`."""
    return Type(Column("k", kind, source_type(text), **more), sent, raw)  # type: ignore[arg-type]


MEMBERS = ("a", "A", "a ", "b,a", "ä")
DATES = st.builds(
    lambda y, m, d: (y << 9 | m << 5 | d).to_bytes(3, "little"), *map(st.integers, (0, 0, 0), (9999, 12, 31))
)
STAMPS = st.builds(
    lambda s, m: struct.pack(">I", s) + (m if s else 0).to_bytes(3), st.integers(0, 2**32 - 1), st.integers(0, 999_999)
)
TYPES = {
    "tinyint": of(Kind.INT32, "tinyint", Sent(FieldType.TINY), whole(1)),
    "tinyint1": of(Kind.BOOLEAN, "tinyint(1)", Sent(FieldType.TINY), whole(1)),
    "mediumint": of(Kind.INT32, "mediumint unsigned", Sent(FieldType.INT24, unsigned=True), whole(3)),
    "int": of(Kind.INT64, "int unsigned", Sent(FieldType.LONG, unsigned=True), whole(4)),
    "bigint": of(Kind.INT64, "bigint", Sent(FieldType.LONGLONG), whole(8)),
    "bigint_unsigned": of(Kind.UINT64, "bigint unsigned", Sent(FieldType.LONGLONG, unsigned=True), whole(8)),
    "year": of(Kind.INT32, "year", Sent(FieldType.YEAR), whole(1)),
    "decimal": of(Kind.DECIMAL, "decimal(20,5)", Sent(FieldType.NEWDECIMAL, precision=20, scale=5),
        decimal((999_999, 999_999_999, 99_999)), precision=20, scale=5),
    "numeral": of(Kind.NUMERAL, "decimal(40,9)", Sent(FieldType.NEWDECIMAL, precision=40, scale=9),
        decimal((9999, *[999_999_999] * 4)), precision=40, scale=9),
    "date": of(Kind.DATE, "date", Sent(FieldType.DATE), DATES),
    "date_text": of(Kind.MOMENT, "date", Sent(FieldType.DATE), DATES),
    "datetime": of(Kind.DATETIME, "datetime(6)", Sent(FieldType.DATETIME2, digits=6), datetimes(), fraction=6),
    "datetime_text": of(Kind.MOMENT, "datetime(6)", Sent(FieldType.DATETIME2, digits=6), datetimes(), fraction=6),
    "timestamp": of(Kind.TIMESTAMP, "timestamp(6)", Sent(FieldType.TIMESTAMP2, digits=6), STAMPS, fraction=6),
    "timestamp_text": of(Kind.MOMENT, "timestamp(6)", Sent(FieldType.TIMESTAMP2, digits=6), STAMPS, fraction=6),
    "time": of(Kind.TIME, "time(6)", Sent(FieldType.TIME2, digits=6), times(), fraction=6),
    "time_micros": of(Kind.MICROS, "time(6)", Sent(FieldType.TIME2, digits=6), times(), fraction=6),
    "bit1": of(Kind.BOOLEAN, "bit(1)", Sent(FieldType.BIT, size=1), st.sampled_from((b"\0", b"\1"))),
    "bit": of(Kind.BINARY, "bit(20)", Sent(FieldType.BIT, size=3), whole(3)),
    "binary": of(Kind.BINARY, "binary(4)", Sent(FieldType.STRING, size=1, charset="binary"),
        whole(4).map(lambda raw: raw.rstrip(b"\0")), length=4),
    "varbinary": of(Kind.BINARY, "varbinary(4)", Sent(FieldType.VARCHAR, size=1, charset="binary"),
        st.binary(max_size=4)),
    "varchar": of(Kind.STRING, "varchar(4)", Sent(FieldType.VARCHAR, size=1), st.text(max_size=4).map(str.encode)),
    "char": of(Kind.STRING, "char(4)", Sent(FieldType.STRING, size=1, charset="cp932"), st.binary(max_size=4)),
    "enum": of(Kind.STRING, "enum('a','A','a ','b,a','ä')", Sent(FieldType.ENUM, size=1, members=MEMBERS),
        st.integers(0, 5).map(lambda number: bytes([number]))),
    "uuid": of(Kind.UUID, "uuid", Sent(FieldType.STRING, size=1), whole(16).map(lambda raw: raw.rstrip(b"\0"))),
    "inet6": of(Kind.ADDRESS, "inet6", Sent(FieldType.STRING, size=1), whole(16).map(lambda raw: raw.rstrip(b"\0"))),
    "inet4": of(Kind.ADDRESS, "inet4", Sent(FieldType.STRING, size=1), whole(4).map(lambda raw: raw.rstrip(b"\0"))),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
@settings(deadline=None)  # a kernel may have to be compiled first
@given(data=st.data())
def test_different_row_images_of_a_key_are_different_values(name: str, data: st.DataObject) -> None:
    """For each type in each form: random images, and images that differ in few bits."""
    chosen = TYPES[name]
    encoding = event_encoding(chosen.column, chosen.sent, is_key=True)
    taken: dict[bytes, object] = {}
    for raw in {*data.draw(st.lists(chosen.raw, max_size=20))}:
        try:
            [taken[raw]] = encoding.array(Values.of([raw])).to_pylist()
        except ValueError:
            continue
    assert len({*taken.values()}) == len(taken)
    assert None not in taken.values()
