"""The deleted rows of a foreign table as positions, from all kinds of deletes that others write.

Source: Iceberg's table specification, "Equality Delete Files" and "Scan Planning". A file of deletes by equality has
values of some columns. It deletes the rows that have the same values in these columns, NULL being equal to NULL, in
data files whose data sequence number is less than its own. The data files are of its partition, or of any if its spec
has no partitions. Flink and debezium-server write such files, with the key's columns alone or with whole rows;
`equality_ids` names the columns that count. PyIceberg does not read them. Neither do our mergers, and a copy of ours
never has one: the commit that takes over a table writes positions in their place.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, UUIDType

from lakeingest.lake.iceberg.files.data_files import Positions, bounds_of, by_path, read_rows, write_deletes
from lakeingest.lake.iceberg.files.live_rows import applying_positions
from lakeingest.lake.iceberg.files.partitions import place_of
from lakeingest.lake.iceberg.files.row_delta import NO_FILES, FileChanges
from lakeingest.lake.iceberg.files.vectors import write_vectors
from lakeingest.lake.iceberg.merges.merger import NUMBER, matches
from lakeingest.lake.iceberg.storage.entry_fields import is_vector
from lakeingest.lake.iceberg.storage.format_version import is_third
from lakeingest.lake.iceberg.storage.metadata import TableFiles

_SEQUENCE = "_lakeingest_sequence"
_IS_NULL = "_lakeingest_is_null_"  # beginning of the names of columns that say where another one is NULL
_SHORT = 32  # bits of an integer, or of a date
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}  # so that a NaN equals itself


@dataclass(frozen=True, slots=True)
class ForeignDeletes:
    """The data files of a snapshot of a foreign table, and its files of deletes, in the table's own columns."""

    table: TableFiles
    specs: Mapping[int, PartitionSpec]
    rows: Sequence[ManifestEntry]
    deletes: Sequence[ManifestEntry]

    def dead(self, key: Sequence[str]) -> Positions:
        """The positions of rows that are deleted, or have NULL in the `key`: no row of the source has NULL there.

        The positions in a file ascend, and each is there once. Raises as `read_rows`.
        """
        by_position = [entry for entry in self.deletes if not _is_by_equality(entry)]
        parts = [applying_positions(self.table, self.rows, by_position), *self._by_equality()]
        parts += [{entry.data_file.file_path: self._without_key(entry.data_file, key)} for entry in self.rows]
        united = by_path(parts).items()
        return {path: np.unique(positions) for path, positions in united if len(positions)}

    def changes(self, dead: Positions) -> FileChanges:
        """Write the positions `dead` to files, and return the changes that put these in place of all files of deletes.

        NO_FILES, and nothing is written, if the files of deletes have exactly these positions already.
        """
        # positions are in vectors in version 3, and never in version 2
        are_vectors = {is_vector(entry.data_file) for entry in self.deletes}
        has_our_kind = are_vectors <= {is_third(self.table.metadata)} and not any(map(_is_by_equality, self.deletes))
        if has_our_kind and self._stores_exactly(dead):
            return NO_FILES
        removed = tuple(entry.data_file for entry in self.deletes)
        files = {entry.data_file.file_path: entry.data_file for entry in self.rows}
        if is_third(self.table.metadata):
            return FileChanges(tuple(write_vectors(self.table, dead, files)), removed)
        return FileChanges(tuple(write_deletes(self.table, dead, files.values())), removed)

    def _stores_exactly(self, dead: Positions) -> bool:
        """Whether the files of deletes, all of positions, have these positions, each once, and no others."""
        stored = sum(entry.data_file.record_count for entry in self.deletes)
        applying = applying_positions(self.table, self.rows, self.deletes)
        found = {path: positions for path, positions in applying.items() if len(positions)}
        return (
            stored == sum(map(len, dead.values()))
            and found.keys() == dead.keys()
            and all(np.array_equal(np.sort(found[path]), dead[path]) for path in dead)
        )

    def _by_equality(self) -> Iterator[Positions]:
        """Yield the positions of the rows that are deleted by equality."""
        groups = defaultdict[tuple[int, ...], list[ManifestEntry]](list)
        for entry in filter(_is_by_equality, self.deletes):
            groups[tuple(entry.data_file.equality_ids or ())].append(entry)
        schema = self.table.metadata.schema()
        for ids, entries in groups.items():
            names = _names(schema, ids)
            rows_of_places = _by_place(self.rows)
            for place, deletes in _by_place(entries).items():
                spec = self.specs[deletes[0].data_file.spec_id]  # all deletes of a place are of one spec
                is_everywhere = spec.is_unpartitioned()
                yield from self._deleted(names, deletes, self.rows if is_everywhere else rows_of_places.get(place, ()))

    def _deleted(
        self, names: Sequence[str], deletes: Sequence[ManifestEntry], rows: Sequence[ManifestEntry]
    ) -> Iterator[Positions]:
        """Yield the positions of the rows in the files `rows` that the files `deletes` delete.

        `deletes` are by equality in the columns `names`. Each of them deletes only rows in files of earlier commits.
        """
        parts = []
        for entry in deletes:
            values = read_rows(self.table, entry.data_file, names)
            number = pa.repeat(pa.scalar(entry.sequence_number or 0, pa.int64()), values.num_rows)
            parts.append(values.append_column(_SEQUENCE, number))
        if not sum(part.num_rows for part in parts):
            return
        deleted = pa.concat_tables(parts)
        with_nulls = any(deleted[name].null_count for name in names)  # else rows with NULL match no delete
        deleted = _comparable(deleted, names, with_nulls=with_nulls)
        keys = [name for name in deleted.column_names if name != _SEQUENCE]
        # the last delete of each value counts: it applies to all files that an earlier one applies to
        newest = deleted.group_by(keys, use_threads=False).aggregate([(_SEQUENCE, "max")])
        sequences = newest[f"{_SEQUENCE}_max"].to_numpy()
        wanted = newest.select(keys).append_column(NUMBER, pa.array(np.arange(newest.num_rows)))
        for entry in rows:
            number = entry.sequence_number or 0
            # skip a file if no delete is newer, or if it has none of the values by its bounds, which do not tell NULLs
            if number >= sequences.max() or not (with_nulls or self._may_have(entry.data_file, names[0], newest)):
                continue
            found = _comparable(read_rows(self.table, entry.data_file, names), names, with_nulls=with_nulls)
            at, by = matches(found, wanted)  # numbers of rows of the file, and of the rows of `wanted` that they equal
            yield {entry.data_file.file_path: at[sequences[by] > number]}

    def _may_have(self, file: DataFile, name: str, deleted: pa.Table) -> bool:
        """Whether a data file may have, by its bounds, one of the `deleted` values of the column `name`."""
        field = self.table.metadata.schema().find_field(name)
        bounds = bounds_of(file, field)
        if bounds is None or not isinstance(field.field_type, IntegerType | LongType):  # bounds of texts may be short
            return True
        ends = pc.min_max(deleted[name]).as_py()
        return bool(bounds[0] <= ends["max"] and ends["min"] <= bounds[1])

    def _without_key(self, file: DataFile, key: Sequence[str]) -> "np.ndarray":
        """The positions of rows with NULL in the key. The file is read only if its statistics do not exclude NULL."""
        schema = self.table.metadata.schema()
        optional = [field for field in map(schema.find_field, key) if not field.required]
        counts = file.null_value_counts or {}
        unsure = [field.name for field in optional if counts.get(field.field_id) != 0]
        if not unsure:
            return np.zeros(0, np.int64)
        rows = read_rows(self.table, file, unsure)
        is_null = np.zeros(rows.num_rows, bool)
        for name in unsure:
            is_null |= rows[name].is_null().to_numpy()
        return np.flatnonzero(is_null)


