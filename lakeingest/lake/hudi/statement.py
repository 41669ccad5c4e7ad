"""MERGE INTO, which Hudi publishes by: the statement, what it will do, and how it is run.

Changes have the column DELETED. Where the rows have it too, deleted rows stay, and it is a column like the others;
else it says which changes take the row away.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakeingest.core.change import DELETED
from lakeingest.core.keys import quote
from lakeingest.lake.target import Effects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def merge_into(target: str, changes: str, names: Sequence[str], key: Sequence[str]) -> str:
    """The statement that upserts and deletes the rows of `changes` in `target`, which has these columns.

    The clauses exclude one another: of two that hold, Hudi drops the delete.
    """
    columns = [quote(name) for name in names]
    on = " AND ".join(f"t.{quote(name)} = c.{quote(name)}" for name in key)
    if DELETED in names:
        return (
            f"MERGE INTO {target} t USING {changes} c ON {on}"
            f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = c.{name}' for name in columns)}"
            f" WHEN NOT MATCHED THEN INSERT ({', '.join(columns)})"
            f" VALUES ({', '.join(f'c.{name}' for name in columns)})"
        )
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
    gone = F.lit(False) if DELETED in present.columns else F.col(DELETED)
    row = (
        changes.select(*key, DELETED)
        .join(present.select(*key).withColumn("_lakeingest_there", F.lit(1)), on=list(key), how="left")
        .agg(F.count_if(~gone & ~there), F.count_if(~gone & there), F.count_if(gone & there))
        .first()
    )
    return Effects(row[0], row[1], row[2]) if row else Effects(0, 0, 0)


def merge_folder(folder: Path, changes: "DataFrame", key: Sequence[str], spark: "SparkSession") -> None:
    """Merge into the Hudi table in a folder. MERGE INTO names its table, so the folder gets a name meanwhile."""
    target = f"lakeingest_{folder.name.encode().hex()}"
    changes.createOrReplaceTempView("lakeingest_changes")
    spark.sql(f"DROP TABLE IF EXISTS {target}")  # the name, never the files: it is an external table
    spark.sql(f"CREATE TABLE {target} USING hudi LOCATION '{folder.as_uri()}'")
    try:
        names = changes.columns if DELETED in spark.table(target).columns else changes.drop(DELETED).columns
        spark.sql(merge_into(target, "lakeingest_changes", names, key))
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {target}")


@contextmanager
def configured(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings; SQL has no other way to give them to Hudi."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
