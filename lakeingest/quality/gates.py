"""The gate before publish: the staged rows are whole, by a count that does not come from the rows themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gate counted. `expected_rows`: rows before + chunk rows + keys inserted - keys deleted."""

    rows: int
    expected_rows: int
    null_keys: int
    distinct_keys: int

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, one sentence each; empty when the gate is passed."""
        checks = (
            (self.null_keys == 0, f"{self.null_keys} rows have no key"),
            (self.distinct_keys == self.rows, f"{self.rows - self.distinct_keys} rows share their key with another"),
            (self.rows == self.expected_rows, f"{self.rows} rows are staged, {self.expected_rows} were written"),
        )
        return tuple(sentence for passed, sentence in checks if not passed)


def check_rows(rows: "DataFrame", key: Sequence[str], expected_rows: int) -> GateReport:
    """Count the staged rows: key not null, key unique, as many as the commits so far must have left."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    keys = [F.col(f"`{name}`") for name in key]
    no_key = F.lit(False)
    for column in keys:
        no_key = no_key | column.isNull()
    counts = (
        rows.groupBy(*keys)
        .agg(F.count(F.lit(1)).alias("rows"))
        .agg(F.sum("rows"), F.sum(F.when(no_key, F.col("rows")).otherwise(0)), F.count(F.lit(1)))
        .first()
    )
    total, null_keys, distinct = counts if counts is not None else (0, 0, 0)
    return GateReport(total or 0, expected_rows, null_keys or 0, distinct or 0)
