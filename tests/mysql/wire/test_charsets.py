from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.mysql.wire.charsets import UnknownCharset, binary, charset_of, key_texts, texts
from lakeingest.mysql.wire.codes import CODECS, has_one_code_each
from lakeingest.mysql.wire.collations import CHARSETS
from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.values import Values
from tests.mysql.database import Db, database_on

# charset → how many bytes its codes have; 1 where it does not stand here, other tests for those of all Unicode
SIZES = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis"), (1, 2)),
    **dict.fromkeys(("eucjpms", "ujis"), (1, 2, 3)),
    "ucs2": (2,),
}
WHOLE_UNICODE = {
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
BYTES = "WITH RECURSIVE bytes (b) AS (SELECT 0 UNION ALL SELECT b + 1 FROM bytes WHERE b < 255)"
QUESTION_MARKS = {b"?", b"\0?"}  # which the server writes for what it has no character for, too
BATCH = 10_000

# MariaDB 10.11.19: some of its own collations, of each charset that has any
OF_MARIADB = {
    576: "utf8mb3", 610: "utf8mb4", 641: "ucs2", 674: "utf16", 738: "utf32",
    1025: "big5", 1032: "latin1", 1057: "utf8mb3", 1069: "utf8mb4", 1086: "utf16le", 1122: "eucjpms", 1270: "utf8mb4",
    2048: "utf8mb3", 2247: "utf8mb3", 2304: "utf8mb4", 2503: "utf8mb4", 2560: "ucs2", 2816: "utf16", 3271: "utf32",
}  # fmt: skip


@pytest.fixture(scope="module")
def db(mysql_server: LocalServer) -> Iterator[Db]:
    """A database with a table of every code of 1 and 2 bytes, and those of 3 that begin with 0x8F."""
    with database_on(mysql_server) as database:
        database.run(
            "CREATE TABLE codes (code VARBINARY(3) PRIMARY KEY)",
            f"INSERT INTO codes {BYTES} SELECT CHAR(b) FROM bytes",
            f"INSERT INTO codes {BYTES} SELECT CONCAT(CHAR(a.b), CHAR(b.b)) FROM bytes a, bytes b",
            "INSERT INTO codes SELECT CONCAT(CHAR(0x8F), code) FROM codes WHERE LENGTH(code) = 2 AND ORD(code) >= 0x80",
        )
        yield database


def values(*raw: bytes | None) -> Values:
    """Values as a walk finds them: NULLs among them, other bytes before, between and after."""
    data, start = bytearray(b"\xff"), []
    for one in raw:
        start.append(-1 if one is None else len(data))
        data += (one or b"") + b"\xff"
    data += b"\xff" * SLACK
    size = [len(one or b"") for one in raw]
    return Values(np.frombuffer(data, np.uint8), np.array(start, np.int32), np.array(size, np.int32))


def converted(code: str, charset: str) -> str:
    """The server's conversion of bytes, in SQL."""
    return f"CONVERT(CONVERT({code} USING {charset}) USING utf8mb4)"


def characters(db: Db, charset: str) -> dict[bytes, str | None]:
    """Every code of a charset, and its character as the server has it; None for what is none."""
    sizes = ", ".join(map(str, SIZES.get(charset, (1,))))
    sql = (
        f"SELECT HEX(code), HEX({converted('code', charset)}) FROM codes WHERE LENGTH(code) IN ({sizes}) ORDER BY code"
    )
    found: dict[bytes, str | None] = {}
    for shown, answer in query(db.connection, sql):
        code, text = bytes.fromhex(shown), bytes.fromhex(answer or "").decode()
        if len(code) > 1 and found.get(code[:1]):
            continue  # a character, and something after it
        none = len(text) != 1 or text == "?" or (text == "\ufffd" and charset != "ucs2")
        found[code] = None if none and code not in QUESTION_MARKS else text
    return found


def is_refused(code: bytes, charset: str) -> bool:
    """Whether the bytes are no text to us."""
    try:
        texts(Values.of([code]), charset)
    except ValueError:
        return True
    return False


@pytest.mark.mysql
def test_every_collation_of_the_server_has_its_charset(db: Db) -> None:
    """By the server's own list."""
    known = query(db.connection, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
    assert len(known) > 200
    assert {int(number): charset_of(int(number)) for number, _ in known} == {
        int(number): name for number, name in known
    }


@pytest.mark.mysql
def test_every_charset_of_the_server_is_supported(db: Db) -> None:
    """All except `binary`, which is not a charset of text, and no others."""
    names = {
        name for (name,) in query(db.connection, "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    }
    assert names - {"binary"} == CHARSETS


@pytest.mark.parametrize(("collation", "charset"), OF_MARIADB.items())
def test_collations_that_only_mariadb_has_are_known(collation: int, charset: str) -> None:
    """Croatian collations, collations without padding, and those of UCA 14."""
    assert charset_of(collation) == charset


@pytest.mark.parametrize("collation", [-1, 0, 17, 100, 272, 324, 1024, 1041, 1280, 2216, 2**31])
def test_an_unknown_collation_is_refused_by_its_number(collation: int) -> None:
    """No charset is guessed."""
    with pytest.raises(UnknownCharset, match=f"collation {collation};"):
        charset_of(collation)


@pytest.mark.parametrize("charset", ["binary", "utf8mb5", ""])
def test_an_unknown_charset_is_refused_by_its_name(charset: str) -> None:
    """`binary` is refused too: it is not a charset of text."""
    with pytest.raises(UnknownCharset, match=f"charset {charset};"):
        texts(values(b"a"), charset)


@pytest.mark.mysql
@pytest.mark.parametrize("charset", sorted(CHARSETS - WHOLE_UNICODE.keys()))
@pytest.mark.long("tens of thousands of codes", only=("eucjpms", "ujis", "gb18030", "euckr"))
def test_every_code_is_the_character_that_the_server_has_for_it(db: Db, charset: str) -> None:
    """A code for which the server has no character is refused."""
    found = characters(db, charset)
    known = {code: character for code, character in found.items() if character}
    assert {len(code) for code in known} == {*SIZES.get(charset, (1,))}
    assert dict(zip(known, texts(Values.of([*known]), charset).to_pylist(), strict=True)) == known
    assert [code for code in found.keys() - known.keys() if not is_refused(code, charset)] == []


@pytest.mark.mysql
@pytest.mark.parametrize("charset", sorted(name for name in CODECS if not has_one_code_each(name)))
def test_a_key_has_the_code_that_the_server_writes_for_a_character(db: Db, charset: str) -> None:
    """So a key that a client wrote in UTF-8 is never refused for its code."""
    codes: dict[str, list[bytes]] = {}
    for code, character in characters(db, charset).items():
        codes.setdefault(character or "", []).append(code)
    several = [one for one, same in codes.items() if one and len(same) > 1]
    written = ", ".join(f"HEX(CONVERT(_utf8mb4 x'{one.encode().hex()}' USING {charset}))" for one in several)
    [answer] = query(db.connection, f"SELECT {written}")
    assert key_texts(Values.of([bytes.fromhex(code) for code in answer]), charset).to_pylist() == several


@pytest.mark.mysql
@pytest.mark.parametrize(("charset", "codec"), WHOLE_UNICODE.items())
def test_every_character_of_unicode_is_what_the_server_reads(db: Db, charset: str, codec: str) -> None:
    """All characters of UTF-8; utf8mb3 has the first 65,536."""
    end = 0x10000 if charset == "utf8mb3" else 0x110000
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, end)]))
    for first in range(0, len(every), BATCH):
        part = every[first : first + BATCH]
        code = part.encode(codec)
        [(answer,)] = query(db.connection, "SELECT " + converted(f"x'{code.hex()}'", charset))
        assert texts(Values.of([code]), charset).to_pylist() == [answer] == [part]


