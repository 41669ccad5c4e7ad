"""Rows of passes on the disk of this machine."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lakeingest.lake.hudi.pass_files import pass_files

SCHEMA = pa.schema([("id", pa.int64()), ("dropped", pa.string()), ("v", pa.list_(pa.float32()))])
AS_STAGED = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.field("item", pa.float32(), nullable=False)))])


def rows(*ids: int) -> pa.Table:
    """Rows of a file that does not have the dropped column."""
    return pa.table({"id": ids, "v": [[float(number)] for number in ids]}, schema=AS_STAGED)


def test_each_pass_has_its_rows_of_all_files() -> None:
    """A column that a file does not have is NULL in its rows; a pass without rows has no file."""
    with pass_files(SCHEMA) as files:
        files.append({0: rows(1, 2), 2: rows(3)})
        files.append({2: rows(4), 1: rows()})
        found = [files.rows(number) for number in range(4)]
    assert [None if part is None else part["id"].to_pylist() for part in found] == [[1, 2], [], [3, 4], None]
    assert all(part is None or part.schema == SCHEMA for part in found)
    assert found[2] is not None
    assert found[2].to_pylist()[0] == {"id": 3, "dropped": None, "v": [3.0]}


def test_threads_append_at_the_same_time() -> None:
    """No row is lost, and none comes twice."""
    with pass_files(SCHEMA) as files, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: files.append({number % 2: rows(number, 1_000 + number)}), range(200)))
        found = [files.rows(number) for number in range(2)]
    ids = [number for part in found if part is not None for number in part["id"].to_pylist()]
    assert sorted(ids) == [*range(200), *range(1_000, 1_200)]
