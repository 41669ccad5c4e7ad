"""The Parquet files of an Iceberg table: files of rows, and files with the positions of deleted rows.

Source: Iceberg's table specification, "Position Delete Files". In version 3, deletion vectors (`vectors`) have
these positions. Each call writes new files, so retried and speculative tasks are harmless. The files are durable
when the call returns, and belong to no table before a commit.
"""

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from lakeingest.errors import ForeignWrite
from lakeingest.files.file import THREADS_BYTES, WHOLE_BYTES, all_rows
from lakeingest.lake.errors import unreadable
from lakeingest.lake.iceberg.files.bounds import full_bounds, truncate_bounds
from lakeingest.lake.iceberg.files.partitions import divided, place_of
from lakeingest.lake.iceberg.files.small_files import columns_of, is_small, write_small
from lakeingest.lake.iceberg.files.sorting import GROUP_ROWS, order_of, sorted_rows
from lakeingest.lake.iceberg.files.vectors import DeadRows, read_vector
from lakeingest.lake.iceberg.storage.entry_fields import is_vector, referenced_path
from lakeingest.lake.iceberg.storage.errors import parse_errors, storage_errors
from lakeingest.lake.iceberg.storage.format_version import is_third
from lakeingest.lake.iceberg.storage.metadata import TableFiles
from lakeingest.lake.iceberg.storage.parquet_format import choose_dictionaries
from lakeingest.lake.iceberg.storage.projection import project, project_batches
from lakeingest.rows import values_of

choose_dictionaries()

Positions = Mapping[str, "np.ndarray"]  # for the path of each data file, the numbers of rows in it, ascending

_PARTITION, _SORT_ORDER = 3, 15  # the indexes in a DataFile, which has no setters for them
_BATCH = 16 << 20  # bytes that `living_batches` reads at a time
_GROUP_ROWS = 100_000  # the rows of a row group in a file of deletes
_FEW_POSITIONS = 100  # fewer are not compressed, which would take longer than all else of their file
PATH, _POS = 2147483546, 2147483545  # field ids that the specification reserves
_FIELD_ID = b"PARQUET:field_id"
_KEPT_BYTES = 4 << 20  # of the files that an audit keeps in memory
_READING: Mapping[str, Any] = {"coerce_int96_timestamp_unit": "us"}  # other writers' INT96 may exceed nanoseconds
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POS)}),
    ]
)


def write_rows(table: TableFiles, rows: pa.Table) -> list[DataFile]:
    """Write the rows to files with the table's field ids and statistics; no file if there are no rows.

    Each file has rows of one partition, in the table's sort order if we have set it.
    """
    if not rows.num_rows:  # PyIceberg divides by the number of rows
        return []
    metadata = table.metadata
    schema = columns_of(metadata).types
    columns = [values_of(rows, field) for field in schema]
    # let PyIceberg write full bounds, because its own truncation can fail. `truncate_bounds` then shortens them
    changed: dict[str, Any] = {"properties": {**metadata.properties, **full_bounds(metadata)}}
    # each call writes rows of one partition: PyIceberg would divide them with a library that it does not install
    changed |= {"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": 0}
    order = order_of(metadata)
    if order is not None:
        changed["properties"]["write.parquet.row-group-limit"] = str(GROUP_ROWS)
    written = metadata.model_copy(update=changed)
    files: list[DataFile] = []
    with storage_errors(table.location):
        for partition, part in divided(metadata, pa.table(columns, schema=schema)):
            ordered = part if order is None else sorted_rows(metadata.schema(), order, part)
            small = is_small(written, ordered)
            made = (
                [write_small(table, written, ordered)]
                if small
                else _dataframe_to_data_files(written, ordered, table.io)
            )
            for file in made:
                file[_PARTITION], file.spec_id = partition, metadata.default_spec_id
                file[_SORT_ORDER] = None if order is None else order.order_id
                files.append(truncate_bounds(file, metadata))
    return files


def read_rows(table: TableFiles, file: DataFile, names: Sequence[str], most: int | None = None) -> pa.Table:
    """The columns `names` of all rows of a file, also of deleted rows, with the table's types, whoever wrote the file.

    With `most`, only about the first `most` rows are read. Raises StateUnreadable if the file is damaged; ForeignWrite
    if it is no Parquet file; FileNotFoundError if it is gone.
    """
    with _opened(table, file) as parquet:
        return project(table.metadata.schema(), parquet, names, most)


