import hashlib
import zlib
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.proofs.checksum import UINT64, Checksum, Difference, bucket, differences, digest
from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import Kind

CELLS = st.none() | st.text(alphabet="N:019a,ä\n", max_size=4)
ROWS = st.lists(CELLS, max_size=4)
KINDS = st.lists(st.sampled_from([Kind.STRING, Kind.INT32, Kind.JSON]), min_size=4, max_size=4)
CHUNKS = st.dictionaries(st.tuples(st.integers(0, 9)), st.sampled_from(["x", "y", None]), max_size=6)


def rows(chunk: dict[Key, str | None]) -> dict[Key, Checksum]:
    """The checksum of each row of a chunk."""
    return {key: of_texts([str(key[0]), text]) for key, text in chunk.items()}


def of_texts(texts: list[str | None]) -> Checksum:
    """The checksum of a row of columns of texts."""
    return digest([Kind.STRING] * len(texts), texts)


@given(KINDS, ROWS, ROWS)
def test_different_rows_have_different_digests(kinds: list[Kind], one: list[str | None], two: list[str | None]) -> None:
    """The canonical text can be taken apart again, so no two rows share it, whatever a damaged copy has."""
    digests = [digest(kinds[: len(row)], row) for row in (one, two)]
    assert (digests[0] == digests[1]) == (one == two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([None], [""]),
        ([None], ["N"]),
        (["1:a", "b"], ["1", "a1:b"]),
        (["1:a", "b"], ["a", "1:b"]),
        (["", "a"], ["a", ""]),
        ([None, ""], ["", None]),
        (["ä"], ["a\u0308"]),
        (["a", None], ["a"]),
    ],
)
def test_lookalike_rows_have_different_digests(one: list[str | None], two: list[str | None]) -> None:
    """NULL, the empty text, and text that looks like our own framing."""
    for kind in (Kind.STRING, Kind.JSON):
        assert digest([kind] * len(one), one) != digest([kind] * len(two), two)


def test_the_digest_is_the_one_that_the_servers_compute() -> None:
    """The length counts octets, and the two halves are the first 128 bits of SHA-256."""
    row = digest([Kind.INT32, Kind.INT64, Kind.STRING, Kind.STRING, Kind.STRING], ["7", None, "", "ä", None])
    hashed = hashlib.sha256("7\nN\n0:2:äN".encode()).digest()
    assert str(row) == hashed[:16].hex()
    assert (row.rows, row.left) == (1, int.from_bytes(hashed[:8], "big"))


def test_the_bucket_is_the_one_that_the_servers_compute() -> None:
    """By the CRC-32 of the same text."""
    assert bucket(["7", None, "", "ä"], 1000) == zlib.crc32("1:7N0:2:ä".encode()) % 1000


def test_a_checksum_is_written_with_leading_zeros() -> None:
    """Its text has one width."""
    assert str(Checksum(1, 1, UINT64 - 1)) == "0" * 15 + "1" + "f" * 16


@given(st.lists(ROWS, max_size=6).flatmap(lambda chunk: st.tuples(st.just(chunk), st.permutations(chunk))))
def test_a_checksum_does_not_depend_on_the_order_of_rows(
    chunks: tuple[list[list[str | None]], list[list[str | None]]],
) -> None:
    """Neither side has to sort; the empty chunk is the neutral element."""
    one, two = (reduce(add, map(of_texts, chunk), Checksum()) for chunk in chunks)
    assert one == two
    assert one.rows == len(chunks[0])


def test_a_row_that_is_there_twice_changes_the_checksum() -> None:
    """Its halves cancel out, the count does not."""
    row = of_texts(["a"])
    assert row + row == Checksum(2, 0, 0) != Checksum()


@given(CHUNKS, CHUNKS)
def test_differences_name_exactly_the_differing_keys(
    source: dict[Key, str | None], target: dict[Key, str | None]
) -> None:
    """Each once, in key order, with the side that has it."""
    expected = [
        Difference(
            key,
            "only in the target" if key not in source else "only in the source" if key not in target else "differs",
        )
        for key in sorted(source.keys() | target.keys())
        if key not in source or key not in target or source[key] != target[key]
    ]
    assert differences(rows(source), rows(target).items()) == expected


def test_a_key_that_is_twice_in_the_target_differs() -> None:
    """Even where both rows are right."""
    row = of_texts(["a"])
    assert differences({(1,): row}, [((1,), row), ((1,), row)]) == [Difference((1,), "twice in the target")]