@pytest.mark.mysql
@pytest.mark.long("asks the server for more than a million codes")
def test_every_code_of_four_bytes_is_the_character_that_the_server_has_for_it(db: Db) -> None:
    """The 1.6 million of gb18030, by their first two bytes."""
    leads, digits = range(0x81, 0xFF), range(0x30, 0x3A)
    last = [bytes((c, d)) for c in leads for d in digits]
    db.run(
        "SET SESSION group_concat_max_len = 1000000",
        "CREATE TABLE pairs (code VARBINARY(2) PRIMARY KEY)",
        "INSERT INTO pairs SELECT code FROM codes WHERE LENGTH(code) = 2"
        " AND ORD(code) BETWEEN 0x81 AND 0xFE AND ORD(SUBSTR(code, 2)) BETWEEN 0x30 AND 0x39",
    )
    code = converted("CONCAT(a.code, b.code)", "gb18030")
    sql = f"SELECT HEX(a.code), GROUP_CONCAT({code} ORDER BY b.code SEPARATOR '') FROM pairs a, pairs b GROUP BY a.code"
    for first, answer in query(db.connection, sql):
        pairs = [(bytes.fromhex(first) + one, character) for one, character in zip(last, answer, strict=True)]
        known = b"".join(code for code, character in pairs if character != "?")
        assert texts(Values.of([known]), "gb18030").to_pylist() == [answer.replace("?", "")]
        unknown = [code for code, character in pairs if character == "?"]
        assert [code for code in unknown[::100] if not is_refused(code, "gb18030")] == []


