"""What a merge does to the rows of a format without branches, counted by keys alone."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.tables.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.files.local import Local
from lakeingest.lake.staged.effects import effects_of
from lakeingest.lake.staged.key_numbers import KeyNumbers
from lakeingest.lake.target import Effects

KEY = pa.decimal128(20, 0)  # of a BIGINT UNSIGNED


def written(folder: Path, name: str, ids: Sequence[int], deleted: Sequence[int] | None = None) -> Local:
    """A file with rows of these keys, or with changes, of which some are deletes."""
    columns = {"id": pa.array(map(Decimal, ids), KEY)}
    if deleted is not None:
        columns[DELETED] = pa.array([id_ in deleted for id_ in ids], pa.bool_())
    pq.write_table(pa.table(columns), folder / name)
    return Local(folder / name)


def test_a_merge_inserts_updates_and_deletes(tmp_path: Path) -> None:
    """Over two files of rows: 5 is new, 2 and 4 get other values, 1 is deleted, and 9 was never there."""
    rows = [written(tmp_path, "a", [1, 2]), written(tmp_path, "b", [3, 4])]
    changes = [written(tmp_path, "c", [1, 2, 4], [1]), written(tmp_path, "d", [5, 9], [9])]
    assert effects_of(changes, ["id"], rows, [], keeps_deleted=False) == Effects(1, 2, 1)


def test_an_earlier_merge_decides_which_keys_are_there(tmp_path: Path) -> None:
    """1 was deleted and comes back, 3 was inserted and goes."""
    rows = [written(tmp_path, "a", [1, 2])]
    earlier = [[written(tmp_path, "b", [1, 3], [1])]]
    changes = [written(tmp_path, "c", [1, 3], [3])]
    assert effects_of(changes, ["id"], rows, earlier, keeps_deleted=False) == Effects(1, 0, 1)


@pytest.mark.parametrize("places", [[[1, 2, 1]], [[1, 2], [3, 1]]])
def test_a_changed_key_that_two_rows_have_is_refused(tmp_path: Path, places: list[list[int]]) -> None:
    """In one file, and in two."""
    rows = [written(tmp_path, f"{number}", ids) for number, ids in enumerate(places)]
    changes = [written(tmp_path, "c", [1], [])]
    with pytest.raises(StateUnreadable, match="there twice"):
        effects_of(changes, ["id"], rows, [], keeps_deleted=False)


@pytest.mark.parametrize("apart", [1, 10**9], ids=["looked up", "joined"])
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), KEY], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_keys_are_found_by_a_place_for_each_integer_and_by_a_join(apart: int, kind: pa.DataType, seed: int) -> None:
    """With the same result as a look at each row, if keys are close to each other and if they are far apart."""
    chance = np.random.default_rng(seed)
    most = 2 if kind == pa.int32() and apart > 1 else 40  # of keys that are far apart, few fit into 32 bits
    pool = (chance.permutation(most) - most // 2) * apart
    changed, rows = pool[: most // 2], chance.permutation(pool)[: most * 3 // 4]
    table = pa.table({"id": pa.array(rows).cast(kind), "other": pa.array(rows)})
    tables = [table.slice(start, 7) for start in range(0, most, 7)]
    numbers_by_key = {int(key): number for number, key in enumerate(changed)}
    expected = {(int(key), numbers_by_key[int(key)]) for key in rows if int(key) in numbers_by_key}
    keys = KeyNumbers(pa.table({"id": pa.array(changed).cast(kind)}))
    found = [
        (part["other"][int(index)].as_py(), int(number))
        for part, indexes, numbers in keys.found_in(tables)
        for index, number in zip(indexes, numbers, strict=True)
    ]
    assert set(found) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("others", [[2**64 - 1, 0, 2**63], [None, 8, 3]], ids=["beyond 64 bits", "NULL"])
def test_a_row_with_a_key_that_is_no_integer_of_64_bits_has_no_changed_key(others: list[int | None]) -> None:
    """The rows beside it are found all the same: 5 and 6."""
    ids = [others[0], 5, *others[1:], 6]
    rows = pa.table({"id": pa.array([None if one is None else Decimal(one) for one in ids], KEY)})
    [(_, indexes, numbers)] = KeyNumbers(pa.table({"id": pa.array([Decimal(6), Decimal(5)], KEY)})).found_in([rows])
    assert (indexes.tolist(), numbers.tolist()) == ([1, 4], [1, 0])


def test_texts_keys_of_two_columns_and_integers_beyond_64_bits_are_joined() -> None:
    """`a` and `b` are changed, in rows of a wider type of text; no change, no row."""
    texts = KeyNumbers(pa.table({"id": ["a", "b"]}))
    [(_, indexes, numbers)] = texts.found_in([pa.table({"id": pa.array(["b", "c", "a"], pa.large_string())})])
    assert sorted(zip(indexes.tolist(), numbers.tolist(), strict=True)) == [(0, 1), (2, 0)]
    pairs = KeyNumbers(pa.table({"id": [1, 1], "at": ["x", "y"]}))
    [(_, indexes, numbers)] = pairs.found_in([pa.table({"id": [1, 2], "at": ["y", "y"]})])
    assert (indexes.tolist(), numbers.tolist()) == ([0], [1])
    great = KeyNumbers(pa.table({"id": pa.array([Decimal(2**64 - 1)], KEY)}))
    [(_, indexes, numbers)] = great.found_in([pa.table({"id": pa.array([Decimal(1), Decimal(2**64 - 1)], KEY)})])
    assert (indexes.tolist(), numbers.tolist()) == ([1], [0])
    assert not any(len(numbers) for _, _, numbers in KeyNumbers(rows_without_keys()).found_in([pa.table({"id": [1]})]))


def rows_without_keys() -> pa.Table:
    """No keys."""
    return pa.table({"id": pa.array([], pa.int64())})
