"""The live rows of a copy: those that the source has not deleted. A copy can keep deleted rows, which are marked."""

from typing import TYPE_CHECKING

from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def live_rows(rows: "DataFrame", schema: TableSchema) -> "DataFrame":
    """The rows of a copy without those marked as deleted."""
    return rows.where(f"NOT {DELETED}") if schema.keeps_deleted else rows
