"""Each form of DDL is drawn: what is not drawn is not proven by `test_random_ddl`."""

import re
from collections.abc import Iterator
from random import Random

import pytest

from tests.e2e.ddl_grammar import Grammar, Known, Statement

SEEDS, FEW = 4000, 600
KNOWN = Known(
    {
        "c1": "int",
        "c2": "varchar(12)",
        "c3": "enum('a','b')",
        "c4": "datetime(3)",
        "c5": "decimal(6,2)",
        "c6": "float",
        "c7": "bit(3)",
        "c8": "varbinary(9)",
        "c9": "set('a','b')",
        "c10": "text",
    },
    ("id",),
    {"g1": "length(`c2`)", "g2": "`c4`"},
)
MEMBERS = {"c3": ("a", "b"), "c9": ("a", "b")}
TYPES = {
    "integer": r"(TINY|SMALL|MEDIUM|BIG)?INT\b",
    "unsigned": r"\w*INT[\d()]* UNSIGNED",
    "decimal": r"(DECIMAL|NUMERIC|DEC|FIXED)\b",
    "float": r"FLOAT\b",
    "double": r"DOUBLE|REAL",
    "bit": r"BIT\b",
    "year": r"YEAR",
    "char": r"(NATIONAL |N)?CHAR\(\d+\)",
    "varchar": r"(VARCHAR|NVARCHAR|CHARACTER VARYING)\(\d+\)",
    "text": r"\w*TEXT\b",
    "enum": r"(?i:ENUM)\(('(?:[^']|'')*'(?:, )?)+\)",
    "set": r"(?i:SET)\(('(?:[^']|'')*'(?:, )?)+\)",
    "binary": r"(VAR)?BINARY\(\d+\)",
    "blob": r"\w*BLOB",
    "date": r"DATE\b",
    "datetime": r"DATETIME\b",
    "timestamp": r"TIMESTAMP\b",
    "time": r"TIME\b",
    "json": r"JSON",
}
DEFAULTS = {
    "literal": r"DEFAULT ['\"\d-]",
    "hexadecimal": r"DEFAULT ([xX]'|0x)",
    "of bits": r"DEFAULT (b'|0b)",
    "expression": r"DEFAULT \(",
    "NULL": r"DEFAULT NULL",
    "without": r"(?!.*DEFAULT)",
}
TEXT_DEFAULTS = {
    "introducer": r"DEFAULT _\w+ ?(x'|'|0x)",
    "national": r"DEFAULT N'",
    "beyond U+FFFF": "DEFAULT '[^']*[\U00010000-\U0010ffff]",
    "backslash": r"DEFAULT '[^']*\\",
    "line feed": r"DEFAULT '[^']*(\n|\\n)",
    "NUL": r"DEFAULT '[^']*(\0|\\0)",
    "quote": r"DEFAULT '[^']*''",
    "double quotes": 'DEFAULT "',
}
TEXTS, MOMENTS = ("char", "varchar", "enum"), ("datetime", "timestamp")
REST = r"(?:\([\d,]+\))?[^,]*?"  # of the type: length, charset, sign, NOT NULL
CLAUSES = {
    **{f"{type_} {of} default": rf"(?s)^{TYPES[type_]}{REST}{DEFAULTS[of]}" for type_ in TYPES for of in DEFAULTS},
    **{
        f"{type_} with {of}": rf"(?s)^{TYPES[type_]}{REST}{TEXT_DEFAULTS[of]}"
        for type_ in TEXTS
        for of in TEXT_DEFAULTS
    },
    **{f"{type_} with a function": rf"^{TYPES[type_]}{REST}DEFAULT (NOW|CURRENT_TIMESTAMP)" for type_ in MOMENTS},
    **{f"{type_} NOT NULL": rf"(?s)^{TYPES[type_]}{REST}NOT NULL" for type_ in TYPES},
    **{
        f"{type_} with a charset": rf"^{TYPES[type_]} CHARACTER SET"
        for type_ in ("char", "varchar", "text", "enum", "set")
    },
    **{
        f"{type_} with a collation": rf"^{TYPES[type_]} COLLATE" for type_ in ("char", "varchar", "text", "enum", "set")
    },
    "SERIAL": r"^SERIAL",
    "SERIAL DEFAULT VALUE": r"SERIAL DEFAULT VALUE",
    "AUTO_INCREMENT": r"INT\b.*AUTO_INCREMENT",
    "first": r"FIRST$",
    "after": r"AFTER \w+$",
}
ACTIONS = {
    **{
        name: rf"^{name}\b"
        for name in ("ADD", "MODIFY", "CHANGE", "DROP COLUMN", "RENAME COLUMN", "CONVERT TO", "FORCE")
    },
    "several in parentheses": r"^ADD \(\w+ .*, \w+ ",
    "a default alone": r"^ALTER \w+ SET DEFAULT",
    "no default": r"^ALTER \w+ DROP DEFAULT",
    "stored": r"^ADD \w+ .* STORED",
    "virtual": r"^ADD \w+ .* VIRTUAL",
    "generated of generated": r"^ADD \w+ .* AS \([^)]*\bg\d",
    "generated defined anew": r"^MODIFY g\d .* AS ",
    "another key": r"^DROP PRIMARY KEY",
    "type of the key": r"^MODIFY id ",
    "charset of the table": r"^DEFAULT CHARACTER SET",
}


