"""Hudi publishes by MERGE INTO: the changes for the statement, and how it runs.

The column DELETED says which changes delete their row (`lake.staged.rows`). Where all rows are replaced, the column
GONE says it instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeingest.core.change import DELETED
from lakeingest.core.keys import quote
from lakeingest.files.file import File
from lakeingest.lake.hudi.folder import location
from lakeingest.lake.hudi.record_key import RECORD_KEY, record_key, with_record_key
from lakeingest.lake.merge_into import merge_into

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


GONE = "_lakeingest_gone"
_META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")


def rows_at(folder: File, instant: str, spark: "SparkSession") -> "DataFrame":
    """The rows of the Hudi table in a folder as of an instant."""
    read = spark.read.format("hudi").option("as.of.instant", instant).option("hoodie.metadata.enable", "false")
    return read.load(location(folder)).drop(*(f"_hoodie_{name}" for name in _META), RECORD_KEY)


def completed(changes: "DataFrame", rows: "DataFrame") -> "DataFrame":
    """The changes, with NULL in each column that the rows have and the changes lack: these columns were dropped."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    missing = [field for field in rows.schema if field.name not in changes.columns]
    return changes.withColumns({field.name: F.lit(None).cast(field.dataType) for field in missing})


def no_changes(rows: "DataFrame") -> "DataFrame":
    """No changes, with the columns of these rows."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    return rows.where("false").withColumn(DELETED, F.lit(False))


def replacing(rows: "DataFrame", following: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The changes that turn these rows into the `following` ones: all of them, and the keys that are GONE."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    names = [quote(name) for name in rows.columns]
    removed = rows.join(following.select(*map(quote, key)), on=list(key), how="left_anti").select(*names)
    return following.select(*names).withColumn(GONE, F.lit(False)).unionByName(removed.withColumn(GONE, F.lit(True)))


def insert_into(folder: File, name: str, rows: "DataFrame", key: Sequence[str], options: Mapping[str, str]) -> None:
    """Make the Hudi table of this name in a folder, with these rows."""
    columns = record_key(rows.schema, key)
    if RECORD_KEY in columns:
        rows = with_record_key(rows, key)
    table_options = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.recordkey.field": ",".join(columns),
        "hoodie.datasource.write.operation": "bulk_insert",
    }
    rows.write.format("hudi").options(**options, **table_options).mode("append").save(location(folder))


def merge_folder(
    folder: File, changes: "DataFrame", key: Sequence[str], spark: "SparkSession", deleted: str = DELETED
) -> None:
    """Merge the changes into the Hudi table in a folder. The column `deleted` says which changes delete their row.

    MERGE INTO needs the name of a table, so the folder has one meanwhile.
    """
    target = f"lakeingest_{folder.name.encode().hex()}"
    spark.sql(f"DROP TABLE IF EXISTS {target}")  # drops the name, never the files: the table is external
    spark.sql(f"CREATE TABLE {target} USING hudi LOCATION '{location(folder)}'")
    try:
        columns = spark.table(target).columns
        if RECORD_KEY in columns:
            changes, key = with_record_key(changes, key), [RECORD_KEY]
        changes.createOrReplaceTempView("lakeingest_changes")
        names = changes.columns if deleted in columns else changes.drop(deleted).columns
        spark.sql(merge_into(target, "lakeingest_changes", names, key, deleted))
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {target}")


@contextmanager
def configured(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Give the session these settings for the block, because SQL cannot hand them to Hudi in another way."""
    old_settings = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in old_settings.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
