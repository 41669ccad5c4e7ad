"""The files that have the changelog of a table: their names, and with which row a file ends.

A file is named by the position of its first row. Names sort as the rows do. The file that begins where another one ends
has only one possible name, whoever writes it: so it is made once, and each row is in one file.
"""

from collections.abc import Sequence

from lakeingest.core.binlog.reading import ReadTo

SUFFIX = ".parquet"
_BEFORE_UPDATE = "-U"
_PARTS_OF_PLACE = 3  # a position begins with the epoch, the file and the byte of its place


def name_of(first: str) -> str:
    """The name of a file of changes; `first` is the position of its first row."""
    return f"{first}{SUFFIX}"


def name_of_copied(copying: ReadTo, number: int) -> str:
    """The name of one of the files with a copy's rows. `copying`: the position of these rows.

    All rows of a copy but its last row have the same position, so each name also has a `number`, from 1 on.
    """
    return f"{copying}.{number:08d}{SUFFIX}"


def is_name(name: str) -> bool:
    """Whether `name` is the name of a file of changes, or of a file of a copy."""
    first = name.removesuffix(SUFFIX)
    if first == name:
        return False
    base, _, number = first.rpartition(".")
    # each position ends with `-` and the name of the log. In a name of `name_of_copied`, a point and a number follow
    if "-" in base and number.isdecimal():
        first = base
    try:
        ReadTo.parse(first)
    except ValueError:
        return False
    return True


def rows_of_file(positions: Sequence[str], ops: Sequence[str], *, is_full: bool) -> int:
    """How many of the waiting rows a file takes while more rows may come; 0 if it has to wait.

    `positions` and `ops` have the position and the kind of each waiting row, in order.

    The file ends where a transaction ends. If all rows are of one transaction, which may go on, the file waits. But
    with `is_full`, it takes all rows; only the old row of an update still waits for the new row.
    """
    if not positions:
        return 0
    last_place = _place(positions[-1])
    count = len(positions)
    # the rows of the last transaction are left out, because the transaction may go on
    while count and _place(positions[count - 1]) == last_place:
        count -= 1
    if count or not is_full:
        return count
    return rows_at_end(ops)  # all rows are of one transaction


def rows_at_end(ops: Sequence[str]) -> int:
    """How many of the waiting rows the last file takes.

    The file takes all rows. But if the last row is the old row of an update, that row waits for the new row.
    """
    return len(ops) - 1 if ops and ops[-1] == _BEFORE_UPDATE else len(ops)


def _place(position: str) -> list[str]:
    """The parts of the place with which the text of a position begins: epoch, file and byte."""
    return position.split(".", _PARTS_OF_PLACE)[:_PARTS_OF_PLACE]
