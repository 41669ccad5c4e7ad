"""UUIDs and addresses from bytes; the servers' own texts are in tests/mysql/test_mariadb.py."""

import ipaddress
import random
import uuid

import pytest

from lakeingest.mysql.wire.identifiers import addresses, uuids
from lakeingest.mysql.wire.values import Values


def values(raw: list[bytes | None]) -> Values:
    """Values without the zeros at their end, as a row image has them."""
    found = Values.of([(one or b"").rstrip(b"\0") for one in raw])
    for row, one in enumerate(raw):
        if one is None:
            found.start[row] = -1
    return found


def test_uuids_equal_those_of_python() -> None:
    """Also with trailing zeros and with NULLs."""
    random_ = random.Random(7)
    raw = [None, bytes(16), *(random_.randbytes(n).ljust(16, b"\0") for n in range(17)), None]
    assert uuids(values(raw)).to_pylist() == [None if one is None else str(uuid.UUID(bytes=one)) for one in raw]
    assert uuids(values([])).to_pylist() == []
    assert uuids(values([None])).to_pylist() == [None]


def test_addresses_are_written_as_mariadb_does() -> None:
    """Both families, with trailing zeros."""
    random_ = random.Random(7)
    for size, of in ((16, ipaddress.IPv6Address), (4, ipaddress.IPv4Address)):
        raw = [bytes(size), *(random_.randbytes(n).ljust(size, b"\0") for n in range(size + 1))]
        assert [of(one) for one in addresses(values([*raw]), size).to_pylist()] == [of(one) for one in raw]
        assert addresses(values([None]), size).to_pylist() == [None]


@pytest.mark.parametrize("size", [16, 4])
def test_a_value_that_is_too_long_is_refused(size: int) -> None:
    """The column has another type than expected."""
    with pytest.raises(ValueError, match=f"has {size + 1} bytes, more than {size}"):
        addresses(Values.of([b"x" * (size + 1)]), size)
