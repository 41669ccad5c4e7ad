"""What a copy has in the place of values that it hides."""

import hashlib
import hmac
import unicodedata
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.column_choice import HASHED, MASKED
from lakeingest.core.tables.schema import Column, Kind, SourceType
from lakeingest.mysql.wire.hiding import hashed, hidden, masked

SECRET = b"a key of hashes"
TEXT = SourceType("text", "text")


def digest(octets: bytes) -> str:
    """HMAC-SHA256 as RFC 2104 has it, with a key that is shorter than a block."""
    inner, outer = (bytes(byte ^ pad for byte in SECRET.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    return hashlib.sha256(outer + hashlib.sha256(inner + octets).digest()).hexdigest()


@pytest.mark.parametrize(
    ("values", "type_", "octets"),
    [
        (["a", "", "ä", None], pa.string(), [b"a", b"", "ä".encode(), None]),
        ([1, -5, None], pa.int32(), [b"1", b"-5", None]),
        ([Decimal(2**64 - 1)], pa.decimal128(20, 0), [b"18446744073709551615"]),
        ([Decimal("1.50"), Decimal("-0.0000001")], pa.decimal128(20, 7), [b"1.5000000", b"-0.0000001"]),
        ([b"\xff\0", b""], pa.binary(), [b"\xff\0", b""]),
        ([None, None], pa.string(), [None, None]),
        ([], pa.string(), []),
    ],
)
def test_a_hash_is_that_of_the_text_or_of_the_bytes(
    values: list[Any], type_: pa.DataType, octets: list[bytes | None]
) -> None:
    """NULL stays NULL, and equal values of two types have one hash."""
    found = hashed(pa.array(values, type_), SECRET)
    assert found.type == pa.string()
    assert found.to_pylist() == [None if each is None else digest(each) for each in octets]
    assert digest(b"a") == hmac.new(SECRET, b"a", "sha256").hexdigest()


def test_nothing_is_hashed_without_a_key() -> None:
    """It fails, even without a value."""
    with pytest.raises(ValueError, match="no key"):
        hashed(pa.array(["a"]), b"")
    with pytest.raises(TypeError, match="float has no exact text"):
        hashed(pa.array([1.5]), SECRET)


def test_the_form_decides() -> None:
    """Of the column in the copy."""
    column = Column("e", Kind.STRING, TEXT, choice=HASHED, secret=SECRET)
    assert hidden(pa.array(["a"]), column).to_pylist() == [digest(b"a")]
    assert hidden(pa.array(["a"]), Column("e", Kind.STRING, TEXT, choice=MASKED)).to_pylist() == ["x"]


def mask(text: str) -> str:
    """The mask of a text, character by character."""
    masks = {"Lu": "X", "Lt": "X", "Ll": "x", "Lm": "x", "Lo": "x"}
    by_first = {"M": "x", "N": "9"}
    found = []
    for letter in text:
        category = unicodedata.category(letter)
        other = letter if letter.isascii() else "*"
        found.append(masks.get(category) or by_first.get(category[0]) or other)
    return "".join(found)


def test_a_mask_keeps_length_and_kinds_of_characters() -> None:
    """And what lies between letters and digits, if it is ASCII."""
    texts = ["+49 (171) 555-0199", "Anna.Müller@example.com", "ЖЩ 文字 ٣", "🚀 €", "a\nb\0", "", None]
    wanted = ["+99 (999) 999-9999", "Xxxx.Xxxxxx@xxxxxxx.xxx", "XX xx 9", "* *", "x\nx\0", "", None]
    assert masked(pa.array(texts)).to_pylist() == wanted
    assert [None if text is None else mask(text) for text in texts] == wanted


# Python's and Arrow's versions of Unicode differ in newer characters
OLD = st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs", "Cn"))


@given(st.lists(st.text(OLD)))
def test_a_mask_is_made_character_by_character(texts: list[str]) -> None:
    """Whatever the characters are."""
    assert masked(pa.array(texts, pa.string())).to_pylist() == list(map(mask, texts))
