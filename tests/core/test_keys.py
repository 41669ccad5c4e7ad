import sqlite3
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.tables.keys import Key, KeyRange, quote

NAMES = ("order", "a`b", "c d")  # a reserved word, a quote and a space
SMALL = range(-3, 4)
EXTREMES = (-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1)


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    """A SQL engine with one table for each width of key, which holds every small key."""
    connection = sqlite3.connect(":memory:")
    for width in (1, 2, 3):
        columns = ", ".join(map(quote, NAMES[:width]))
        connection.execute(f"CREATE TABLE t{width} ({columns}, PRIMARY KEY ({columns}))")
        marks = ", ".join("?" * width)
        connection.executemany(f"INSERT INTO t{width} VALUES ({marks})", product(SMALL, repeat=width))
    return connection


def selected(database: sqlite3.Connection, width: int, condition: str) -> set[Key]:
    """The keys of this width for which the condition holds."""
    return set(database.execute(f"SELECT * FROM t{width} WHERE {condition}"))


@given(keys=st.from_type(KeyRange))
def test_the_predicate_holds_for_exactly_the_keys_of_the_range(database: sqlite3.Connection, keys: KeyRange) -> None:
    """A SQL engine selects what `in` says, for one to three columns, with and without bounds."""
    for width in {len(bound) for bound in (keys.lower, keys.upper) if bound} or {1, 2, 3}:
        expected = {key for key in product(SMALL, repeat=width) if key in keys}
        assert selected(database, width, keys.predicate(NAMES[:width])) == expected


@given(bound=st.sampled_from(EXTREMES))
def test_the_predicate_reaches_the_ends_of_bigint(bound: int) -> None:
    """The least and the greatest key are compared as integers, not as floating point."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?)", [(key,) for key in EXTREMES])
    for keys in (KeyRange((bound,), None), KeyRange(None, (bound,))):
        found = set(connection.execute(f"SELECT id FROM t WHERE {keys.predicate(('id',))}"))
        assert found == {(key,) for key in EXTREMES if (key,) in keys}
    connection.close()


def test_a_predicate_of_several_columns_is_expanded() -> None:
    """No row constructors; each branch names all columns before its own, so that MySQL can follow its index."""
    text = KeyRange((1, 2), (3, 4)).predicate(("a", "b"))
    assert text == (
        "`a` >= 1 AND (`a` > 1 OR (`a` = 1 AND `b` >= 2)) AND `a` <= 3 AND (`a` < 3 OR (`a` = 3 AND `b` < 4))"
    )


def test_a_range_without_bounds_is_every_row() -> None:
    """The predicate is a condition even then, so that it can be joined with others."""
    assert KeyRange().predicate(("a",)) == "TRUE"


@given(st.from_type(KeyRange), st.from_type(KeyRange))
def test_ranges_touch_only_end_to_start(one: KeyRange, two: KeyRange) -> None:
    """A range without end is followed by none, and one without beginning follows none."""
    assert one.touches(two) == (one.upper is not None and one.upper == two.lower)


def test_only_the_server_compares_literals() -> None:
    """They are its own, as it writes them; nobody here can tell what is between two of them."""
    texts = KeyRange((7, "_latin1 x'61'"), (7, "_latin1 x'5A'"))
    assert not texts.ordered
    assert texts.predicate(("a", "b")).startswith("`a` >= 7 AND (`a` > 7 OR (`a` = 7 AND `b` >= _latin1 x'61'))")
    with pytest.raises(ValueError, match="only the server knows"):
        assert (7, "_latin1 x'62'") not in texts
    with pytest.raises(ValueError, match="empty"):
        KeyRange(("'2024-01-01'",), ("'2024-01-01'",))
    for forged in ("a", "1 OR 1", "'' OR ''=''", "x'6Z'", "_latin1 x'61' --"):
        with pytest.raises(ValueError, match="not a literal"):
            KeyRange((forged,))


def test_numbers_of_members_are_asked_for_one_by_one() -> None:
    """MySQL follows its index to the members of an ENUM that are equal, and to no range of them."""
    assert KeyRange(("2/4",), ("4/4",)).predicate(("e",)) == "`e` IN (2, 3, 4) AND `e` IN (0, 1, 2, 3)"
    assert KeyRange(("4/4", 5)).predicate(("e", "b")) == "`e` IN (4) AND (FALSE OR (`e` IN (4) AND `b` >= 5))"


def test_an_empty_or_mixed_range_cannot_be_built() -> None:
    """A range holds at least its lower bound, and both bounds are keys of one table."""
    with pytest.raises(ValueError, match="at least one column"):
        KeyRange((), None)
    with pytest.raises(ValueError, match="empty"):
        KeyRange((2,), (2,))
    with pytest.raises(ValueError, match="empty"):
        KeyRange((2, 1), (1, 9))
    with pytest.raises(ValueError, match="different keys"):
        KeyRange((1,), (1, 2))


@given(st.from_type(KeyRange), st.from_type(KeyRange))
def test_a_range_is_parted_by_another(keys: KeyRange, by: KeyRange) -> None:
    """Each of its keys is in one of the parts, and covering says what the parts say."""
    widths = {len(bound) for one in (keys, by) for bound in (one.lower, one.upper) if bound}
    if len(widths) > 1:
        return
    parts = keys.parted(by)
    for key in product(range(-4, 5), repeat=min(widths, default=1)):
        before, inside, after = (part is not None and key in part for part in parts)
        assert inside == (key in keys and key in by)
        assert [before, inside, after].count(True) == (key in keys)
        assert not (by.covers(keys) and (before or after))
    assert by.covers(keys) == (parts[0] is None and parts[2] is None and parts[1] is not None)


def test_ranges_of_an_unknown_order_are_parted_by_all_keys_only() -> None:
    """Which keys are in both, only the server knows."""
    text = KeyRange(("'a'",), None)
    assert text.parted(KeyRange()) == (None, text, None)
    assert text.covers(text)
    assert KeyRange().covers(text)
    assert not text.covers(KeyRange((1,), None))
    with pytest.raises(ValueError, match="only the server knows which keys"):
        KeyRange().parted(text)
