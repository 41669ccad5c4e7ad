"""Rows and changes by the bucket of their key."""

import pyarrow as pa
import pytest

from lakeingest.lake.hudi.by_bucket import bucket_numbers, rows_by_bucket

BUCKETS = 7


def chunked() -> pa.Table:
    """Rows in chunks of several lengths, the second of which has none."""
    ids = iter(range(1_000))
    chunks = [[next(ids) for _ in range(length)] for length in (300, 0, 1, 699)]
    columns = pa.chunked_array(chunks, pa.int64())
    return pa.table({"id": columns, "v": columns.cast(pa.string())})


@pytest.mark.parametrize("threads", [1, 4])
def test_each_row_is_in_the_bucket_of_its_key_in_the_order_of_the_rows(threads: int) -> None:
    """However many chunks the rows have, and however many threads share these."""
    rows = chunked()
    by_bucket = rows_by_bucket(rows, ["id"], ["id"], BUCKETS, threads)
    numbers = bucket_numbers(rows, ["id"], ["id"], BUCKETS).tolist()
    expected = {bucket: [id_ for id_, number in enumerate(numbers) if number == bucket] for bucket in range(BUCKETS)}
    assert {bucket: part["id"].to_pylist() for bucket, part in by_bucket.items()} == expected
    for part in by_bucket.values():
        assert part["_hoodie_record_key"].to_pylist() == part["v"].to_pylist()


def test_no_rows_have_no_buckets() -> None:
    """Of rows without a row there is no bucket."""
    assert rows_by_bucket(chunked().slice(0, 0), ["id"], ["id"], BUCKETS, 2) == {}
