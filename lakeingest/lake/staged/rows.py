"""The rows of staging in Spark: the rows of files, with the last change of each key applied.

Changes have the column DELETED. If the rows have this column, too, the table keeps deleted rows, and a change only sets
the column. Otherwise the column says which changes delete their row.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from lakeingest.config.place import Place
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import quote
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.lake.staged.staging import StagingCommit, files_of, is_started_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_after_commits(
    visible: "Callable[[], DataFrame] | None", staging: File, commits: Sequence[StagingCommit], spark: "SparkSession"
) -> "DataFrame":
    """The rows of the table after `commits`, the commits of staging since the published one: at least one.

    Each commit names files of rows or files of changes, in the folder `staging`. All changes are applied to
    - the rows of the commits, if a copy begins: `visible` is None, or a commit starts the copy over
    - otherwise, the rows that readers see, which `visible` returns. In this case no commit has files of rows.
    """
    names, merges = files_of(commits)
    rows = staged_rows(staging, names, spark) if visible is None or is_started_over(commits) else visible()
    changes = last_changes(staging, merges, commits[-1].key, spark)
    return rows if changes is None else rows_after_changes(rows, changes, commits[-1].key)


def rows_after_changes(rows: "DataFrame", changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The rows with the changes applied, as a merge would apply them. `changes` has each key once."""
    unchanged = rows.join(changes.select(*map(quote, key)), on=list(key), how="left_anti")
    if DELETED not in rows.columns:
        changes = changes.where(f"NOT {DELETED}").drop(DELETED)
    return unchanged.unionByName(changes, allowMissingColumns=True).select(*map(quote, rows.columns))


def staged_rows(folder: File, names: Sequence[str], spark: "SparkSession") -> "DataFrame":
    """The rows of the files `names` in the folder of staging: at least one.

    All files have the same columns. The first file tells these columns, so that Spark runs no job to infer them.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    with files.parquet(folder / names[0]) as first:
        columns = from_arrow_schema(first.schema_arrow, prefer_timestamp_ntz=True)
    return spark.read.schema(columns).parquet(*(Place.of(str(folder / name)).hadoop for name in names))


def last_changes(
    folder: File, merges: Sequence[Sequence[str]], key: Sequence[str], spark: "SparkSession"
) -> "DataFrame | None":
    """The last change of each key. `merges` has the names of the files of each merge, the oldest merge first.

    Returns None if there are no merges.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    changes = [staged_rows(folder, names, spark) for names in merges]  # an item for each merge
    if not changes:
        return None
    if len(changes) == 1:  # within a merge, each key has at most one change
        return changes[0]
    # the changes of all merges: in "change" all columns of the change, in "merge" the number of its merge
    all_changes = reduce(
        DataFrame.union,
        [rows.select(F.struct("*").alias("change"), F.lit(merge).alias("merge")) for merge, rows in enumerate(changes)],
    )
    # of each key, take the change with the greatest number of a merge
    key_columns = [F.col(f"change.{quote(name)}").alias(f"key{index}") for index, name in enumerate(key)]
    last = all_changes.groupBy(*key_columns).agg(F.max_by("change", "merge").alias("change"))
    return last.select("change.*")
