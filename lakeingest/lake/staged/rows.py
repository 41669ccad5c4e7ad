"""The rows of staging in Spark: the rows of files, with the last change of each key applied.

Changes have the column DELETED. If the rows have it too, deleted rows stay, and it is a column like the others.
Otherwise it says which changes delete their row.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from lakeingest.config.place import Place
from lakeingest.core.change import DELETED
from lakeingest.core.keys import quote
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.staged.staging import StagingCommit, files_of, is_started_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_after_commits(
    visible: "Callable[[], DataFrame] | None", staging: File, commits: Sequence[StagingCommit], spark: "SparkSession"
) -> "DataFrame":
    """The rows that readers see, `visible`, after these commits of staging.

    Staging has all rows if `visible` is None, or if one of the commits starts over.
    """
    names, merges = files_of(commits)
    rows = staged_rows(staging, names, spark) if visible is None or is_started_over(commits) else visible()
    changes = last_changes(staging, merges, commits[-1].key, spark)
    return rows if changes is None else rows_after_changes(rows, changes, commits[-1].key)


def rows_after_changes(rows: "DataFrame", changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The rows after the changes, as a merge will leave them."""
    unchanged = rows.join(changes.select(*map(quote, key)), on=list(key), how="left_anti")
    if DELETED not in rows.columns:
        changes = changes.where(f"NOT {DELETED}").drop(DELETED)
    return unchanged.unionByName(changes, allowMissingColumns=True).select(*map(quote, rows.columns))


def staged_rows(folder: File, names: Sequence[str], spark: "SparkSession") -> "DataFrame":
    """The rows of files of staging. All have the same columns, so Spark need not find them out by a job."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with files.parquet(folder / names[0]) as first:
        columns = from_arrow_schema(first.schema_arrow, prefer_timestamp_ntz=True)
    return spark.read.schema(columns).parquet(*(Place.of(str(folder / name)).hadoop for name in names))


def last_changes(
    folder: File, merges: Sequence[Sequence[str]], key: Sequence[str], spark: "SparkSession"
) -> "DataFrame | None":
    """The last change of each key in the files of these merges, which are in the order of their commits."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    parts = [staged_rows(folder, names, spark) for names in merges]
    if len(parts) < 2:  # noqa: PLR2004 - one merge has one change of a key
        return parts[0] if parts else None
    numbered = [part.select(F.struct("*").alias("change"), F.lit(n).alias("merge")) for n, part in enumerate(parts)]
    keys = [F.col(f"change.{quote(name)}").alias(f"key{n}") for n, name in enumerate(key)]
    last = reduce(DataFrame.union, numbered).groupBy(*keys).agg(F.max_by("change", "merge").alias("change"))
    return last.select("change.*")
