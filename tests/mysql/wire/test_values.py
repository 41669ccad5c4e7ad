import pyarrow as pa

from lakeingest.mysql.wire.compiled import SLACK
from lakeingest.mysql.wire.values import Values


def test_values_are_the_bytes_at_their_offsets() -> None:
    """In order, with slack after the last one."""
    values = Values.of([b"ab", b"", b"c"])
    assert (len(values), list(values.raw()), values.size.tolist()) == (3, [b"ab", b"", b"c"], [2, 0, 1])
    assert len(values.data) == 3 + SLACK


def test_a_null_has_no_bytes_and_is_not_valid() -> None:
    """Arrays have their NULLs at the same rows."""
    values = Values.of([bytes([i]) for i in range(20)])
    assert values.validity is None
    for row in (0, 7, 8, 19):
        values.start[row], values.size[row] = -1, 0
    assert [row for row, raw in enumerate(values.raw()) if raw is None] == [0, 7, 8, 19]
    found = values.column(pa.uint8(), values.data[:20])
    assert [row for row, value in enumerate(found.to_pylist()) if value is None] == [0, 7, 8, 19]
    found.validate(full=True)


def test_without_first_bytes_removes_the_first_bytes_of_each_value() -> None:
    """NULL stays NULL."""
    values = Values.of([b"abcde", b"", b"fghi"])
    values.start[1] = -1
    assert list(values.without_first_bytes(4).raw()) == [b"e", None, b""]