def drawn(seeds: int) -> Iterator[Statement]:
    """DDL of a table as many grammars draw it."""
    for seed in range(seeds):
        grammar = Grammar(Random(seed))
        grammar.accepted(Statement("", members=MEMBERS), KNOWN)
        for _ in range(12):
            yield from grammar.ddl()


@pytest.fixture(scope="module")
def statements() -> list[Statement]:
    """All of them."""
    return list(drawn(SEEDS))


@pytest.fixture(scope="module")
def few() -> list[Statement]:
    """Enough of them for what is drawn often."""
    return list(drawn(FEW))


@pytest.mark.long("whole runs")
def test_each_clause_is_drawn_with_each_type(statements: list[Statement]) -> None:
    """Each default, sign, charset and place with each type that it can stand behind."""
    defined = [re.sub(r"^(ADD|MODIFY|CHANGE \w+) (COLUMN )?\w+ ", "", part) for one in statements for part in one.parts]
    missing = [name for name, pattern in CLAUSES.items() if not any(re.search(pattern, part) for part in defined)]
    assert missing == [], missing


def test_each_action_is_drawn(few: list[Statement]) -> None:
    """Alone, and with others in one statement."""
    parts = [part for one in few for part in one.parts]
    assert [name for name, pattern in ACTIONS.items() if not any(re.search(pattern, part) for part in parts)] == []
    assert {len(one.parts) for one in few} >= {1, 2, 3}


def test_members_are_appended_reordered_renamed_and_removed(few: list[Statement]) -> None:
    """In an ENUM or a SET that is defined anew."""
    found = {members for one in few for name, members in one.members.items() if name in MEMBERS}
    assert any(members[:2] == ("a", "b") and len(members) > 2 for members in found)
    assert {("b", "a"), ("a",)} < found
    assert any(members[0] == "a" and members[1:] and members[1] != "b" for members in found)
    assert any(ord(max("".join(members))) > 0xFFFF for members in found)


def test_sessions_are_strict_and_not_and_have_zones_and_charsets(few: list[Statement]) -> None:
    """The settings that decide what a statement does."""
    sessions = {one.session for one in few}
    assert {"STRICT" in one.mode for one in sessions} == {True, False}
    assert {(one.zone == "+00:00", one.client == "utf8mb4", one.plain_timestamps) for one in sessions} >= {
        (True, True, True),
        (False, True, True),
        (True, False, True),
        (True, True, False),
    }


@pytest.mark.long("whole runs")
def test_the_same_seed_draws_the_same(statements: list[Statement]) -> None:
    """A seed is enough to see a failure again."""
    assert list(drawn(SEEDS)) == statements
