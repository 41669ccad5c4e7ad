"""Writes the files of all buckets in tasks of Spark, for a table that is too large for one process.

The buckets are divided into ranges, which are called passes. First, tasks read files of staging and divide their rows
by pass. Then Spark shuffles the rows, and one task per pass writes the files of the pass's buckets.
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
from lakeingest.lake.hudi.by_bucket import bucket_numbers, rows_by_number
from lakeingest.lake.hudi.table_form import Unfit
from lakeingest.lake.staged.changes import last_changes, read_all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")
_Part = tuple[int, bytes]  # the number of a reading task, and its rows for one pass


def write_in_tasks(
    spark: "SparkSession",
    writer: BucketWriter,
    rows: Sequence[Sequence[File]],
    merges: Sequence[Sequence[File]],
    passes: Sequence[range],
) -> list[WrittenFile]:
    """Write the rows of files of staging, with the changes of merges applied.

    `rows` has a group of files for each reading task. `merges` are the files of changes of each merge, the oldest merge
    first; one more task reads all of these. `passes` are the ranges of buckets, all but the last of the same length.
    Raises Unfit if only Hudi can write the rows.
    """
    changes_task = len(rows)  # the number of the task that reads changes; the tasks before it read rows
    buckets_in_pass = len(passes[0])

    def divide(number: int) -> Iterator[tuple[int, _Part | Exception]]:
        """Read the rows, or the changes, of the task `number`, and yield a part for each pass that has any of them.

        A part has this `number` and the rows, in bytes. Each yielded pair is the number of a pass, and its part. If
        the task fails, it yields the number 0 and its error.
        """
        try:
            with storage_errors(str(writer.commit.folder)):
                table = last_changes(merges, writer.key) if number == changes_task else read_all_rows(rows[number])
            if table is not None:
                buckets = bucket_numbers(table, writer.key, writer.record_key, writer.buckets)
                pass_numbers = buckets // buckets_in_pass
                for pass_number, part in rows_by_number(table, pass_numbers).items():
                    yield pass_number, (number, _to_bytes(part))
        except (Unfit, LakeIngestError) as error:
            # yielded, not raised, so that Spark does not repeat the task; any pass would do, because each hands it on
            yield 0, error.with_traceback(None)

    def write_pass(
        pass_number: int, shuffled: Iterable[tuple[int, _Part | Exception]]
    ) -> Iterator[WrittenFile | Exception]:
        """Write the files of a pass from the parts that the reading tasks have yielded for the pass."""
        try:
            parts = _values_of(part for _, part in shuffled)  # raises the error of a reading task
            tables = {number: _of_bytes(contents) for number, contents in parts}
            changes = tables.pop(changes_task, None)
            changes_by_bucket = {} if changes is None else writer.rows_by_bucket(changes)
            ordered = [tables[number] for number in sorted(tables)]  # Spark delivers the parts in any order
            rows_by_bucket = (
                writer.rows_by_bucket(pa.concat_tables(ordered, promote_options="default")) if ordered else {}
            )
            with storage_errors(str(writer.commit.folder)):
                written = writer.write(passes[pass_number], rows_by_bucket, changes_by_bucket)
            yield from written
        except (Unfit, LakeIngestError) as error:
            yield error.with_traceback(None)

    tasks = spark.sparkContext.parallelize(range(changes_task + 1), changes_task + 1).flatMap(divide)
    # an integer is its own hash, so Spark puts the parts of the pass n into its partition n
    return _values_of(tasks.partitionBy(len(passes)).mapPartitionsWithIndex(write_pass).collect())


def _values_of(outcomes: Iterable[Value | Exception]) -> list[Value]:
    """The values among the outcomes of tasks. If an outcome is an error, the first error is raised."""
    values: list[Value] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        values.append(outcome)
    return values


def _to_bytes(rows: pa.Table) -> bytes:
    target = io.BytesIO()
    with pa.ipc.new_stream(target, rows.schema) as stream:
        stream.write_table(rows)
    return target.getvalue()


def _of_bytes(contents: bytes) -> pa.Table:
    return pa.ipc.open_stream(contents).read_all()