def living_batches(table: TableFiles, file: DataFile, names: Sequence[str], dead: Positions) -> Iterator[pa.Table]:
    """The rows of `read_rows` without those at the positions in `dead`, about _BATCH bytes at a time.

    Raises as `read_rows`; StateUnreadable also if the file has no row at one of these positions.
    """
    deleted = dead.get(file.file_path, np.zeros(0, np.int64))
    begin = 0
    with _opened(table, file) as parquet:
        for rows in project_batches(table.metadata.schema(), parquet, names, _BATCH):
            first, last = np.searchsorted(deleted, (begin, begin + rows.num_rows))
            is_living = np.ones(rows.num_rows, bool)
            is_living[deleted[first:last] - begin] = False  # `- begin`: positions are counted from the file's first row
            begin += rows.num_rows
            yield rows.filter(pa.array(is_living))
    _assert_within(deleted, file, begin)  # `begin` is now the number of rows of the file


class SmallFiles:
    """The small files that one audit reads: each of them is read and parsed once, up to _KEPT_BYTES of all."""

    def __init__(self, table: TableFiles) -> None:
        self._table, self._room = table, _KEPT_BYTES
        self._opened: dict[str, pq.ParquetFile] = {}

    def count(self, file: DataFile) -> int:
        """As `rows_in_footer`."""
        with self._open(file) as parquet:
            return int(parquet.metadata.num_rows)

    def rows(self, file: DataFile, names: Sequence[str], most: int | None = None) -> pa.Table:
        """As `read_rows`."""
        with self._open(file) as parquet:
            return project(self._table.metadata.schema(), parquet, names, most)

    @contextmanager
    def _open(self, file: DataFile) -> Iterator[pq.ParquetFile]:
        """As `_opened`, which opens large files, and files of other formats."""
        path, size = file.file_path, file.file_size_in_bytes
        if path not in self._opened:
            if file.file_format is not FileFormat.PARQUET or not _is_tiny(file) or size > self._room:
                with _opened(self._table, file) as parquet:
                    yield parquet
                return
            with parse_errors(path), self._table.io.new_input(path).open() as stream:
                self._opened[path] = pq.ParquetFile(pa.BufferReader(stream.read()), **_READING)
            self._room -= size
        with parse_errors(path):
            yield self._opened[path]


def rows_in_footer(table: TableFiles, file: DataFile) -> int:
    """The number of rows that the file itself states. Raises as `read_rows`."""
    with _opened(table, file) as parquet:
        return int(parquet.metadata.num_rows)


def has_field_ids(table: TableFiles, file: DataFile) -> bool:
    """Whether the file itself states a field id for each of its columns. Raises as `read_rows`."""
    with _opened(table, file) as parquet:
        return all(_FIELD_ID in (field.metadata or {}) for field in parquet.schema_arrow)


def bounds_of(file: DataFile, field: NestedField) -> tuple[Any, Any] | None:
    """A lower and an upper bound of a column's values in a file; None if the file's statistics do not have both."""
    least = (file.lower_bounds or {}).get(field.field_id)
    greatest = (file.upper_bounds or {}).get(field.field_id)
    if least is None or greatest is None:
        return None
    return from_bytes(field.field_type, least), from_bytes(field.field_type, greatest)  # type: ignore[arg-type]


def are_within(values: pa.ChunkedArray, bounds: tuple[Any, Any] | None) -> pa.ChunkedArray:
    """For each value of a column, whether it is within these bounds of it; True if they are unknown.

    NULL gives NULL, and False if the bounds are unknown.
    """
    if bounds is None:
        return pc.is_valid(values)
    lower, upper = (pa.scalar(end, values.type) for end in bounds)
    return pc.and_(pc.greater_equal(values, lower), pc.less_equal(values, upper))


def path_bounds(deletes: DataFile) -> tuple[bytes | None, bytes | None]:
    """The bounds of the paths in a file of deletes; None for a bound that is unknown."""
    if is_vector(deletes):
        return (referenced_path(deletes).encode(),) * 2
    return (deletes.lower_bounds or {}).get(PATH), (deletes.upper_bounds or {}).get(PATH)


