"""Change rows as DataFrames: the filter of `core.wave` and the collapse of `core.collapse`, for volume.

Both are held equal to the core by property tests.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from lakeingest.core import change
from lakeingest.core.change import DELETED, SOURCE_FILE, SOURCE_ROW, RowKind
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import Place
from lakeingest.core.wave import MergePlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEY_TYPE = "decimal(20,0)"  # holds every integer key, signed and unsigned


def read_changes(spark: "SparkSession", paths: Sequence[str], after: Place, stop: Place) -> "DataFrame":
    """The change rows in these spool files of the transactions after `after`, up to and with `stop`."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    place = F.struct(*change.PLACE)
    return read_placed(spark, paths).where((place > _place(after)) & (place <= _place(stop)))


def read_placed(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """The rows of Parquet files, and where each stands: what needs the keys alone can come back for the rest."""
    from pyspark.sql import functions as F  # noqa: N812

    # Arrow's calendar is Gregorian without a beginning, as MySQL's; Spark asks, where a file is not its own
    files = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(*paths)
    return files.select(
        "*", F.col("_metadata.file_path").alias(SOURCE_FILE), F.col("_metadata.row_index").alias(SOURCE_ROW)
    )


def applicable(changes: "DataFrame", plan: MergePlan, key: Sequence[str]) -> "DataFrame":
    """The change rows that `plan.should_apply`: each row's key is looked up among the splits' marks."""
    from pyspark.sql import functions as F  # noqa: N812

    marked = [(keys, (mark.epoch, mark.file, mark.pos)) for keys, mark in plan.marks]
    marks = ranges(changes.sparkSession, marked, "mark_epoch int, mark_file long, mark_pos long", len(key))
    place = F.struct(*change.PLACE)
    mark = F.struct(*(F.col(f"mark_{part}").alias(f"_lakeingest_{part}") for part in ("epoch", "file", "pos")))
    return (
        changes.join(F.broadcast(marks), on=within(key), how="inner")
        .where((place > mark) & (place <= _place(plan.stop)))
        .select(*changes.columns)
    )


def collapse(changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The last row of each key, without its origin, and whether it deletes."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    latest = Window.partitionBy(*key).orderBy(*(F.col(name).desc() for name in change.ORDER))
    deletes = [kind.value for kind in RowKind if kind.is_delete]
    origin = {change.KIND, change.COMMITTED_AT, change.GTID, *change.ORDER}
    return (
        changes.withColumn("_lakeingest_rank", F.row_number().over(latest))
        .where(F.col("_lakeingest_rank") == 1)
        .select(
            *(F.col(f"`{name}`") for name in changes.columns if name not in origin),
            F.col(change.KIND).isin(deletes).alias(DELETED),
        )
    )


def ranges(
    spark: "SparkSession", tagged: Sequence[tuple[KeyRange, tuple[int, ...]]], tags: str, arity: int
) -> "DataFrame":
    """Ranges as rows: the columns `tags`, and lower0, upper0, lower1 …, null where a side has no bound."""
    bounds = "".join(f", lower{i} {_KEY_TYPE}, upper{i} {_KEY_TYPE}" for i in range(arity))
    rows = [
        (*tag, *(bound for i in range(arity) for bound in (_part(keys.lower, i), _part(keys.upper, i))))
        for keys, tag in tagged
    ]
    return spark.createDataFrame(rows, tags + bounds)


def within(key: Sequence[str]) -> "Column":
    """The join condition of rows with the ranges that their keys are in: `KeyRange.__contains__` in Spark."""
    from pyspark.sql import functions as F  # noqa: N812

    own = F.struct(*(F.col(f"`{name}`").cast(_KEY_TYPE).alias(f"key{i}") for i, name in enumerate(key)))
    lower = F.struct(*(F.col(f"lower{i}").alias(f"key{i}") for i in range(len(key))))
    upper = F.struct(*(F.col(f"upper{i}").alias(f"key{i}") for i in range(len(key))))
    above = F.col("lower0").isNull() | (own >= lower)
    below = F.col("upper0").isNull() | (own < upper)
    return above & below


def _part(bound: Key | None, index: int) -> Decimal | None:
    return None if bound is None else Decimal(bound[index])


def _place(place: Place) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    parts = zip((place.epoch, place.file, place.pos), ("int", "long", "long"), change.PLACE, strict=True)
    return F.struct(*(F.lit(value).cast(kind).alias(name) for value, kind, name in parts))
