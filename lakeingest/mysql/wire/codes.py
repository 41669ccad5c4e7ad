"""The character of each code (1 to 3 bytes) of MySQL's charsets: by Python's codecs, corrected where MySQL differs.

tests/mysql/wire/test_charsets.py compares every code with the server's own conversion.

Some charsets have several codes for some characters (cp932 for 396 characters). A text in the lake does not tell which
code a character had in MySQL. So two keys that differ only by such codes would become the same key. For keys,
`key_table` has only one code of each character.
"""

import functools
from collections.abc import Iterable, Iterator

import numpy as np

# The bits of a code that distinguish it from other codes: 17 suffice, because all codes of 3 bytes begin with 0x8F
CODE = 0x1FFFF
SIZE_AT = 24  # the lowest bit of the size in an entry of a table

_NONE = "\ufffd"  # a code without a character
_EUC = "euc_jp"  # the codec with codes of 3 bytes

# Charset → the codec of Python that reads it, except for the codes of `_differences`
CODECS = {
    "armscii8": "latin-1",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "dec8": "latin-1",
    "eucjpms": _EUC,
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "geostd8": "latin-1",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "hp8": "hp-roman8",
    "keybcs2": "ascii",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "swe7": "ascii",
    "tis620": "tis-620",
    "ujis": _EUC,
}

# Charset → first code → the characters of this code and of the codes after it
_DIFFERENCES: dict[str, dict[int, str]] = {
    "armscii8": {
        0xA1: "❁§\u0589)(»«—.\u055d,-՟…՜՛՞",
        0xB2: "".join(chr(0x531 + letter) + chr(0x561 + letter) for letter in range(38)) + "\u2019'",
    },
    "big5": {
        **dict.fromkeys((0xA15A, 0xA1C3, 0xA1C5, 0xA1FE, 0xA240, 0xA2CC, 0xA2CE), _NONE),
        0xF9D6: "碁銹裏墻恒粧嫺",
    },
    "cp1256": dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), _NONE),
    "cp866": {0xFC: "ⁿ²"},
    "cp932": dict.fromkeys((0x80, 0xA0, 0xFD, 0xFE, 0xFF), _NONE),
    "dec8": {
        **dict.fromkeys((0xA4, 0xA6, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0), _NONE),
        0xA8: "¤",
        0xAC: _NONE * 4,
        0xD7: "Œ",
        0xDD: "Ÿ",
        0xF7: "œ",
        0xFD: "ÿ" + _NONE * 2,
    },
    "eucjpms": {
        0xA1C1: "\uff5e\u2225",
        0xA1DD: "\uff0d",
        0xA1F1: "￠￡",
        0xA2CC: "￢",
        0x8FA2B7: "\uff5e",
        0x8FA2C3: "￤",
    },
    "geostd8": {
        0x80: "€\ufffd\u201a\ufffd„…†‡\ufffd‰\ufffd\u2039" + _NONE * 5,
        0x91: "\u2018\u2019“”•\u2013—" + _NONE * 3 + "\u203a" + _NONE * 4,
        0xC0: "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ" + _NONE * 23 + "№" + _NONE * 2,
    },
    "greek": {0xA1: "\u02bd\u02bc", 0xA4: _NONE * 2, 0xAA: _NONE},
    "hebrew": {0xAF: "‾"},
    "keybcs2": {
        0x80: "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀",
        0xE0: "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0",
    },
    "koi8u": {0x95: "•"},
    "latin1": {code: chr(code) for code in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "sjis": {0x815F: "\\"},
    "swe7": {0x40: "É", 0x5B: "ÄÖÅÜ", 0x60: "é", 0x7B: "äöåü" + _NONE},
    "ujis": {0xA1C0: "\\"},
}


# Charset → codes that the server never writes, although each is the least code of its character
_NEVER_WRITTEN = {"cp932": range(0xED40, 0xEF00), "sjis": range(0x5C, 0x5D)}


