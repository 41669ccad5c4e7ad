"""The files of a changelog: names sort as the rows do, and a file ends where a transaction ends."""

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.companions.change_files import is_name, name_of, name_of_copied, rows_at_end, rows_of_file

AT = Place(1, 7, 1234)
COPYING = ReadTo(AT, copying=True, log="a1")
NAMES = [
    name_of(str(ReadTo(Place(1, 7, 999), 12, log="a1"))),
    name_of(str(ReadTo(AT, 3, log="a1"))),
    name_of(str(ReadTo(AT, 10, log="a1"))),
    name_of_copied(COPYING, 1),
    name_of_copied(COPYING, 2),
    name_of_copied(COPYING, 10),
    name_of(str(ReadTo(AT, reread=0, log="a1"))),
    name_of(str(ReadTo(Place(1, 7, 1235), 0, log="a1"))),
    name_of(str(ReadTo(Place(2, 1, 4), 0, log="a1"))),
]


def test_names_sort_as_the_rows_do() -> None:
    """Changes up to a copy, the files of the copy, rows that were read again, and changes after them."""
    assert sorted(NAMES) == NAMES
    assert all(map(is_name, NAMES))
    assert NAMES[3] == "000001.0000000007.00000000000000001234.rows-a1.00000001.parquet"


@pytest.mark.parametrize(
    "name", ["orders.parquet", "000001.parquet", NAMES[0].removesuffix(".parquet"), "1.2.x.parquet", ".parquet"]
)
def test_other_names_are_no_names_of_files(name: str) -> None:
    """So files of others in the folder are found."""
    assert not is_name(name)


def _rows(*transactions: int) -> list[str]:
    """The positions of so many rows of transactions, one after the other."""
    return [
        str(ReadTo(Place(1, 1, 100 * (number + 1)), ordinal, log="a1"))
        for number, count in enumerate(transactions)
        for ordinal in range(count)
    ]


@pytest.mark.parametrize(
    ("transactions", "ops", "is_full", "taken"),
    [
        ((), [], True, 0),
        ((2, 3), ["+I"] * 5, False, 2),
        ((2, 3), ["+I"] * 5, True, 2),
        ((3,), ["+I"] * 3, False, 0),
        ((3,), ["+I"] * 3, True, 3),
        ((3,), ["-U", "+U", "-U"], True, 2),
        ((1,), ["-U"], True, 0),
    ],
)
def test_a_file_ends_where_a_transaction_ends(
    transactions: tuple[int, ...], ops: list[str], *, is_full: bool, taken: int
) -> None:
    """Only a full file of one transaction ends within it, and then not between the two rows of an update."""
    assert rows_of_file(_rows(*transactions), ops, is_full=is_full) == taken


def test_the_last_file_takes_all_rows_but_half_an_update() -> None:
    """The old row of an update waits for the new one."""
    assert rows_at_end([]) == 0
    assert rows_at_end(["-U", "+U"]) == 2
    assert rows_at_end(["+I", "-U"]) == 1
