"""The live rows of a copy: in a copy that keeps deleted rows, the rows that are not marked as deleted."""

from typing import TYPE_CHECKING

from lakeingest.core.change import DELETED
from lakeingest.core.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def live(rows: "DataFrame", schema: TableSchema) -> "DataFrame":
    """The rows of a copy without those marked as deleted."""
    return rows.where(f"NOT {DELETED}") if schema.keeps_deleted else rows