def test_text_is_read_whole_also_next_to_null_and_empty_values() -> None:
    """By every reader of text, whatever bytes surround the values."""
    for charset, (raw, text) in {
        "ascii": (b"plain text", "plain text"),
        "utf8mb3": ("Füße".encode(), "Füße"),
        "utf8mb4": ("Füße 👣".encode(), "Füße 👣"),
        "latin1": (b"F\xfc\xdfe \x80 \x81", "Füße € \x81"),
        "sjis": (b"\x83\x5c \xb6 a", "ソ ｶ a"),
        "ujis": (b"a \xa5\xbd \x8f\xb0\xa1 \x8e\xb6", "a ソ 丂 ｶ"),
        "gb18030": (b"\x81\x35\xf4\x37 \xa8\xbc \x90\x30\x81\x30", "\ue7c7 ḿ \U00010000"),
        "utf16le": ("Füße 👣".encode("utf-16-le"), "Füße 👣"),
    }.items():
        for rows in ([], [None], [b""], [raw], [None, raw, b"", raw, None], [b"", raw, None, raw, b""]):
            found = texts(values(*rows), charset)
            found.validate(full=True)
            assert found.type == pa.string()
            assert found.to_pylist() == [text if row else None if row is None else "" for row in rows], charset


@pytest.mark.parametrize(
    ("charset", "raw"),
    [
        ("ascii", "ä".encode()),
        ("utf8mb3", "👣".encode()),
        ("utf8mb4", b"\xc3"),
        ("utf8mb4", b"\xed\xa0\x80"),
        ("utf8mb4", b"\xf4\x90\x80\x80"),
        ("greek", b"\xa4"),
        ("swe7", b"\x7f"),
        ("gbk", b"\x81"),
        ("gbk", b"\x81\x20"),
        ("ujis", b"\x8f\xb0"),
        ("big5", b"\xa1\xc3"),
        ("ucs2", b"\xd8\x3d\xdc\x63"),
        ("ucs2", b"a"),
        ("utf16", b"\xd8\x3d"),
        ("utf32", b"\0\0\xd8\0"),
        ("gb18030", b"\x81\x30"),
    ],
)
def test_invalid_bytes_are_refused_with_their_row(charset: str, raw: bytes) -> None:
    """Also where a value ends within a character, even if the next bytes would complete it."""
    codec = WHOLE_UNICODE.get(charset, "utf-16-be" if charset == "ucs2" else "ascii")
    before = ["a".encode(codec), None, "�".encode(codec, "ignore")]
    with pytest.raises(ValueError, match=f"^row 3 is not valid {charset}: 0x{raw.hex()}$"):
        texts(values(*before, raw, b"", raw), charset)


def test_a_message_has_only_the_first_bytes_of_a_long_value() -> None:
    """So the message fits on a line."""
    with pytest.raises(ValueError, match=r"^row 0 is not valid ascii: 0x(ff){20}…$"):
        texts(values(b"\xff" * 1000), "ascii")


@given(st.lists(st.none() | st.text(max_size=40)))
def test_any_text_is_read_exactly(rows: list[str | None]) -> None:
    """In UTF-8 and in UTF-16."""
    for charset, codec in (("utf8mb4", "utf-8"), ("utf16", "utf-16-be")):
        encoded = [None if row is None else row.encode(codec) for row in rows]
        assert texts(values(*encoded), charset).to_pylist() == rows


@given(st.lists(st.none() | st.binary(max_size=40)))
def test_any_bytes_are_read_exactly(rows: list[bytes | None]) -> None:
    """With a length, they are padded with zero bytes."""
    assert binary(values(*rows)).to_pylist() == rows
    padded = binary(values(*rows), 40)
    padded.validate(full=True)
    assert padded.to_pylist() == [None if row is None else row.ljust(40, b"\0") for row in rows]


def test_a_value_that_is_longer_than_its_column_is_refused_with_its_row() -> None:
    """It cannot be a value of this column."""
    with pytest.raises(ValueError, match=r"^row 2 has 4 bytes, more than 3$"):
        binary(values(b"abc", None, b"abcd"), 3)


@pytest.mark.parametrize(
    ("read", "byte", "rows"), [(binary, b"a", 2049), (lambda found: texts(found, "latin1"), b"\x80", 683)]
)
def test_more_bytes_than_an_array_can_have_are_refused(
    read: Callable[[Values], pa.Array], byte: bytes, rows: int
) -> None:
    """All rows share the same bytes, so that little memory is needed; no number of 32 bits overflows."""
    data = np.full((1 << 20) + SLACK, byte[0], np.uint8)
    many = Values(data, np.zeros(rows, np.int32), np.full(rows, 1 << 20, np.int32))
    with pytest.raises(ValueError, match="2,148,532,224 bytes are too many for a batch"):
        read(many)