def unreadable_deletes(schema: Schema, deletes: Iterable[ManifestEntry]) -> str | None:
    """Why deletes by equality cannot be applied; None if they can."""
    for entry in filter(_is_by_equality, deletes):
        ids = entry.data_file.equality_ids or ()
        present = {field.field_id for field in schema.fields if field.field_type.is_primitive}
        if not ids or not present.issuperset(ids):
            return f"{entry.data_file.file_path} deletes rows by columns that the table does not have any more"
        if any(isinstance(schema.find_field(field_id).field_type, UUIDType) for field_id in ids):
            return f"{entry.data_file.file_path} deletes rows by a column of UUIDs, which is not built; compact it"
    return None


def equality_deletes(deletes: Iterable[ManifestEntry]) -> int:
    """The number of files of deletes by equality."""
    return sum(map(_is_by_equality, deletes))


def _is_by_equality(entry: ManifestEntry) -> bool:
    return entry.data_file.content is DataFileContent.EQUALITY_DELETES


def _names(schema: Schema, ids: Iterable[int]) -> list[str]:
    return [schema.find_field(field_id).name for field_id in ids]


def _by_place(entries: Iterable[ManifestEntry]) -> Mapping[object, list[ManifestEntry]]:
    """The entries of each partition of each spec."""
    places = defaultdict[object, list[ManifestEntry]](list)
    for entry in entries:
        places[place_of(entry.data_file)].append(entry)
    return places


def _comparable(rows: pa.Table, names: Sequence[str], *, with_nulls: bool) -> pa.Table:
    """The rows in a form in which Arrow finds equal values by joining: floating-point numbers as their bits.

    `with_nulls`: NULL is a value, too. Each column gets a second one that says where it is NULL.
    """
    for place, name in enumerate(names):
        column = rows[name].combine_chunks()
        column = column.view(_BITS[column.type]) if column.type in _BITS else column
        if with_nulls:
            rows = rows.append_column(f"{_IS_NULL}{place}", column.is_null())
            column = pc.fill_null(column, _zero(column.type))
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _zero(kind: pa.DataType) -> pa.Scalar:
    """Some value of the type. It stands for NULL, because a second column says where the first one is NULL."""
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes(kind.byte_width), kind)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return pa.scalar(0, pa.int32() if kind.bit_width == _SHORT else pa.int64()).cast(kind)
    return pa.scalar(b"", pa.large_binary()).cast(kind)  # a text or bytes of any length
