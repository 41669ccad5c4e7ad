"""The charset of every collation. The server sends a column's charset as the id of a collation."""

import functools

# Charset → the ids of its collations in MySQL 8.4 and 9.7 and MariaDB 10.11
_COLLATIONS = {
    "armscii8": "32 64",
    "ascii": "11 65",
    "big5": "1 84",
    "binary": "63",
    "cp1250": "26 34 44 66 99",
    "cp1251": "14 23 50-52",
    "cp1256": "57 67",
    "cp1257": "29 58-59",
    "cp850": "4 80",
    "cp852": "40 81",
    "cp866": "36 68",
    "cp932": "95-96",
    "dec8": "3 69",
    "eucjpms": "97-98",
    "euckr": "19 85",
    "gb18030": "248-250",
    "gb2312": "24 86",
    "gbk": "28 87",
    "geostd8": "92-93",
    "greek": "25 70",
    "hebrew": "16 71",
    "hp8": "6 72",
    "keybcs2": "37 73",
    "koi8r": "7 74",
    "koi8u": "22 75",
    "latin1": "5 8 15 31 47-49 94",
    "latin2": "2 9 21 27 77",
    "latin5": "30 78",
    "latin7": "20 41-42 79",
    "macce": "38 43",
    "macroman": "39 53",
    "sjis": "13 88",
    "swe7": "10 82",
    "tis620": "18 89",
    "ucs2": "35 90 128-151 159 640-642 2560-2727 2744-2759",
    "ujis": "12 91",
    "utf16": "54-55 101-124 672-674 2816-2983 3000-3015",
    "utf16le": "56 62",
    "utf32": "60-61 160-183 736-738 3072-3239 3256-3271",
    "utf8mb3": "33 76 83 192-215 223 576-578 2048-2215 2232-2247",
    "utf8mb4": "45-46 224-247 255-271 273-275 277-294 296-298 300 303-323 608-610 2304-2471 2488-2503",
}
_NO_PAD = range(1024, 1280)  # MariaDB's collations without padding: each with the id of the padded collation plus 1024

CHARSETS = frozenset(_COLLATIONS) - {"binary"}
"""The charsets of text, which `wire.charsets` decodes exactly."""


class UnknownCharset(ValueError):
    """The id of a collation, or the name of a charset, is not known."""


@functools.cache
def charset_of(collation: int) -> str:
    """The charset of the collation with this id; `binary` for bytes. Raises UnknownCharset for an unknown id."""
    # the id without the 1024: the padded collation has the same charset
    padded = collation - _NO_PAD.start if collation in _NO_PAD else collation
    for charset, ranges in _COLLATIONS.items():
        for ids in ranges.split():
            first, _, last = ids.partition("-")  # a single id has no last one
            if int(first) <= padded <= int(last or first):
                return charset
    raise UnknownCharset(f"a text of the unknown collation {collation}; report it to the lakeingest project")
