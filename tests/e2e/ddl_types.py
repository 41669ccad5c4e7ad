"""Definitions of columns by chance: types, charsets, defaults, and values that a column of a type holds.

What a server refuses costs nothing: whoever draws goes on from what the server says. So all forms are drawn for all
types, also those that one server alone knows.
"""

import re
from collections.abc import Sequence
from random import Random

# Text that a channel between server and copy may damage; _SHORT ones fit into few characters
SHORT = (
    "",
    "a",
    "A",
    "é",
    "ÿ",
    "中",
    "😀",
    "?",
    "'",
    "''",
    '"',
    "\\",
    "\n",
    "\0",
    "%",
    "`",
    "x y",
    " ",
    "a ",
    "0",
    "7",
)
WORDS = (
    *SHORT,
    "Zürich",
    "a\\nb",
    "line\nfeed",
    "nul\0nul",
    "it's",
    'say "so"',
    "\\0",
    "18",
    "NULL",
    "NOW()",
    "ß€中😀",
)
# Those of which the text of a definition may show another one
TELLING = ("😀", "x😀", "🐬y", "ß€中😀", "\\", "\n", "\0", "a\\nb", "line\nfeed", "nul\0nul", "\\0", "18")
NAMED = 5  # the first MEMBERS, which every server names
TELLING_SHORT = "😀", "🐬", "\\", "\n", "\0"
MEMBERS = (
    "a",
    "b",
    "c",
    "é",
    "中",
    "😀",
    "🐬",
    "it's",
    "x y",
    "?",
    "B",
    "ÿ",
    "0",
    "9",
    "back\\slash",
    '"',
    "line\nfeed",
    "nul\0",
    "''",
)
CHARSETS = {
    "utf8mb4": ("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci"),
    "utf8mb3": ("utf8mb3_bin", "utf8mb3_general_ci"),
    "latin1": ("latin1_bin", "latin1_swedish_ci"),
    "ascii": ("ascii_bin", "ascii_general_ci"),
    "cp1251": ("cp1251_bin", "cp1251_general_ci"),
    "gbk": ("gbk_bin", "gbk_chinese_ci"),
    "ucs2": ("ucs2_bin", "ucs2_general_ci"),
    "utf16": ("utf16_bin", "utf16_general_ci"),
    "utf32": ("utf32_bin", "utf32_general_ci"),
    "binary": ("binary",),
}
NARROW = "latin1", "ascii", "cp1251", "utf8mb3"
FREQUENT = ("utf8mb4", "utf8mb4", "latin1", "latin1", "utf8mb3", "ascii")
BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
# Types of which an expression may show one value in several ways
SHOWN_IN_MANY_WAYS = {*BITS, "decimal", "numeric", "dec", "fixed", "float", "double", "real", "timestamp", "char"}
DATES = ("1000-01-01", "2026-05-05", "9999-12-31", "2000-02-29")
ZERO_DATES = ("0000-00-00", "2026-00-00")
TIMES = ("-838:59:59", "00:00:00", "01:02:03", "838:59:59", "-00:00:01")
FRACTIONS = ("", ".4", ".499999", ".5", ".999", ".123456")
INSTANTS = ("1970-01-02 00:00:01", "2026-05-05 01:02:03", "2037-12-31 23:59:59", "2026-03-29 02:30:00")
# Of an approximate number those that have more digits than a server shows, too
APPROXIMATE = (
    *("1234567.8", "16777217", "-0.0001234567", "0.30000001", "1234567.8"),
    *("0", "-1.5", "0.1", "1e300", "3.402823466e38", "1e-45", "2e9"),
)
JSON = ('{"a": 1}', "[]", '"😀"', "null", "1.50", '{"b": [1, 2, null], "a": "x\\\\y"}')
LENGTHS = (0, 1, 2, 5, 10, 12, 40, 63, 64, 85, 86, 90, 255, 256, 300)
BLOBS = ("", "00", "00ff", "61", "5c27", "ff", "20", "6100", "f09f9880", "0a0d1a")
ADDRESSES = ("::", "::ffff:1.2.3.4", "2001:db8::1")
UUIDS = ("00000000-0000-0000-0000-000000000000", "123e4567-e89b-12d3-a456-426655440000")
# A family of types, and how often it is drawn
FAMILIES = {
    "int": 7,
    "decimal": 3,
    "approximate": 6,
    "bit": 5,
    "char": 12,
    "text": 10,
    "members": 6,
    "binary": 3,
    "blob": 2,
    "date": 2,
    "datetime": 8,
    "timestamp": 3,
    "time": 2,
    "serial": 3,
    "other": 7,
}
# Families that a table mostly draws from, so that DDL meets the same type again and again
DATED = "datetime", "timestamp", "time"
AIMS = (
    *[tuple(FAMILIES)] * 3,
    ("int", "decimal"),
    *[("char", "text")] * 2,
    ("char", "text", "members"),
    DATED,
    ("approximate",),
    ("bit", "approximate"),
)
INTEGERS = (*BITS, *BITS, *BITS, "integer", "int1", "int2", "int3", "int4", "int8", "middleint")
EXPRESSIONS = ("(UUID())", "(NOW())", "(CONCAT('a', 1))", "(id)", "(1 + 1)", "(LENGTH('abc'))")
NUMBERS = ("TRUE", "FALSE", "b'101'", "0b1", "x'05'", "0x1f", "+5", "- 3", "'7'", "'1.5'", "1e2", "12.5", "-0")
MOMENTS = (
    *("CURRENT_TIMESTAMP", "NOW()", "CURRENT_TIMESTAMP(6)", "NOW(3) ON UPDATE NOW(3)", "20260505010203"),
    *("TIMESTAMP'2026-05-05 01:02:03.5'", "DATE'2026-05-05'", "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"),
)
SIGNS = ("", "", "", " UNSIGNED", " UNSIGNED", " SIGNED", " ZEROFILL")
FORMS = {
    "int": [f"{name.upper()}{size}[sign]" for name in INTEGERS for size in ("", "", "", "(1)", "(5)", "(11)")],
    "decimal": [
        f"{name}({digits},{scale})[sign]"
        for name in ("DECIMAL", "NUMERIC", "DEC", "FIXED")
        for digits in (1, 5, 6, 6, 10, 12, 18, 19, 20, 38, 39, 65)
        for scale in (0, 1, 2, 2, 5, 30)
        if scale <= digits
    ],
    "approximate": [
        f"{name}[sign]"
        for name in (
            *("FLOAT", "FLOAT", "FLOAT", "FLOAT(7,3)", "FLOAT(12,4)", "FLOAT(20)", "FLOAT(25)", "REAL", "DOUBLE"),
            *("DOUBLE(12,3)", "DOUBLE PRECISION"),
        )
    ],
    "bit": ["BIT", "BIT(1)", "BIT(2)", "BIT(3)", "BIT(8)", "BIT(9)", "BIT(63)", "BIT(64)"],
    "char": [
        f"{name}({size})[charset]" for name in ("CHAR", "CHAR", "NCHAR", "NATIONAL CHAR") for size in LENGTHS[:11]
    ],
    "text": [
        *(f"{name}({size})[charset]" for name in ("VARCHAR",) * 4 + ("CHARACTER VARYING",) for size in LENGTHS),
        *(f"NVARCHAR({size})" for size in LENGTHS),
        *(
            f"{name}[charset]"
            for name in ("TINYTEXT", "TEXT", "TEXT(90)", "MEDIUMTEXT", "LONGTEXT", "LONG VARCHAR") * 6
        ),
    ],
    "members": ["ENUM([members])[charset]", "ENUM([members])[charset]", "SET([members])[charset]"],
    "binary": [f"{name}({size})" for name in ("BINARY", "VARBINARY", "VARBINARY") for size in LENGTHS],
    "blob": ["TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "LONG VARBINARY"],
    "date": ["DATE"],
    **{
        name: [f"{name.upper()}{digits}" for digits in ("", "", "(0)", "(1)", "(3)", "(6)", "(6)")]
        for name in ("datetime", "timestamp", "time")
    },
    "serial": ["SERIAL"],
    "other": ["YEAR", "BOOL", "JSON", "JSON", "POINT", "VECTOR(3)", "UUID", "INET6", "INET4"],
}


def draw_family(chance: Random, aim: Sequence[str]) -> str:
    """One of FAMILIES, mostly one of the aim."""
    families = aim if chance.random() < 0.9 else list(FAMILIES)
    return chance.choices(families, [FAMILIES[family] for family in families])[0]


def draw_type(
    chance: Random, family: str, members: Sequence[str] = (), *, plain: bool = False, wide: bool = False
) -> str:
    """A type of the family, with its length, sign, charset and collation. `members` are those of an ENUM or a SET.

    `plain`: mostly in the charset of the table. `wide`: in one that holds every character.
    """
    charset = " CHARACTER SET utf8mb4" if wide else "" if plain and chance.random() < 0.95 else _charset(chance)
    form = chance.choice(FORMS[family]).replace("[sign]", chance.choice(SIGNS)).replace("[charset]", charset)
    return form.replace("[members]", ", ".join(map(quoted, members)))


def draw_members(chance: Random, known: Sequence[str] = ()) -> tuple[str, ...]:
    """Members of an ENUM or a SET: new ones, or those that are known, appended, reordered, renamed or removed."""
    # a table with other members often stops, because servers cannot name them
    new = chance.sample(chance.choice([MEMBERS, MEMBERS[:NAMED]]), chance.randrange(1, 6))
    if not known:
        return tuple(new)
    added = [one for one in new if one not in known]
    match chance.choice(["append", "append", "append", "prepend", "shuffle", "remove", "rename", "same"]):
        case "append":
            return (*known, *added)
        case "prepend":
            return (*added, *known)
        case "shuffle":
            return tuple(chance.sample(known, len(known)))
        case "remove":
            return tuple(known[:-1]) or ("a",)
        case "rename":
            return (*known[:-1], *added[:1]) or ("a",)
    return tuple(known)


def draw_related(chance: Random, known: str, members: Sequence[str], *, plain: bool = False) -> str:
    """A type that a column of the type `known`, as the server names it, may become, often without losing anything.

    `members` are those that an ENUM or a SET gets. `plain`: mostly in the charset of the table.
    """
    charset = "" if plain and chance.random() < 0.95 else _charset(chance)
    name, size = name_of(known), sizes_of(known)
    sign = " UNSIGNED" if "unsigned" in known else ""
    pick = chance.choice
    if name not in {"enum", "set"} and pick([True, False, False]):
        return known
    if name in BITS:
        return pick([*BITS][[*BITS].index(name) :]) + pick([sign, " UNSIGNED", " UNSIGNED", ""])
    match name:
        case "decimal":
            more = pick([0, 0, 1, 6])
            return f"DECIMAL({min(65, size[0] + more)},{size[1] + pick([0, 0, 0, min(1, more)])}){sign}"
        case "float" | "double":
            return pick([name, "DOUBLE", "FLOAT(12,4)"]) + sign
        case "varchar" | "char" | "tinytext" | "text" | "mediumtext" | "longtext":
            length = size[0] if size else 12
            other = max(1, min(300, pick([length, length + 1, length + 10, length + 200, length - 1, 1, 2, 3])))
            longer = f"{pick(['VARCHAR', 'VARCHAR', 'VARCHAR', 'CHAR'])}({other})"
            return pick([longer, longer, longer, "TEXT", "MEDIUMTEXT", "LONGTEXT"]) + charset
        case "enum" | "set":
            return f"{name}({', '.join(map(quoted, members))}){charset}"
        case "varbinary" | "binary" | "tinyblob" | "blob" | "mediumblob" | "longblob":
            length = size[0] if size else 12
            other = max(1, min(300, length + pick([0, 1, 200, -1])))
            longer = f"{pick(['VARBINARY', 'VARBINARY', 'BINARY'])}({other})"
            return pick([longer, longer, "BLOB", "LONGBLOB"])
        case "datetime" | "timestamp" | "time":
            most = pick([max(size[0] if size else 0, pick([0, 3, 6])), pick([0, 1, 3])])
            return f"{pick([name, name, name, name, 'datetime', 'timestamp'])}({most})"
        case "bit":
            return f"BIT({min(64, (size[0] if size else 1) + pick([0, 1, 7]))})"
    return known


def draw_default(
    chance: Random, type_: str, members: Sequence[str], *, escapes: bool, double: bool, plain: bool = False
) -> str:
    """What follows the type: a default of any form, or none. `escapes`: a backslash in a literal has a meaning.

    `double`: text may stand between double quotes. `plain`: mostly a literal.
    """
    pick, name = chance.choice, name_of(type_)
    form = pick(["none", "none", "null", "literal", "literal", "literal", "other", "other", "hex", "expression"])
    form = pick([form, "literal"]) if plain else form
    value = draw_value(chance, type_, members)
    wide, short = (TELLING, WORDS), (TELLING_SHORT, SHORT)
    text = pick(members or pick(wide if max(sizes_of(type_), default=99) > 9 else short))
    is_text = name in _TEXT_NAMES or bool(members)
    raw = text.encode() if is_text else bytes.fromhex(pick(BLOBS))
    lacks_none = not is_text or text.isascii() or chance.random() < 0.1  # bytes that a charset lacks stop a table
    stored = raw if lacks_none else b"18"
    hexes = [f"x'{stored.hex()}'", f"X'{stored.hex().upper()}'", f"0x{stored.hex() or '00'}", _bits(stored[:3])]
    match form:
        case "none":
            return ""
        case "null":
            return " DEFAULT NULL"
        case "literal":
            return f" DEFAULT {_literal(chance, text, escapes=escapes, double=double) if is_text else value}"
        case "hex":
            return f" DEFAULT {pick(hexes)}"
        case "expression":
            return f" DEFAULT {pick([f'({value})', f'({value})', *EXPRESSIONS])}"
    if is_text:
        literal = _literal(chance, text, escapes=escapes)
        latin = f"_latin1 x'{text.encode('latin1', 'replace').hex()}'"
        named = [f"_utf8mb4 x'{raw.hex()}'", f"_utf8mb4 0x{raw.hex() or '00'}"]
        given = [f"_utf8mb4{literal}", *named, latin, f"N{literal}"]
        return f" DEFAULT {pick(given)}"
    return f" DEFAULT {pick(MOMENTS if name in _MOMENT_NAMES else NUMBERS)}"


def draw_value(chance: Random, type_: str, members: Sequence[str] = ()) -> str:
    """A literal of a value that a column of the type holds, or at its edge; it is read alike in every session."""
    pick, name, size = chance.choice, name_of(type_), sizes_of(type_)
    if name in BITS:
        return pick(_integers(type_))
    if name in _TEXT_NAMES:
        filler = pick(["", "", "x", "é", "中"]) * pick([1, 1, 40])
        text = (pick(WORDS) + filler)[: size[0] if size else None]
        return f"_utf8mb4 x'{text.encode().hex()}'"
    if "blob" in name or "binary" in name:
        return f"x'{(pick(BLOBS) * pick([1, 1, 20]))[: 2 * size[0] if size else None]}'"
    if name in {"enum", "set"}:
        most = max(1, len(members))
        return str(chance.randrange(1, 1 + most) if name == "enum" else chance.randrange(2**most))
    if name in {"decimal", "numeric", "dec", "fixed"}:
        return pick(_decimals(type_))
    if name == "bit":
        more = (size[0] if size else 1) - 1
        return pick(["0", "1", f"b'1{'1' * more}'", f"b'1{'0' * more}'"])
    literal = pick(LITERALS.get(name, ("0", "1")))
    return literal.replace("[fraction]", pick(FRACTIONS))


def _integers(type_: str) -> list[str]:
    bits = BITS[name_of(type_)]
    is_unsigned = "unsigned" in type_.lower() or "zerofill" in type_.lower()
    least, most = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    sign = "" if is_unsigned else "-"  # of most values, which a column that becomes unsigned loses
    return [str(least), str(most), "0", f"{sign}7", str(least // 3), f"{sign}{most // 3}"]


def _decimals(type_: str) -> list[str]:
    digits, scale = (*sizes_of(type_), 10, 0)[:2] if sizes_of(type_) else (10, 0)
    most = "9" * (digits - scale) + ("." + "9" * scale if scale else "")
    least = "0." + "0" * max(0, scale - 1) + "1"
    return ["0", most, least, "1", *([f"-{most}"] * ("unsigned" not in type_))]


LITERALS = {
    "float": APPROXIMATE,
    "double": APPROXIMATE,
    "real": APPROXIMATE,
    "date": [f"'{one}'" for one in DATES],
    "datetime": [f"'{one} {time}[fraction]'" for one in DATES for time in ("00:00:00", "23:59:58")],
    "timestamp": [f"'{one}[fraction]'" for one in INSTANTS],
    "time": [f"'{one}[fraction]'" for one in TIMES],
    "year": ("1901", "2155", "0", "2026"),
    "json": [f"_utf8mb4 x'{one.encode().hex()}'" for one in JSON],
    "point": ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-0.5 1e300)')"),
    "vector": ("x'0000803f0000004000004040'",),
    "uuid": [f"'{one}'" for one in UUIDS],
    "inet6": [f"'{one}'" for one in ADDRESSES],
    "inet4": ("'10.0.0.255'", "'0.0.0.0'"),
}
_TEXT_NAMES = {
    *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "nchar", "nvarchar", "national", "character"),
    "long",
}
_MOMENT_NAMES = {"date", "datetime", "timestamp", "time"}


def name_of(type_: str) -> str:
    """The first word of a type, in lower case, by its usual name."""
    name = re.split(r"\W", type_.lower(), maxsplit=1)[0]
    usual = {"integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint"}
    usual |= {"int4": "int", "int8": "bigint", "bool": "tinyint", "boolean": "tinyint", "serial": "bigint"}
    return usual.get(name, name)


def sizes_of(type_: str) -> tuple[int, ...]:
    """The numbers between its parentheses; none for an ENUM or a SET."""
    found = re.match(r"[\w ]+\((\d+)(?:,(\d+))?\)", type_)
    return tuple(int(one) for one in found.groups() if one is not None) if found else ()


def quoted(text: str) -> str:
    """A literal of text that every session reads alike: the backslash is doubled, and that is one only with escapes."""
    return "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"


def _charset(chance: Random) -> str:
    charset = chance.choice([*FREQUENT, *FREQUENT, *CHARSETS])
    collation = chance.choice(CHARSETS[charset])
    named = f" CHARACTER SET {charset}"
    return chance.choice(["", "", "", named, named, f"{named} COLLATE {collation}", f" COLLATE {collation}", " BINARY"])


def _literal(chance: Random, text: str, *, escapes: bool, double: bool = False) -> str:
    """The text between quotes: with names for control characters, or with these as they are; or in two parts."""
    mark = '"' if double and chance.random() < 0.3 else "'"
    found = text.replace(mark, mark * 2)
    if escapes:
        found = found.replace("\\", "\\\\")
        found = found.replace("\n", "\\n").replace("\0", "\\0") if chance.random() < 0.5 else found
    return f"{mark}{found}{mark}{chance.choice([''] * 9 + [f' {mark}{mark}'])}"


def _bits(raw: bytes) -> str:
    return f"b'{int.from_bytes(raw, 'big'):b}'" if raw else "b''"