def found_deletes(
    table: TableFiles, positions: Positions, files: Iterable[DataFile]
) -> list[DataFile] | list[DeadRows]:
    """Write the positions of dead rows, which an executor has found, to files of deletes, and return these files.

    In version 3 of the format nothing is written, and the positions are returned: the commit writes them as vectors.
    """
    return [DeadRows.of(positions)] if is_third(table.metadata) else write_deletes(table, positions, files)


def write_deletes(table: TableFiles, positions: Positions, files: Iterable[DataFile] = ()) -> list[DataFile]:
    """Write these positions to a file of deletes for each partition, with bounds by which readers skip the file.

    No file is written if there are no positions. `files` are the data files with these paths; they are needed only for
    a table with partitions.
    """
    found = {path: row_numbers for path, row_numbers in positions.items() if len(row_numbers)}
    if table.metadata.spec().is_unpartitioned():
        return [_write_deletes(table, found, Record())] if found else []
    places = {file.file_path: place_of(file) for file in files if file.file_path in found}
    parts: dict[tuple[int, Record], dict[str, np.ndarray]] = defaultdict(dict)
    for path, row_numbers in found.items():
        parts[places[path]][path] = row_numbers
    return [_write_deletes(table, part, partition) for (_, partition), part in parts.items()]


def _write_deletes(table: TableFiles, positions: Positions, partition: Record) -> DataFile:
    """Write these positions, of rows of one partition, to a file of deletes. There is at least one position."""
    paths = sorted(positions)
    # the two columns of the file: for each position, the path of its data file, and the number of the row
    counts = [len(positions[path]) for path in paths]
    path_numbers = np.repeat(np.arange(len(paths)), counts)
    row_numbers = np.concatenate([positions[path] for path in paths])
    metadata = table.metadata
    provider = load_location_provider(metadata.location, metadata.properties)
    out = table.io.new_output(provider.new_data_location(f"{uuid.uuid4()}-deletes.parquet"))
    with storage_errors(table.location):
        compression = "zstd" if len(row_numbers) >= _FEW_POSITIONS else "none"
        with out.create() as stream, pq.ParquetWriter(stream, _SCHEMA, compression=compression) as writer:
            # in parts, because the paths of millions of positions take hundreds of megabytes
            for start in range(0, len(row_numbers), _GROUP_ROWS):
                part = slice(start, start + _GROUP_ROWS)
                file_paths = pa.DictionaryArray.from_arrays(path_numbers[part], pa.array(paths)).cast(pa.string())
                writer.write_table(pa.table([file_paths, row_numbers[part]], schema=_SCHEMA))
        size = len(out)
    lowest, highest = (struct.pack("<q", int(end)) for end in (row_numbers.min(), row_numbers.max()))
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=out.location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(row_numbers),
        file_size_in_bytes=size,
        lower_bounds={PATH: paths[0].encode(), _POS: lowest},
        upper_bounds={PATH: paths[-1].encode(), _POS: highest},
        value_counts=dict.fromkeys((PATH, _POS), len(row_numbers)),
        null_value_counts=dict.fromkeys((PATH, _POS), 0),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    file.spec_id = metadata.default_spec_id
    return file


def read_deletes(table: TableFiles, files: Iterable[DataFile]) -> Positions:
    """The positions of all rows that these files of deletes delete. A position that is in two files is there twice."""
    return by_path(dict(positions_by_path(table, file)) for file in files)


def by_path(positions_of_files: Iterable[Positions]) -> Positions:
    """The positions of several files of deletes, united. A position that is in two files is there twice."""
    parts = defaultdict(list)
    for positions in positions_of_files:
        for path, rows in positions.items():
            parts[path].append(rows)
    return {path: np.sort(np.concatenate(rows)) for path, rows in parts.items()}


