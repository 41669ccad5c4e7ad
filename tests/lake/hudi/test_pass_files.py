"""Rows of passes on the disk of this machine."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from lakeingest.lake.hudi.pass_files import pass_files

SCHEMA = pa.schema([("id", pa.int64()), ("dropped", pa.string()), ("v", pa.list_(pa.float32()))])
AS_STAGED = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.field("item", pa.float32(), nullable=False)))])
PASSES = [range(2), range(2, 4), range(4, 5)]


def rows(*ids: int) -> pa.Table:
    """Rows of a file that does not have the dropped column."""
    return pa.table({"id": ids, "v": [[float(number)] for number in ids]}, schema=AS_STAGED)


@pytest.mark.parametrize("are_many", [False, True])
def test_each_bucket_has_its_rows_of_all_files_in_their_order(*, are_many: bool) -> None:
    """A column that a file does not have is NULL in its rows; a bucket without rows has no entry."""
    with pass_files(SCHEMA, PASSES, are_many=are_many) as files:
        files.add(1, rows(5, 6, 7), np.array([3, 0, 3]))
        files.add(2, rows(), np.array([], np.int64))
        files.add(0, rows(1, 2, 3, 4), np.array([3, 1, 3, 2]))
        found = [files.rows_by_bucket(number) for number in range(3)]
    ids = [{bucket: part["id"].to_pylist() for bucket, part in parts.items()} for parts in found]
    assert ids == [{0: [6], 1: [2]}, {2: [4], 3: [1, 3, 5, 7]}, {}]
    assert all(part.schema == SCHEMA for parts in found for part in parts.values())
    assert found[0][1].to_pylist() == [{"id": 2, "dropped": None, "v": [2.0]}]


def test_threads_add_files_at_the_same_time() -> None:
    """No row is lost, and none comes twice."""
    with pass_files(SCHEMA, PASSES, are_many=False) as files, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: files.add(n, rows(n, 1_000 + n), np.array([n % 5, (n + 3) % 5])), range(200)))
        found = [files.rows_by_bucket(number) for number in range(3)]
    ids = {bucket: part["id"].to_pylist() for parts in found for bucket, part in parts.items()}
    assert all({number % 1_000 % 5 for number in ids[bucket] if number < 1_000} == {bucket} for bucket in range(5))
    assert sorted(number for of_bucket in ids.values() for number in of_bucket) == [*range(200), *range(1_000, 1_200)]
