"""How an audit finds keys in rows: few integers are searched, all other keys are joined, with the same result."""

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from lakeingest.pipeline.publishing import audit
from lakeingest.pipeline.publishing.audit import _keys_there_twice, key_pairs

INTEGERS = (pa.int32(), pa.int64(), pa.uint64())


def found(rows: pa.Table, keys: pa.Table) -> set[tuple[int, int]]:
    """The pairs that `key_pairs` finds."""
    row_numbers, key_numbers = key_pairs(rows, keys)
    pairs = list(zip(row_numbers.tolist(), key_numbers.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


@pytest.mark.parametrize("seed", range(30))
def test_few_integers_are_found_as_by_a_join(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In any order, rows twice, none, and the least and the greatest values of the type."""
    chance = random.Random(seed)
    kind = INTEGERS[seed % len(INTEGERS)]
    least, greatest = (
        (0, 2**64 - 1) if kind == pa.uint64() else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    )
    values = list(dict.fromkeys([least, greatest, *range(max(least, -5), 20)]))
    rows = pa.table({"id": pa.array(chance.choices(values, k=chance.randrange(40)), kind)})
    keys = pa.table({"id": pa.array(chance.sample(values, chance.randrange(len(values))), kind)})
    searched, twice = found(rows, keys), _keys_there_twice(rows)
    listed, wanted = rows["id"].to_pylist(), keys["id"].to_pylist()
    assert searched == {
        (row, key) for row, one in enumerate(listed) for key, other in enumerate(wanted) if one == other
    }
    assert set(twice["id"].to_pylist()) == {one for one in listed if listed.count(one) > 1}
    assert twice.num_rows == len(set(twice["id"].to_pylist()))
    monkeypatch.setattr(audit, "few_integers", lambda _: None)
    assert found(rows, keys) == searched
    assert set(_keys_there_twice(rows)["id"].to_pylist()) == set(twice["id"].to_pylist())


def test_a_damaged_row_without_a_key_has_no_pair() -> None:
    """NULL is no key; the other rows are found."""
    rows, keys = pa.table({"id": pa.array([7, None, 8])}), pa.table({"id": pa.array([8, 0])})
    assert found(rows, keys) == {(2, 0)}


@pytest.mark.parametrize(
    "keys",
    [
        pa.table({"id": [1, 1, 2], "part": [1, 2, 1]}),  # two columns
        pa.table({"id": pa.array([Decimal(2**64 - 1), Decimal(1), Decimal(0)], pa.decimal128(20, 0))}),
        pa.table({"id": pa.array(["a", "b", "A"])}),
    ],
)
def test_other_keys_are_joined(keys: pa.Table) -> None:
    """Each row of these keys has itself for its pair, and none is there twice."""
    assert found(keys, keys) == {(0, 0), (1, 1), (2, 2)}
    assert not _keys_there_twice(keys).num_rows
    assert _keys_there_twice(pa.concat_tables([keys, keys.slice(1, 1)])).equals(keys.slice(1, 1))
