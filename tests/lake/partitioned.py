"""Whether the files of an Iceberg table are in the partitions of their rows, by PyIceberg's transforms of values."""

from collections.abc import Iterator

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table import Table

PATH = "file_path"
Place = tuple[int, tuple[object, ...]]


def places(table: Table) -> dict[str, Place]:
    """The spec and the partition of each data file that readers see, by its path; each file was checked.

    A data file has rows of its partition only. A file of deletes deletes rows of its partition only.
    """
    files = list(_files(table))
    rows = [file for file in files if file.content is DataFileContent.DATA]
    for file in rows:
        assert file.spec_id == table.metadata.default_spec_id
        assert partitions_in(table, file) == {tuple(file.partition._data)}, file.file_path  # noqa: SLF001
    found = {file.file_path: place_of(file) for file in rows}
    for file in files:
        if file.content is not DataFileContent.DATA:
            with table.io.new_input(file.file_path).open() as opened:
                paths = set(pq.read_table(opened, columns=[PATH])[PATH].to_pylist())
            # positions in files that others have compacted delete nothing
            assert {found[path] for path in paths if path in found} <= {place_of(file)}, file.file_path
    return found


def partitions_in(table: Table, file: DataFile) -> set[tuple[object, ...]]:
    """The partitions of all rows of a file, whose columns are found by their field ids."""
    schema, spec = table.schema(), table.specs()[file.spec_id]
    with table.io.new_input(file.file_path).open() as opened:
        rows = pq.read_table(opened)
    names = {int((field.metadata or {})[b"PARQUET:field_id"]): field.name for field in rows.schema}
    columns = []
    for field in spec.fields:
        value_of = field.transform.transform(schema.find_field(field.source_id).field_type)
        values = rows[names[field.source_id]].to_pylist()
        columns.append([partition_record_value(field, value_of(value), schema) for value in values])
    return set(zip(*columns, strict=True))


def place_of(file: DataFile) -> Place:
    """The spec and the partition of a file."""
    return file.spec_id, tuple(file.partition._data)  # noqa: SLF001 - it cannot be iterated


def _files(table: Table) -> Iterator[DataFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))
