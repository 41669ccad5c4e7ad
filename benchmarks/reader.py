"""A reader of finished copies: one Spark session for all participants, which compares and times.

`python -m benchmarks.reader HOST PORT USER FOLDER` says in a JSON line that it is up. Then it takes lines, each with
the path of a table's metadata, and answers each with one: the seconds of a full scan, and, where that is wanted,
whether the copy equals the source now.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

from benchmarks.spark_jdbc import session
from benchmarks.workload import LIVE
from lakeingest.config import Source, Tls
from lakeingest.core.proofs.checksum import Checksum
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.lake.hudi.types import hudi_type
from lakeingest.mysql.checksum import range_checksums
from lakeingest.mysql.connection import connect
from lakeingest.mysql.dialect import MYSQL
from lakeingest.mysql.key_space import key_bounds
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.spark.checksum import NUMBER, checksums

_RANGE_KEYS = 250_000


def difference(source: Source, schema: TableSchema, rows: DataFrame, known: list[tuple[str, ...]]) -> str:
    """`yes` when the rows are the source's, value by value; else the columns in which they are not.

    `known` are those of copies that differed before: they are tried first.
    """
    if _is_equal(source, schema, rows):
        return "yes"
    key = schema.key_columns
    for columns in known:
        if _is_equal(source, replace(schema, columns=tuple(c for c in schema.columns if c.name not in columns)), rows):
            return f"no: {', '.join(columns)}"
    if not _is_equal(source, replace(schema, columns=key), rows):
        return f"no: keys; it has {rows.count():,} rows"
    others = [column for column in schema.columns if column not in key]
    known.append(tuple(c.name for c in others if not _is_equal(source, replace(schema, columns=(*key, c)), rows)))
    return f"no: {', '.join(known[-1])}"


def _is_equal(source: Source, schema: TableSchema, rows: DataFrame) -> bool:
    typed = [F.col(column.name).cast(hudi_type(column)).alias(column.name) for column in schema.columns]
    numbered = rows.select(F.lit(0).alias(NUMBER), *typed)
    [ours] = checksums(numbered, schema, MYSQL.double_widths).values() or [Checksum()]
    return _checksum(source, schema) == ours


def _checksum(source: Source, schema: TableSchema) -> Checksum:
    """That of the whole table, asked for in ranges: one statement may take its time."""
    with connect(source) as connection:
        bounds = key_bounds(connection, schema)
    cuts = range((bounds or (0, 0))[0], (bounds or (0, 0))[1], _RANGE_KEYS)
    ranges = [KeyRange(lower, upper) for lower, upper in pairwise([None, *((cut,) for cut in cuts), None])]
    with ThreadPoolExecutor() as pool:
        sums = pool.map(lambda keys: range_checksums(source, schema, keys), ranges)
        return sum((one for found in sums for one in found.values()), Checksum())


def scan(rows: DataFrame) -> float:
    """The seconds of an aggregate of all columns of all rows."""
    began = time.perf_counter()
    rows.agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64(*rows.columns))).collect()
    return time.perf_counter() - began


def answer(
    spark: SparkSession, source: Source, metadata: str, known: list[tuple[str, ...]], *, compare: bool
) -> dict[str, object]:
    """Of one copy."""
    try:
        rows = spark.read.format("iceberg").load(metadata)
        with connect(source) as connection:
            schema = read_schema(connection, LIVE)
        equal = ""
        if compare:
            rows.persist(StorageLevel.DISK_ONLY)  # a copy with deletes by equality takes a minute to read
            equal = difference(source, schema, rows, known)
            rows.unpersist()
        return {"equal": equal, "reading": scan(rows)}
    except Exception as error:  # noqa: BLE001 - a copy that cannot be read is a result
        return {"equal": f"not readable: {str(error).splitlines()[0][:200]}", "reading": None}


def main() -> None:
    host, port, user, folder = sys.argv[1:]
    source = Source(host=host, port=int(port), user=user, tls=Tls(mode="disabled"))
    spark = session(Path(folder).absolute())
    print(json.dumps({"ready": True}), flush=True)
    known: list[tuple[str, ...]] = []
    for line in sys.stdin:
        asked = json.loads(line)
        found = answer(spark, source, asked["metadata"], known, compare=asked["compare"])
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
