"""A publish by Hudi: the MERGE INTO that Spark runs, and the changes that the statement merges.

The column DELETED is true for the changes that delete their row (`lake.staged.rows`). If all rows of a copy are
replaced, or if the copy has partitions, the column GONE is true for these changes, because the copy may have a column
DELETED of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.files.file import File
from lakeingest.lake.hudi.folder import location
from lakeingest.lake.hudi.partitions import PARTITION, with_partitions
from lakeingest.lake.hudi.record_key import RECORD_KEY, record_key, with_record_key
from lakeingest.lake.merge_into import merge_into

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


GONE = "_lakeingest_gone"
_OLD_PARTITION = "_lakeingest_old_partition"
_META = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")


def rows_at(folder: File, instant: str, spark: "SparkSession") -> "DataFrame":
    """The rows of the Hudi table in the folder as of an instant, without the columns that Hudi and we added."""
    return rows_in_partitions_at(folder, instant, spark).drop(PARTITION)


def rows_in_partitions_at(folder: File, instant: str, spark: "SparkSession") -> "DataFrame":
    """As `rows_at`, but with the column PARTITION, if the table has partitions."""
    read = spark.read.format("hudi").option("as.of.instant", instant).option("hoodie.metadata.enable", "false")
    return read.load(location(folder)).drop(*(f"_hoodie_{name}" for name in _META), RECORD_KEY)


def with_partition_column(rows: "DataFrame", fields: Sequence[PartitionField]) -> "DataFrame":
    """The rows with the column PARTITION; as they are if there are no partitions."""
    from pyspark.sql.types import StringType, StructType

    if not fields:
        return rows

    def add_column(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each batch with the column PARTITION."""
        for batch in batches:
            yield from with_partitions(pa.Table.from_batches([batch]), fields).to_batches()

    columns = StructType([*rows.schema.fields]).add(PARTITION, StringType())  # of a copy, because `add` changes it
    return rows.mapInArrow(add_column, columns)


def changes_in_partitions(
    old_rows: "DataFrame", changes: "DataFrame", key: Sequence[str], fields: Sequence[PartitionField]
) -> "DataFrame":
    """The changes with the columns PARTITION and GONE, for a statement that finds rows by their keys and partitions.

    `old_rows` have the column PARTITION. An old row leaves its partition if it gets another one, or if it is deleted
    and the copy does not keep deleted rows. Each old row that leaves its partition has a change of its own that is
    GONE.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    keeps_deleted = DELETED in old_rows.columns
    new = with_partition_column(changes, fields)
    old = old_rows.select(*map(quote, key), F.col(PARTITION).alias(_OLD_PARTITION))
    changes_partition = F.col(PARTITION) != F.col(_OLD_PARTITION)
    # a copy that keeps its deleted rows only marks a deleted row, which stays in its partition
    leaves = changes_partition if keeps_deleted else changes_partition | F.col(DELETED)
    gone = new.join(old, on=list(key)).where(leaves).withColumn(PARTITION, F.col(_OLD_PARTITION)).drop(_OLD_PARTITION)
    if not keeps_deleted:
        new, gone = new.where(f"NOT {DELETED}").drop(DELETED), gone.drop(DELETED)
    return new.withColumn(GONE, F.lit(False)).unionByName(gone.withColumn(GONE, F.lit(True)))


def with_dropped_columns(changes: "DataFrame", rows: "DataFrame") -> "DataFrame":
    """The changes with all columns of `rows`. Columns that the changes lack are NULL: the source has dropped them."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    missing = [field for field in rows.schema if field.name not in changes.columns]
    return changes.withColumns({field.name: F.lit(None).cast(field.dataType) for field in missing})


def empty_changes(rows: "DataFrame") -> "DataFrame":
    """A DataFrame without changes, for a table with the columns of `rows`."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    return rows.where("false").withColumn(DELETED, F.lit(False))


def changes_between(old_rows: "DataFrame", new_rows: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The changes that turn the old rows into the new ones. The old and the new rows have the same columns.

    The changes are all new rows and, with GONE, each old row whose key no new row has.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    names = [quote(name) for name in old_rows.columns]
    removed = old_rows.join(new_rows.select(*map(quote, key)), on=list(key), how="left_anti").select(*names)
    written = new_rows.select(*names)
    return written.withColumn(GONE, F.lit(False)).unionByName(removed.withColumn(GONE, F.lit(True)))


def insert_into(
    folder: File,
    name: str,
    rows: "DataFrame",
    key: Sequence[str],
    options: Mapping[str, str],
    fields: Sequence[PartitionField] = (),
) -> None:
    """Make a Hudi table with this name, these rows and these partitions in the folder, by a bulk insert."""
    record_key_columns = record_key(rows.schema, key)
    if RECORD_KEY in record_key_columns:
        rows = with_record_key(rows, key)
    rows = with_partition_column(rows, fields)
    table_options = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.recordkey.field": ",".join(record_key_columns),
        "hoodie.datasource.write.operation": "bulk_insert",
        **({"hoodie.datasource.write.partitionpath.field": PARTITION} if fields else {}),
    }
    rows.write.format("hudi").options(**options, **table_options).mode("append").save(location(folder))


def merge_folder(
    folder: File, changes: "DataFrame", key: Sequence[str], spark: "SparkSession", deleted: str = DELETED
) -> None:
    """Merge the changes into the Hudi table in the folder.

    `deleted` names a column of the changes, which is true for the changes that delete their row. MERGE INTO needs the
    name of a table. So the table gets a name in Spark's catalog until the statement has ended.
    """
    target = f"lakeingest_{folder.name.encode().hex()}"  # SQL takes this name, whatever the folder is called
    spark.sql(f"DROP TABLE IF EXISTS {target}")  # drops the name, never the files: the table is external
    spark.sql(f"CREATE TABLE {target} USING hudi LOCATION '{location(folder)}'")
    try:
        columns = spark.table(target).columns
        has_own_key = RECORD_KEY in columns
        merged = with_record_key(changes, key) if has_own_key else changes
        merged_by = [RECORD_KEY] if has_own_key else list(key)
        merged_by += [PARTITION] if PARTITION in columns else []
        merged.createOrReplaceTempView("lakeingest_changes")
        # if the table has the column `deleted`, the copy keeps deleted rows, and the statement writes the column
        written_columns = merged.columns if deleted in columns else merged.drop(deleted).columns
        spark.sql(merge_into(target, "lakeingest_changes", written_columns, merged_by, deleted))
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {target}")


@contextmanager
def session_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Give the session these settings within the block: a statement in SQL has no other way to pass them to Hudi."""
    old_settings = {name: spark.conf.get(name, None) for name in settings}  # None: the session does not have it
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
