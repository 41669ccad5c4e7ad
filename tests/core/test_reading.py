"""How far a reader of the changelog has read: strings that sort as the lines do."""

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo

AT = Place(1, 7, 1234)
IN_ORDER = [
    ReadTo(Place(1, 7, 999), 12, log="a1"),
    ReadTo(AT, 0, log="a1"),
    ReadTo(AT, 3, log="a1"),
    ReadTo(AT, 10, log="a1"),
    ReadTo(AT, copying=True, log="a1"),
    ReadTo(AT, log="a1"),
    ReadTo(AT, log="a1", reread=0),
    ReadTo(AT, log="a1", reread=12),
    ReadTo(Place(1, 7, 1235), 0, log="a1"),
    ReadTo(Place(1, 10, 4), 0, log="a1"),
    ReadTo(Place(2, 1, 4), 0, log="a1"),
]


def test_positions_sort_as_the_lines_do() -> None:
    """The changes of a transaction by their number, a copy as of it, rows that were read again, what comes after.

    On MariaDB that may have the next number of a place.
    """
    texts = [str(one) for one in IN_ORDER]
    assert sorted(texts) == texts
    assert sorted(IN_ORDER, key=lambda one: one.order) == IN_ORDER
    assert [ReadTo.parse(text) for text in texts] == IN_ORDER
    assert texts[2] == "000001.0000000007.00000000000000001234.0000000003-a1"
    assert texts[4:7] == [
        "000001.0000000007.00000000000000001234.rows-a1",
        "000001.0000000007.00000000000000001234.rows.end-a1",
        "000001.0000000007.00000000000000001234.rows.reread.0000000000-a1",
    ]


def test_a_position_may_come_without_the_name_of_a_changelog() -> None:
    """Then it is one of any; a place alone is all of its transaction."""
    assert ReadTo.parse("1.7.1234") == ReadTo(AT) == ReadTo.parse(str(ReadTo(AT)))
    assert ReadTo.parse("1.7.1234.3") == ReadTo(AT, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.7",
        "1.7.8.x",
        "1.7.8.rows.start",
        "1.7.8.rows.reread",
        "1.7.8.rows.reread.x",
        "1.7.8.9-",
        "1.7.8.9-A!",
        "binlog.000001:4",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """No position is guessed."""
    with pytest.raises(ValueError, match="not a position of the changelog"):
        ReadTo.parse(text)