@functools.cache
def code_table(charset: str) -> np.ndarray:
    """The entry of each code of a charset in CODECS, at the index `code & CODE`.

    A code's entry has the UTF-8 of its character, least byte first, and the number of these bytes, from the bit SIZE_AT
    on. The entry of a byte that is not a code is the number of bytes of the codes that may begin with it. Every other
    entry is 0.
    """
    codec = CODECS[charset]
    entries = np.zeros(CODE + 1, np.int64)
    entries[:0x100] = 2  # each byte may begin a code of two bytes; the entries of bytes that are codes follow below
    if codec == _EUC:
        entries[0x8F] = 3
    for code, character in (_by_codec(codec) | dict(_differences(charset))).items():
        if character != _NONE:
            utf8 = character.encode()
            entries[code & CODE] = len(utf8) << SIZE_AT | int.from_bytes(utf8, "little")
    return entries


@functools.cache
def key_table(charset: str) -> np.ndarray:
    """`code_table` with one code of each character: the code that the server writes for it. Other codes are invalid.

    Returns `code_table(charset)` itself if no character of the charset has other codes.
    """
    entries = code_table(charset).copy()
    codes = np.flatnonzero(entries >> SIZE_AT)
    is_never_written = np.isin(codes, _NEVER_WRITTEN.get(charset, ()))
    # sorted so that the first code of each character is the code that the server writes: the least one outside
    # `_NEVER_WRITTEN`
    codes = codes[np.lexsort((codes, is_never_written))]
    _, first_indexes = np.unique(entries[codes], return_index=True)  # equal entries are the same character
    other_codes = np.delete(codes, first_indexes)
    if not len(other_codes):
        return code_table(charset)
    # as in `code_table` for a code without a character: 2 for a byte, 0 for a longer code
    entries[other_codes] = np.where(other_codes < 0x100, 2, 0)
    return entries


def has_one_code_each(charset: str) -> bool:
    """Whether each character of a charset has only one code. If so, different bytes are different texts."""
    return charset not in CODECS or key_table(charset) is code_table(charset)  # not in CODECS: only charsets of Unicode


def _by_codec(codec: str) -> dict[int, str]:
    """The character of every code that Python decodes to a single character.

    A byte that is a code of one byte begins no other code.
    """
    characters = _characters(codec, 1, range(0x100))
    leads = [byte << 8 for byte in range(0x80, 0x100) if byte not in characters]  # first bytes of longer codes
    characters |= _characters(codec, 2, (lead + byte for lead in leads for byte in range(0x100)))
    if codec == _EUC:
        characters |= _characters(codec, 3, range(0x8F8080, 0x900000))
    return characters


def _characters(codec: str, size: int, codes: Iterable[int]) -> dict[int, str]:
    """The character of each code of `size` bytes, without codes that Python does not decode to a single character."""
    decoded = {code: code.to_bytes(size).decode(codec, "replace") for code in codes}
    return {code: text for code, text in decoded.items() if len(text) == 1 and text != _NONE}


def _differences(charset: str) -> Iterator[tuple[int, str]]:
    """Yield the codes of a charset that Python's codec does not have or reads differently, each with its character."""
    for first, characters in _DIFFERENCES.get(charset, {}).items():
        yield from enumerate(characters, first)
    if charset in {"ujis", "eucjpms"}:  # rows for the user's own characters
        rows = [*range(0xF500, 0xFF00, 0x100), *range(0x8FF500, 0x8FFF00, 0x100)]
        codes = [row + cell for row in rows for cell in range(0xA1, 0xFF)]
        yield from ((code, chr(0xE000 + number)) for number, code in enumerate(codes))
    if charset == "eucjpms":  # characters that cp932 has under other codes: signs, and IBM's extensions of JIS
        cp932 = _by_codec("cp932")
        sign_codes = [*range(0x8740, 0x877F), *range(0x8780, 0x879F)]  # of cp932
        yield from ((0xADA1 + cell, cp932.get(code, _NONE)) for cell, code in enumerate(sign_codes))
        extensions = [character for code, character in cp932.items() if 0xFA40 <= code <= 0xFC4B]
        # the extensions that have a code in eucjpms already: by `_DIFFERENCES`, or by Python's codec
        present = {sign for sign in extensions if sign in "￢￤" or sign.encode(_EUC, "ignore")}
        added = [sign for sign in extensions if sign not in present or sign == "№"]  # № gets a second code
        added_codes = [*range(0x8FF3F3, 0x8FF3FF), *range(0x8FF4A1, 0x8FF4FF)]
        yield from zip(added_codes, added, strict=True)
