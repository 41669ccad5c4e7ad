"""Writes the files of all buckets in tasks of Spark, for a table that is too large for one process.

The first tasks read files of rows, and sort the rows by passes: a pass is a range of buckets. Each later task gets the
rows of one pass, and writes the files of its buckets.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakeingest.errors import LakeIngestError
from lakeingest.files.file import File
from lakeingest.lake.errors import storage_errors
from lakeingest.lake.hudi.base_files import WrittenFile
from lakeingest.lake.hudi.bucket_writer import BucketWriter
from lakeingest.lake.hudi.by_bucket import bucket_numbers, by_number
from lakeingest.lake.hudi.table_form import Unfit
from lakeingest.lake.staged.changes import last_changes, read_all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")
_Part = tuple[int, bytes]  # the number of a first task, and its rows for a pass


def write_in_tasks(
    spark: "SparkSession",
    writer: BucketWriter,
    rows: Sequence[Sequence[File]],
    merges: Sequence[Sequence[File]],
    passes: Sequence[range],
) -> list[WrittenFile]:
    """Write the rows of these files after the changes of these merges, the oldest first.

    `rows` has the files that each first task reads together; one more task reads all changes. Raises Unfit where only
    Hudi can write them.
    """
    of_changes, step = len(rows), len(passes[0])  # the number of the task that reads changes; the buckets of a pass

    def deal(number: int) -> Iterator[tuple[int, _Part | Exception]]:
        try:
            with storage_errors(str(writer.commit.folder)):
                table = last_changes(merges, writer.key) if number == of_changes else read_all_rows(rows[number])
            if table is not None:
                numbers = bucket_numbers(table, writer.key, writer.record_key, len(writer.groups)) // step
                yield from ((at, (number, _packed(part))) for at, part in by_number(table, numbers).items())
        except (Unfit, LakeIngestError) as error:
            yield 0, error.with_traceback(None)  # as a value, so that Spark does not repeat the task

    def write(at: int, dealt: Iterable[tuple[int, _Part | Exception]]) -> Iterator[WrittenFile | Exception]:
        try:
            parts = {number: _unpacked(part) for number, part in _unless_failed(part for _, part in dealt)}
            changes = parts.pop(of_changes, None)
            changed = {} if changes is None else writer.by_bucket(changes)
            ordered = [parts[number] for number in sorted(parts)]  # Spark hands them over in any order
            together = pa.concat_tables(ordered, promote_options="default") if ordered else None
            with storage_errors(str(writer.commit.folder)):
                written = writer.write(passes[at], together, changed)
            yield from written
        except (Unfit, LakeIngestError) as error:
            yield error.with_traceback(None)

    tasks = spark.sparkContext.parallelize(range(of_changes + 1), of_changes + 1).flatMap(deal)
    return _unless_failed(tasks.partitionBy(len(passes)).mapPartitionsWithIndex(write).collect())


def _unless_failed(outcomes: Iterable[Value | Exception]) -> list[Value]:
    """The outcomes of tasks. The first one that is an error is raised."""
    values: list[Value] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        values.append(outcome)
    return values


def _packed(rows: pa.Table) -> bytes:
    target = io.BytesIO()
    with pa.ipc.new_stream(target, rows.schema) as stream:
        stream.write_table(rows)
    return target.getvalue()


def _unpacked(contents: bytes) -> pa.Table:
    return pa.ipc.open_stream(contents).read_all()
