import pyarrow as pa
import pytest

from lakeingest.mysql.wire.events import Damaged
from lakeingest.mysql.wire.members import enums, sets
from lakeingest.mysql.wire.values import Values

NAMES = tuple(f"m{i}" for i in range(64))


def values(*numbers: int | None, width: int) -> Values:
    """Numbers in so many bytes."""
    found = Values.of([(number or 0).to_bytes(width, "little") for number in numbers])
    for row, number in enumerate(numbers):
        if number is None:
            found.start[row], found.size[row] = -1, 0
    return found


def test_an_enum_is_the_member_with_its_number() -> None:
    """Counted from 1; 0 is the empty string that MySQL stores for an invalid value."""
    assert enums(values(1, 3, None, 0, width=1), 1, NAMES[:3]).to_pylist() == ["m0", "m2", None, ""]
    many = tuple(f"m{i}" for i in range(300))
    assert enums(values(300, 256, width=2), 2, many).to_pylist() == ["m299", "m255"]


def test_an_enum_number_without_a_member_is_damage() -> None:
    """It does not become another member or NULL."""
    with pytest.raises(Damaged, match="number 4 of 3 members"):
        enums(values(1, 4, width=1), 1, NAMES[:3])


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
def test_a_set_is_the_members_of_its_bits(width: int) -> None:
    """In the order of the declaration, joined by commas; no bit is the empty string."""
    names = NAMES[: 8 * width]
    most = (1 << 8 * width) - 1
    found = sets(values(0, 1, 1 << 8 * width - 1, most, None, 5, width=width), width, names)
    assert found.to_pylist() == ["", "m0", names[-1], ",".join(names), None, "m0,m2"]
    assert found.type == pa.string()


def test_a_set_bit_without_a_member_is_damage() -> None:
    """Also the highest of 64 bits."""
    for names, width in ((NAMES[:7], 1), (NAMES[:63], 8)):
        with pytest.raises(Damaged, match="bits that none"):
            sets(values(1 << 8 * width - 1, width=width), width, names)


def test_empty_and_null_columns_are_read() -> None:
    """Columns without rows, and columns of NULLs."""
    assert enums(values(width=1), 1, NAMES[:3]).to_pylist() == []
    assert sets(values(width=1), 1, NAMES[:3]).to_pylist() == []
    assert enums(values(None, width=1), 1, NAMES[:3]).to_pylist() == [None]
    assert sets(values(None, width=8), 8, NAMES).to_pylist() == [None]
