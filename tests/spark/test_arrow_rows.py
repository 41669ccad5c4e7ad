"""Rows of Arrow in Spark, and back."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakeingest.rows import INSTANT, VECTOR
from lakeingest.spark.arrow_rows import as_dataframe
from lakeingest.spark.collected import collected

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "id": pa.array([1, 2**31 - 1, -(2**31)], pa.int32()),
        "a.b": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
        "`q``": pa.array([Decimal(2**64 - 1), None, Decimal(0)], pa.decimal128(20, 0)),
        "two words": pa.array([Decimal("-0.01"), None, Decimal("1.50")], pa.decimal128(38, 2)),
        "😀": pa.array([0.1, None, -0.0], pa.float64()),
        'say "f"': pa.array([0.1, None, 3e38], pa.float32()),
        "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date32()),
        "at": pa.array([datetime(1, 1, 1, 0, 0, 0, 1), None, datetime(2026, 3, 29, 2, 30)], pa.timestamp("us")),
        "instant": pa.array([datetime(1970, 1, 1, tzinfo=UTC), None, datetime(2038, 1, 19, tzinfo=UTC)], INSTANT),
        "text": pa.array(["", None, "\0😀\n"], pa.string()),
        "bytes": pa.array([b"", None, b"\0\xff"], pa.binary()),
        "bit": pa.array([True, None, False], pa.bool_()),
        "vector": pa.array([[0.5, 1.0], None, []], VECTOR),
    }
)


def test_each_value_of_each_type_comes_back_as_it_was(spark: SparkSession) -> None:
    """Under any name, in several batches; and a table without rows has its columns."""
    frame = as_dataframe(spark, ROWS)
    assert frame.columns == ROWS.column_names
    assert dict(frame.dtypes)["at"] == "timestamp_ntz"
    assert dict(frame.dtypes)["instant"] == "timestamp"
    found = collected(frame)
    assert found is not None
    assert found.sort_by("id").to_pylist() == ROWS.sort_by("id").to_pylist()
    numbers = pa.table({"n": pa.array(range(10_000), pa.int64())})
    assert as_dataframe(spark, numbers).selectExpr("count(*)", "sum(n)").collect() == [(10_000, 49_995_000)]
    empty = as_dataframe(spark, ROWS.schema.empty_table())
    assert (empty.columns, empty.count(), collected(empty)) == (ROWS.column_names, 0, None)
