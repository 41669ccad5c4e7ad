"""Spark's MERGE INTO on a branch of its own, which begins at the commit that the changes are merged into.

Nobody else writes to that branch, so the statement can neither meet nor overwrite another commit. Its snapshot carries
the progress, like any marked commit. Executors write the changes to files that belong to no snapshot. Spark reads these
files through Python, which can access every store that they can be in.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.locations import load_location_provider

from lakeingest import errors
from lakeingest.core.tables.change import DELETED
from lakeingest.core.tables.keys import quote
from lakeingest.errors import LakeIngestError
from lakeingest.lake.iceberg.files.data_files import as_integers
from lakeingest.lake.iceberg.storage.errors import storage_errors
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.merge_into import merge_into
from lakeingest.rows import values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH = 32 << 20  # Python hands about so many bytes of rows at once to the JVM


@dataclass(frozen=True, slots=True)
class ChangesFile:
    """A file with changes of a merge: the columns of the table, and DELETED. Each key has at most one change.

    `ends` are the least and the greatest value of the key's first column; None if the column has no integers.
    """

    path: str
    key: tuple[str, ...]
    ends: tuple[int, int] | None


def write_changes(table: TableFiles, key: tuple[str, ...], rows: pa.Table) -> list[ChangesFile]:
    """Write the changes to a new file, with the types of the table; no file if there are no changes."""
    if not rows.num_rows:
        return []
    metadata = table.metadata
    fields = metadata.schema().as_arrow()
    columns = {field.name: values_of(rows, field) for field in fields} | {DELETED: rows[DELETED]}
    provider = load_location_provider(metadata.location, metadata.properties)
    out = table.io.new_output(provider.new_data_location(f"{uuid.uuid4()}-changes.parquet"))
    with storage_errors(table.location), out.create() as stream:
        pq.write_table(pa.table(columns), stream, compression="zstd")
    integers = as_integers(columns[key[0]])
    if integers is None:
        return [ChangesFile(out.location, key, None)]
    ends = pc.min_max(integers).as_py()
    return [ChangesFile(out.location, key, (ends["min"], ends["max"]))]


def merge_on_branch(
    spark: "SparkSession",
    name: str,
    branch: str,
    version: int,
    table: TableFiles,
    files: Sequence[ChangesFile],
    marks: Mapping[str, str],
) -> None:
    """Make the branch in the table of this name, at the snapshot `version`, and merge the changes there.

    The merge is one commit, which has the properties `marks`.
    """
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH {quote(branch)} AS OF VERSION {version}")
    branch_table, view = f"{name}.{quote(f'branch_{branch}')}", f"{branch}_changes"  # as SQL names them
    names = [field.name for field in table.metadata.schema().fields]
    _read_changes(spark, branch_table, table, files).createOrReplaceTempView(view)
    try:
        statement = merge_into(branch_table, view, names, files[0].key, within=_range_condition(files))
        _Statement(spark, statement).run(marks)
    finally:
        spark.catalog.dropTempView(view)


def _range_condition(files: Sequence[ChangesFile]) -> str:
    """A condition on the table `t`, met by rows with changed keys; '' if the key's first column has no integers."""
    ends = [file.ends for file in files if file.ends is not None]
    if len(ends) < len(files):
        return ""
    return f"t.{quote(files[0].key[0])} BETWEEN {min(least for least, _ in ends)} AND {max(most for _, most in ends)}"


def _read_changes(
    spark: "SparkSession", branch_table: str, table: TableFiles, files: Sequence[ChangesFile]
) -> "DataFrame":
    """The changes in these files, with the types that the columns of `branch_table` have in Spark.

    Each column may be NULL, because changes that delete a row have NULLs. Each file is read by a task of its own.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BooleanType, StructField, StructType

    fields = spark.sql(f"SELECT * FROM {branch_table}").schema
    types = {field.name: field.dataType for field in fields} | {DELETED: BooleanType()}
    schema = StructType([StructField(name, data_type) for name, data_type in types.items()])
    reader = _Reader(table, tuple(file.path for file in files), to_arrow_schema(schema))
    return spark.range(0, len(files), numPartitions=len(files)).mapInArrow(reader.read, schema)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads files of changes in Python workers of Spark."""

    table: TableFiles
    paths: tuple[str, ...]
    schema: pa.Schema

    def read(self, index_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files with these indexes in `paths`, about `_BATCH` bytes at a time."""
        indexes = (index for index_batch in index_batches for index in index_batch.column(0).to_pylist())
        for index in indexes:
            with (
                storage_errors(self.table.location),
                self.table.io.new_input(self.paths[index]).open() as opened,
                pq.ParquetFile(opened) as parquet,
            ):
                groups = (parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups))
                size = sum(group.total_byte_size for group in groups)  # in bytes, before compression
                row_count = parquet.metadata.num_rows
                # of a file with more than `_BATCH` bytes, the share of rows that has about `_BATCH` bytes
                batch_rows = row_count if size <= _BATCH else row_count * _BATCH // size
                for batch in parquet.iter_batches(max(1, batch_rows)):
                    yield from pa.Table.from_batches([batch]).select(self.schema.names).cast(self.schema).to_batches()


def _worker_error(failure: Exception) -> LakeIngestError | None:
    """The error of ours that a Python worker raised, made from its text, which is all that Spark keeps of it.

    None for any other error.
    """
    match = re.search(r"^lakeingest\.errors\.(\w+): (.*)", str(failure), re.MULTILINE)
    if match is None:
        return None
    kind = getattr(errors, match[1], None)
    return kind(match[2]) if kind else None


class _Statement:
    """A statement that the JVM runs by calling this object: only to commits in this call Iceberg gives properties."""

    class Java:
        """The Java interface of this object, as Py4J needs it."""

        implements = ("java.util.concurrent.Callable",)

    def __init__(self, spark: "SparkSession", text: str) -> None:
        self._spark, self._text = spark, text
        self._failure: Exception | None = None

    def run(self, marks: Mapping[str, str]) -> None:
        """Let the JVM run the statement; its commit gets the properties `marks`, which SQL itself cannot give."""
        from pyspark.java_gateway import ensure_callback_server_started

        context = self._spark.sparkContext
        jvm = context._jvm  # noqa: SLF001 - Iceberg has this for Java alone
        assert jvm is not None  # noqa: S101 - the session runs
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call] # noqa: SLF001
        exception_class = jvm.java.lang.Class.forName("java.lang.Exception")  # of errors that `call` may raise in Java
        # the JVM calls `call` of this object
        jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(dict(marks), self, exception_class)
        if self._failure is not None:
            raise _worker_error(self._failure) or self._failure

    def call(self) -> None:
        """Execute the statement; the JVM calls this. An error is kept for `run`, because Java would lose its cause."""
        try:
            self._spark.sql(self._text)
        except Exception as error:  # noqa: BLE001 - it is raised after the call
            self._failure = error
