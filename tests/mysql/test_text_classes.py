"""Classes of texts: two texts that the server finds equal, in a comparison or in a foreign key, are of one class."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from lakeingest.core.cascades.comparison import CHARSETS
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.mysql.connection import query
from lakeingest.mysql.dialect import MARIADB, dialect
from lakeingest.mysql.text_classes import text_classes
from tests.mysql.database import Db, database_on

pytestmark = pytest.mark.mysql

SPACES = ["", " ", "  ", "\u00a0", "a\u00a0", "a\u00a0 ", "a\t", "a\0", "\0", "\1", "a\u3000", "\u3000", "\u00ff "]
LATIN = [*"aAáÁäÅåæÆsßẞoöœŒiI\u0131İeéyüvwWþðdđøØjJ1-_\u00ff", "a ", "A  ", "ae", "ss", "SS", "oe", "ue", "th", "ij"]
OTHERS = ["ﬁ", "fi", "FI", "ĳ", "ǆ", "dž", "DŽ", "e\u0301", "A\u030a", "\u212b", "ch", "CH", "c h", "ll", "a\u200b"]
ASIAN = [*"かがカガｶはハ", "ｶﾞ", "㌀", "アパート", "ﷺ", "صلى الله عليه وسلم", "\U0001f600", "\U0001f601", "\U0001f600 "]
LONG = ["x" * 40 + "ß", "X" * 40 + "SS", "d4e5-1", "D4E5-1", "d4e51", "\uff11", "ﷺ" * 30, "صلى الله عليه وسلم" * 30]
TEXTS = [*SPACES, *LATIN, *OTHERS, *ASIAN, *LONG]
NAMED = [
    *("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_swedish_ci", "latin1_german2_ci"),
    *("ascii_general_ci", "utf8mb4_0900_ai_ci", "utf8mb4_uca1400_ai_ci", "utf8mb4_uca1400_as_cs"),
]


@pytest.fixture(params=[MYSQL, MARIADB_11_4], ids=lambda flavor: flavor.name)
def db(request: pytest.FixtureRequest, server_of: Callable[..., LocalServer]) -> Iterator[Db]:
    """A database on a server of each kind."""
    flavor: Flavor = request.param
    with database_on(server_of(flavor)) as database:
        yield database


def all_collations(db: Db) -> list[str]:
    """Those of the charsets whose texts are compared."""
    name = "FULL_COLLATION_NAME" if dialect(db.connection) is MARIADB else "COLLATION_NAME"
    rows = query(
        db.connection,
        f"SELECT {name}, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
    )
    return sorted(str(collation) for collation, charset in rows if charset in CHARSETS)


def assert_equal_texts_are_of_one_class(db: Db, collation: str) -> None:
    """For all pairs of the texts that the charset has."""
    charset = collation.partition("_")[0]
    written = {text: f"CONVERT(_utf8mb4 x'{text.encode().hex()}' USING {charset})" for text in TEXTS}
    back = (f"CONVERT({one} USING utf8mb4) = BINARY _utf8mb4 x'{text.encode().hex()}'" for text, one in written.items())
    [exist] = query(db.connection, f"SELECT {', '.join(back)}")
    texts = [text for text, exists in zip(TEXTS, exist, strict=True) if exists == "1"]
    classes = text_classes(db.connection, collation, texts)
    pairs = [pair for pair in itertools.combinations(texts, 2) if classes[pair[0]] != classes[pair[1]]]
    assert len(pairs) > 100
    for first in range(0, len(pairs), 2_000):
        part = pairs[first : first + 2_000]
        compared = (f"{written[one]} = {written[other]} COLLATE {collation}" for one, other in part)
        [found] = query(db.connection, f"SELECT {', '.join(compared)}")
        assert [pair for pair, equal in zip(part, found, strict=True) if equal != "0"] == [], collation


@pytest.mark.long("each of hundreds of collations")
def test_equal_texts_are_of_one_class_in_every_collation(db: Db) -> None:
    """Accents, letters that are several ones, spaces of all sorts at the end, texts that are long by their weights."""
    collations = all_collations(db)
    assert len(collations) > 100
    for collation in collations:
        assert_equal_texts_are_of_one_class(db, collation)


def test_equal_texts_are_of_one_class(db: Db) -> None:
    """In the usual collations."""
    known = set(all_collations(db))
    for collation in NAMED:
        if collation in known:
            assert_equal_texts_are_of_one_class(db, collation)


def test_texts_that_differ_in_the_first_letter_are_of_two_classes(db: Db) -> None:
    """Else too many rows would be read again."""
    texts = ["3f", "4f", "3F ", "4F"]
    for collation in ("utf8mb4_general_ci", "utf8mb4_0900_ai_ci", "latin1_swedish_ci"):
        lower, other, upper, _ = text_classes(db.connection, collation, texts).values()
        assert lower == upper != other


@pytest.mark.parametrize(
    "types",
    [
        ("VARCHAR(99)", "VARCHAR(99)"),
        pytest.param(("CHAR(99)", "VARCHAR(99)"), marks=pytest.mark.long("a variant")),
        pytest.param(("VARCHAR(99)", "CHAR(99)"), marks=pytest.mark.long("a variant")),
    ],
    ids=" refers to ".join,
)
@pytest.mark.long("the same on another server", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_a_foreign_key_finds_no_row_of_another_class(db: Db, types: tuple[str, str]) -> None:
    """Of all texts that can be a parent's: the child's rows that go with it are of its class."""
    known, texts = set(all_collations(db)), [text for text in TEXTS if len(text) < 99]
    for collation in NAMED:
        if collation not in known or not collation.startswith("utf8mb4"):
            continue
        db.run(
            f"CREATE TABLE p (t {types[0]} COLLATE {collation} PRIMARY KEY)",
            f"CREATE TABLE c (n INT PRIMARY KEY, t {types[1]} COLLATE {collation},"
            " FOREIGN KEY (t) REFERENCES p (t) ON DELETE CASCADE)",
        )
        for number, text in enumerate(texts):
            value = f"_utf8mb4 x'{text.encode().hex()}'"
            db.run(f"INSERT IGNORE INTO p VALUES ({value})", f"INSERT IGNORE INTO c VALUES ({number}, {value})")
        for (encoded,) in query(db.connection, "SELECT HEX(t) FROM p"):
            parent, before = bytes.fromhex(encoded).decode(), numbers(db)
            db.run(f"DELETE FROM p WHERE t = _utf8mb4 x'{encoded}'")
            gone = [texts[number] for number in before - numbers(db)]
            assert len(set(text_classes(db.connection, collation, [parent, *gone]).values())) == 1, (collation, gone)
        if types[0] == types[1]:  # or some servers let rows of a CHAR stay, where spaces at the end count
            assert numbers(db) == set()
        db.run("DROP TABLE c", "DROP TABLE p")


def numbers(db: Db) -> set[int]:
    """The rows of the child."""
    return {int(number) for (number,) in query(db.connection, "SELECT n FROM c")}
