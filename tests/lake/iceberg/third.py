"""What a test sees of a table of version 3 past our code, and how other engines read it."""

from collections import Counter

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakeingest.config import CATALOG
from lakeingest.lake.iceberg.files.live_rows import entries_of
from lakeingest.lake.iceberg.storage.entry_fields import is_vector, referenced_path
from lakeingest.lake.iceberg.tables.history import MAIN, tip
from tests.lake.steps import Lake, Row
from tests.servers.engines import DUCKDB


def entries(table: Table, branch: str = MAIN) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """The entries of the data files of a branch, and of its files of deletes."""
    return entries_of(table, tip(table, branch).snapshot_id)


def vectors(table: Table, branch: str = MAIN) -> list[DataFile]:
    """The deletion vectors of a branch."""
    return [entry.data_file for entry in entries(table, branch)[1] if is_vector(entry.data_file)]


def assert_one_vector_each(table: Table) -> None:
    """No data file that readers see has two vectors, each vector has a data file, and there are no other deletes."""
    rows, deletes = entries(table)
    paths = {entry.data_file.file_path for entry in rows}
    assert all(entry.data_file.content is DataFileContent.POSITION_DELETES for entry in deletes)
    assert all(is_vector(entry.data_file) for entry in deletes)
    referenced = Counter(map(referenced_path, vectors(table)))
    assert referenced.keys() <= paths
    assert set(referenced.values()) <= {1}


def rows_of(found: pa.Table) -> list[Row]:
    """The rows of an answer, in the order of their first column."""
    return sorted(tuple(row.values()) for row in found.to_pylist())


def read_by_pyiceberg(table: Table) -> list[Row]:
    """All rows, as PyIceberg reads them."""
    return rows_of(table.scan().to_arrow())


def read_by_duckdb(table: Table) -> list[Row]:
    """All rows, as DuckDB reads them."""
    return rows_of(DUCKDB.read(table.metadata_location, table.location()))


def ids_of(spark: SparkSession, lake: Lake) -> dict[int, tuple[int, int]]:
    """For each key, the id of its row and the sequence number of the row's last change, as Spark reads them."""
    names = "id, _row_id, _last_updated_sequence_number"
    found = spark.sql(f"SELECT {names} FROM {CATALOG}.{lake.table}").collect()
    ids = {key: (row_id, number) for key, row_id, number in found}
    assert len({row_id for row_id, _ in ids.values()}) == len(found) == len(ids)
    return ids
