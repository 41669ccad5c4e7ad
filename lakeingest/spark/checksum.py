"""The checksums (`core.proofs.checksum`) of a copy: Spark reads the rows, its Python workers compute `row_hashes`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeingest.core.proofs.checksum import UINT64, Checksum
from lakeingest.core.tables.keys import Key, quote
from lakeingest.core.tables.schema import Column as TableColumn
from lakeingest.core.tables.schema import Kind, TableSchema
from lakeingest.spark.row_hashes import LEFT, RIGHT, RowHashes, Widths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NUMBER = "_lakeingest_number"  # an additional column of rows: the number of the row's range or bucket
_BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"


def checksums(rows: "DataFrame", schema: TableSchema, widths: Widths) -> dict[int, Checksum]:
    """The checksum of the rows of each range or bucket, by its NUMBER. A range or bucket without rows is left out."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    hashed = _hashed(rows, [F.col(NUMBER)], schema, widths)
    counted = hashed.groupBy(NUMBER).agg(F.count(F.lit(1)), F.bit_xor(LEFT), F.bit_xor(RIGHT))
    # `% UINT64` makes unsigned integers of Spark's signed ones
    return {number: Checksum(count, left % UINT64, right % UINT64) for number, count, left, right in counted.collect()}


@contextmanager
def batches_of(spark: "SparkSession", row_count: int) -> Iterator[None]:
    """Inside the block, Spark's Python workers get at most `row_count` rows at once, to hold no more in memory."""
    before = spark.conf.get(_BATCH_SETTING)
    spark.conf.set(_BATCH_SETTING, row_count)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_SETTING, str(before))


def in_buckets(rows: "DataFrame", schema: TableSchema, count: int) -> "DataFrame":
    """The rows with their key's bucket as NUMBER. `core.proofs.checksum.bucket` computes the same number."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn(NUMBER, (F.crc32(F.concat(*_parts(schema.key_columns))) % count).cast("int"))


def row_checksums(rows: "DataFrame", schema: TableSchema, limit: int, widths: Widths) -> list[tuple[Key, Checksum]]:
    """The key and the checksum of each of the first `limit` rows in the order of their keys.

    Keys have the form of `mysql.checksum`: numbers if the key is `ordered`, else texts.
    """
    from pyspark.sql import functions as F  # noqa: N812

    key_values = [F.col(quote(column.name)) if schema.ordered else _text(column) for column in schema.key_columns]
    keys = [value.alias(f"key{i}") for i, value in enumerate(key_values)]
    names = [f"key{i}" for i in range(len(keys))]
    first_rows = _hashed(rows, keys, schema, widths).orderBy(*names).limit(limit).collect()
    parse = int if schema.ordered else str
    return [
        # a row has the columns of the key, then the two halves
        (tuple(map(parse, row[:-2])), Checksum(1, row[LEFT] % UINT64, row[RIGHT] % UINT64))
        for row in first_rows
    ]


def with_keys(rows: "DataFrame", schema: TableSchema, keys: Sequence[Key]) -> "DataFrame":
    """The rows that have one of these keys. Keys have integers if `schema.ordered`, otherwise canonical texts."""
    from pyspark.sql import functions as F  # noqa: N812

    names = [f"_lakeingest_key{i}" for i in range(len(schema.key))]
    texts = [tuple(map(str, key)) for key in keys]
    listed = rows.sparkSession.createDataFrame(texts, ", ".join(f"{name} string" for name in names))
    are_equal = [_text(column) == F.col(name) for column, name in zip(schema.key_columns, names, strict=True)]
    return rows.join(F.broadcast(listed), on=are_equal, how="left_semi")


def with_key_texts(rows: "DataFrame", schema: TableSchema) -> tuple["DataFrame", list[str]]:
    """The rows with the texts of their keys in more columns, and the names of these columns.

    The texts are those to which MySQL casts the values of the key.
    """
    names = [f"_lakeingest_key{i}" for i in range(len(schema.key))]
    texts = [_text(column).alias(name) for column, name in zip(schema.key_columns, names, strict=True)]
    return rows.select(*map(quote, rows.columns), *texts), names


def _hashed(rows: "DataFrame", staying: Sequence["Column"], schema: TableSchema, widths: Widths) -> "DataFrame":
    """The columns `staying`, then LEFT and RIGHT: the two halves of each row's hash."""
    from pyspark.sql import functions as F  # noqa: N812

    moments = {Kind.DATETIME, Kind.TIMESTAMP}  # some formats store a DATETIME in another type
    values = []  # `mapInArrow` fails for names with a dot
    for number, column in enumerate(schema.columns):
        value = F.col(quote(column.name))
        values.append((value.cast("timestamp") if column.kind in moments else value).alias(f"value{number}"))
    wanted = rows.select(*staying, *values)
    # the columns `staying` are the first ones of `wanted`
    hashed_schema = wanted.select(*wanted.columns[: len(staying)]).schema.add(LEFT, "long").add(RIGHT, "long")
    return wanted.mapInArrow(RowHashes(schema.columns, widths).replace, hashed_schema)


def _parts(columns: Sequence[TableColumn]) -> Sequence["Column"]:
    """For each column of a key, the length in bytes and the text of the value; or `N` for NULL, in a damaged copy.

    The lengths make sure that different keys have different concatenated texts.
    """
    from pyspark.sql import functions as F  # noqa: N812

    texts = [_text(column) for column in columns]
    return [F.coalesce(F.concat(F.octet_length(text).cast("string"), F.lit(":"), text), F.lit("N")) for text in texts]


def _text(column: TableColumn) -> "Column":
    """The texts to which MySQL casts the values of a column of a key, as `row_hashes.texts_of` makes them."""
    from pyspark.sql import functions as F  # noqa: N812

    value = F.col(quote(column.name))
    match column.kind:
        case Kind.DECIMAL:  # a cast would write small numbers with an exponent
            pattern = "0." + "0" * column.scale if column.scale else "0"
            return F.expr(f"format_number({quote(column.name)}, '{pattern}')")
        case Kind.DATETIME | Kind.TIMESTAMP:
            return F.date_format(value.cast("timestamp"), "yyyy-MM-dd HH:mm:ss.SSSSSS")
        case Kind.BINARY:
            return F.hex(value)
        case Kind.BOOLEAN:
            return value.cast("int").cast("string")
        case _:
            return value.cast("string")
