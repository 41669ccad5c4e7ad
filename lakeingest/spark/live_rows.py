"""The rows of a copy that the source has: in a copy that keeps deleted rows, those that are not marked."""

from typing import TYPE_CHECKING

from lakeingest.core.change import DELETED
from lakeingest.core.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def live(rows: "DataFrame", schema: TableSchema) -> "DataFrame":
    """Of the rows of the table's copy those that are not marked as deleted."""
    return rows.where(f"NOT {DELETED}") if schema.keeps_deleted else rows
