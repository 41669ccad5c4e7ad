import pyarrow as pa

from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.values import Values


def test_values_are_the_bytes_between_their_ends() -> None:
    """In order, with room behind the last one."""
    values = Values.of([b"ab", b"", b"c"])
    assert (len(values), list(values.raw()), values.size.tolist()) == (3, [b"ab", b"", b"c"], [2, 0, 1])
    assert len(values.data) == 3 + SLACK


def test_null_is_neither_bytes_nor_valid() -> None:
    """An array of the values has it at the same places, up to the last of many."""
    values = Values.of([bytes([i]) for i in range(20)])
    assert values.validity is None
    for row in (0, 7, 8, 19):
        values.start[row], values.size[row] = -1, 0
    assert [row for row, raw in enumerate(values.raw()) if raw is None] == [0, 7, 8, 19]
    found = values.column(pa.uint8(), values.data[:20])
    assert [row for row, value in enumerate(found.to_pylist()) if value is None] == [0, 7, 8, 19]
    found.validate(full=True)


def test_first_bytes_are_left_out_of_those_that_have_them() -> None:
    """NULL stays what it is."""
    values = Values.of([b"abcde", b"", b"fghi"])
    values.start[1] = -1
    assert list(values.without_first(4).raw()) == [b"e", None, b""]
