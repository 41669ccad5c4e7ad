"""MERGE INTO as a statement, and what it will do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeingest.core.change import DELETED
from lakeingest.core.keys import quote
from lakeingest.lake.target import Effects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge_into(target: str, changes: str, names: Sequence[str], key: Sequence[str]) -> str:
    """The statement that upserts and deletes the rows of `changes`, which has these columns, in `target`.

    The clauses exclude one another: of two that hold, Hudi drops the delete.
    """
    columns = [quote(name) for name in names if name != DELETED]
    on = " AND ".join(f"t.{quote(name)} = c.{quote(name)}" for name in key)
    return (
        f"MERGE INTO {target} t USING {changes} c ON {on}"
        f" WHEN MATCHED AND c.{DELETED} THEN DELETE"
        f" WHEN MATCHED AND NOT c.{DELETED} THEN UPDATE SET {', '.join(f't.{name} = c.{name}' for name in columns)}"
        f" WHEN NOT MATCHED AND NOT c.{DELETED} THEN INSERT ({', '.join(columns)})"
        f" VALUES ({', '.join(f'c.{name}' for name in columns)})"
    )


def effects_of(changes: "DataFrame", present: "DataFrame", key: Sequence[str]) -> Effects:
    """What the statement will do to the keys of the present rows, counted before it and apart from it."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    there = F.col("_lakeingest_there").isNotNull()
    gone = F.col(DELETED)
    row = (
        changes.select(*key, DELETED)
        .join(present.select(*key).withColumn("_lakeingest_there", F.lit(1)), on=list(key), how="left")
        .agg(F.count_if(~gone & ~there), F.count_if(~gone & there), F.count_if(gone & there))
        .first()
    )
    return Effects(row[0], row[1], row[2]) if row else Effects(0, 0, 0)