def positions_by_path(table: TableFiles, file: DataFile) -> "Iterator[tuple[str, np.ndarray]]":
    """Yield the path of each data file that a delete file names, and the positions of its deleted rows, ascending.

    PyIceberg's own reader is slow if there are many paths: it searches all positions once for each path. Raises
    StateUnreadable if the delete file is damaged; ForeignWrite if it is neither a Parquet file nor a deletion vector.
    """
    if is_vector(file):
        yield read_vector(table, file)
        return
    with _opened(table, file, read_dictionary=["file_path"]) as parquet:
        rows = all_rows(parquet, _SCHEMA.names)
    if not rows.num_rows:
        return
    paths = rows["file_path"].unify_dictionaries().combine_chunks()
    path_numbers = paths.indices.to_numpy()  # for each position, the number of its path in the dictionary
    order = np.argsort(path_numbers, kind="stable")  # the positions of one path come together
    distinct, starts = np.unique(path_numbers[order], return_index=True)  # each path's number, and where it begins
    # for each path; [1:], because `split` begins the first part by itself
    positions = np.split(rows["pos"].to_numpy()[order], starts[1:])
    yield from zip(paths.dictionary.take(distinct).to_pylist(), positions, strict=True)


def _is_small(file: DataFile) -> bool:
    """Whether a file of this machine is so small that it is not worth reading ahead in threads."""
    size: int | None = file.file_size_in_bytes  # None: the file is not from a manifest
    return file.file_path.startswith("file:") and size is not None and size < THREADS_BYTES


def _is_tiny(file: DataFile) -> bool:
    """Whether a file is so small that it is read as a whole."""
    size: int | None = file.file_size_in_bytes  # as in `_is_small`
    return size is not None and size <= WHOLE_BYTES


@contextmanager
def _opened(table: TableFiles, file: DataFile, read_dictionary: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """The open Parquet file. Raises StateUnreadable if it is damaged; ForeignWrite if it has another format."""
    if file.file_format is not FileFormat.PARQUET:
        raise ForeignWrite(
            f"{file.file_path}: someone else wrote this file as {file.file_format.value}; set write.format.default of"
            " the table to parquet, and call rewrite_data_files with rewrite-all"
        )
    with (
        parse_errors(file.file_path),
        table.io.new_input(file.file_path).open() as opened,
        pq.ParquetFile(
            pa.BufferReader(opened.read()) if _is_tiny(file) else opened,
            read_dictionary=list(read_dictionary),
            pre_buffer=not _is_small(file),
            **_READING,
        ) as parquet,
    ):
        yield parquet


def drop_deleted(rows: pa.Table, file: DataFile, dead: Positions) -> pa.Table:
    """The rows of a file without those at the positions in `dead`. Raises as `deleted_rows`."""
    is_living = np.ones(rows.num_rows, bool)
    is_living[deleted_rows(rows, file, dead)] = False
    return rows.filter(pa.array(is_living))


def has_living_rows(table: TableFiles, file: DataFile, dead: Positions) -> bool:
    """Whether a file has a row that is not at a position in `dead`. Raises as `living_batches`.

    The answer is exact: a position that is in `dead` twice counts once, and the file itself says how many rows it has.
    """
    deleted = dead.get(file.file_path, np.zeros(0, np.int64))
    if len(deleted) < file.record_count:
        return True
    rows = rows_in_footer(table, file)
    _assert_within(deleted, file, rows)
    return len(np.unique(deleted)) < rows


def deleted_rows(rows: pa.Table, file: DataFile, dead: Positions) -> "np.ndarray":
    """The positions in `dead` of a file with these rows, ascending.

    Raises StateUnreadable if the file has no row at one of these positions.
    """
    deleted = dead.get(file.file_path, np.zeros(0, np.int64))
    _assert_within(deleted, file, rows.num_rows)
    return deleted


def _assert_within(deleted: "np.ndarray", file: DataFile, rows: int) -> None:
    """Raise StateUnreadable if the file, which has `rows` rows, has no row at one of these ascending positions."""
    if len(deleted) and (deleted[0] < 0 or deleted[-1] >= rows):
        raise unreadable(file.file_path, f"it has {rows} rows, and row {deleted[-1]} is deleted")


def as_integers(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values as machine integers; None if they are no integers, or do not fit into 64 bits."""
    if pa.types.is_decimal(values.type) and values.type.scale == 0:  # a BIGINT UNSIGNED
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.uint64())
    return values if pa.types.is_integer(values.type) else None
