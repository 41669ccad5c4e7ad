"""The partitions of an Iceberg copy: their spec, the partition of each row, and what the spec cannot outlive.

Source: Iceberg's table specification, "Partitioning". A copy keeps the spec with which it was made. A property of the
table, PARTITION_BY, has the partitions as pipeline.yml named them at that time. The spec names columns by their field
ids, so it follows columns that are renamed. All rows of a data file are of one partition, and so are all rows that a
file of deletes deletes. Names of files do not have the values of partitions: these can be longer than a name, and
private.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.transforms import Transform as SpecTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType

from lakeingest.core.tables.partitioning import PartitionField, Transform, parse_all
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, PartitionsDiffer
from lakeingest.lake.iceberg.files.sorting import assert_order_outlived

PARTITION_BY = "lakeingest.partition_by"  # property of a table: its partitions, as they were named when it was made

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}  # of numpy, which rounds times before 1970 down, too


def new_spec(schema: Schema, fields: Sequence[PartitionField]) -> PartitionSpec:
    """The spec of a new copy with these columns. Its fields have the names that Spark would give them.

    If a column has the name of a field, the field gets underscores, because Iceberg gives a name only once.
    """
    taken = {column.name.casefold(): column.field_id for column in schema.fields}
    made = []
    for number, field in enumerate(fields, start=PARTITION_FIELD_ID_START):
        source_id = schema.find_field(field.column).field_id
        name = _name(field)
        while taken.setdefault(name.casefold(), source_id) != source_id:  # a field may have the name of its own column
            name += "_"
        made.append(SpecField(source_id, number, _transform(field), name))
    return PartitionSpec(*made)


def marks_of_new(fields: Sequence[PartitionField]) -> dict[str, str]:
    """The properties of a new copy with these partitions; none for a copy without partitions."""
    return {PARTITION_BY: json.dumps([str(field) for field in fields])} if fields else {}


def our_spec(metadata: TableMetadata) -> PartitionSpec | None:
    """The spec with which we made the table; None if someone has removed this spec, or damaged PARTITION_BY."""
    try:
        transforms = [_transform(field) for field in _made_with(metadata)]
    except DAMAGED:
        return None
    specs = sorted(metadata.partition_specs, key=lambda spec: spec.spec_id)
    return next((spec for spec in specs if [field.transform for field in spec.fields] == transforms), None)


def assert_wanted(table: TableId, loaded: Table, wanted: Sequence[PartitionField]) -> None:
    """Raises PartitionsDiffer unless the copy has the partitions that pipeline.yml asks for.

    `wanted` may name a column as it was called when the copy was made, or by any name that it has had since.
    """
    metadata = loaded.metadata
    made = _made_with(metadata)
    if tuple(wanted) == made:
        return
    fields = zip(made, metadata.spec().fields, wanted, strict=False)
    is_same = len(made) == len(wanted) and all(
        (made_field.transform, made_field.number) == (wanted_field.transform, wanted_field.number)
        and wanted_field.column in _names_of(metadata, spec_field.source_id)
        for made_field, spec_field, wanted_field in fields
    )
    if not is_same:
        raise PartitionsDiffer(
            f"{table}: pipeline.yml asks for {_listed(wanted)}, and its copy {'.'.join(loaded.name())} has"
            f" {_listed(made)}; set partition_by to what the copy has, or drop the copy to copy it again"
        )


def assert_outlived(table: TableId, metadata: TableMetadata, new: Schema) -> None:
    """Raises PartitionsDiffer if a copy with these columns cannot have the partitions, or the order, of `metadata`."""
    assert_order_outlived(table, metadata, new)
    columns = {column.field_id: column for column in new.fields}
    way_out = "set partition_by to columns that it has, and drop the copy to copy it again"
    for field in metadata.spec().fields:
        source = columns.get(field.source_id)
        if source is None:
            names = sorted(_names_of(metadata, field.source_id))
            raise PartitionsDiffer(
                f"{table}: its copy is divided by {', '.join(names)}, which DDL dropped or gave another type; {way_out}"
            )
        if not field.transform.can_transform(source.field_type):
            raise PartitionsDiffer(
                f"{table}: its copy is divided by the {field.transform} of {source.name}, which is {source.field_type}"
                f" now; {way_out}"
            )
        for column in new.fields:
            is_itself = column is source and isinstance(field.transform, IdentityTransform)
            if column.name.casefold() == field.name.casefold() and not is_itself:
                raise PartitionsDiffer(
                    f"{table}: its copy has a partition field {field.name}, and Iceberg allows no column of this name"
                    " beside it; rename the column, or drop the copy to copy it again"
                )


def divided(metadata: TableMetadata, rows: pa.Table) -> Iterator[tuple[Record, pa.Table]]:
    """Each partition of the rows, with its rows in their order; an empty Record with `rows` if either is missing."""
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned() or not rows.num_rows:
        yield Record(), rows
        return
    partitions = np.zeros(rows.num_rows, np.int64)  # for each row, the number of its partition
    numbers: list[np.ndarray] = []  # for each field of the spec and each row, the number of the value in `values`
    values: list[list[Any]] = []
    for field in spec.fields:
        source = schema.find_field(field.source_id)
        of_rows, distinct = _values(field.transform, source, rows[source.name])
        numbers.append(of_rows)
        values.append(distinct)
        # one number for each combination of values
        _, partitions = np.unique(partitions * len(distinct) + of_rows, return_inverse=True)
    order = np.argsort(partitions, kind="stable")
    _, starts = np.unique(partitions[order], return_index=True)
    for indexes in np.split(order, starts[1:]):  # [1:], because `split` begins the first part by itself
        of_field = zip(values, numbers, strict=True)
        # all of these rows have the same values, so the first row tells the partition
        partition = Record(*(distinct[of_rows[indexes[0]]] for distinct, of_rows in of_field))
        yield partition, rows if len(starts) == 1 else rows.take(pa.array(indexes))


def _values(
    transform: SpecTransform[Any, Any], source: NestedField, column: pa.ChunkedArray
) -> "tuple[np.ndarray, list[Any]]":
    """For each row, the index of its transformed value in a list of values; and this list, in the form of manifests."""
    value_of: Callable[[Any], Any] = transform.transform(source.field_type)
    if isinstance(source.field_type, DateType | TimestampType | TimestamptzType):  # manifests have them as numbers
        is_date = isinstance(source.field_type, DateType)
        column = column.cast(pa.int32() if is_date else pa.int64())
        if (unit := _UNITS.get(str(transform))) is not None:
            # PyIceberg's own transform, of one value at a time, would take seconds for a million moments
            times = column.fill_null(0).to_numpy().astype("datetime64[D]" if is_date else "datetime64[us]")
            rounded = times.astype(f"datetime64[{unit}]").astype(np.int64)
            column = pa.chunked_array([pa.array(rounded, mask=column.is_null().to_numpy())])
            value_of = _itself
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    distinct: dict[Any, int] = {None: 0}  # the value of NULL has the index 0
    found = [distinct.setdefault(value_of(value), len(distinct)) for value in encoded.dictionary.to_pylist()]
    # + 1: NULL, whose index is -1, gets the index 0 before all others
    return np.array([0, *found])[encoded.indices.fill_null(-1).to_numpy() + 1], list(distinct)


def by_partition(files: Iterable[DataFile]) -> dict[Hashable, list[DataFile]]:
    """The files, of rows or of deletes, of each partition of each spec."""
    found: dict[Hashable, list[DataFile]] = {}
    for file in files:
        found.setdefault(place_of(file), []).append(file)
    return found


def place_of(file: DataFile) -> tuple[int, Record]:
    """The spec and the partition of a file."""
    return file.spec_id, file.partition


def _itself(value: Any) -> Any:
    """The transform for values that are transformed already."""
    return value


def _transform(field: PartitionField) -> SpecTransform[Any, Any]:
    """PyIceberg's transform of a partition field, such as `bucket[16]`."""
    found: SpecTransform[Any, Any] = parse_transform(
        f"{field.transform}[{field.number}]" if field.number else str(field.transform)
    )
    return found


def _name(field: PartitionField) -> str:
    """The name that Spark gives a partition field of this column with this transform."""
    column, number = field.column, field.number
    named: Mapping[Transform, str] = {
        Transform.IDENTITY: column,
        Transform.BUCKET: f"{column}_bucket_{number}",
        Transform.TRUNCATE: f"{column}_trunc_{number}",
    }
    return named.get(field.transform, f"{column}_{field.transform}")


def _made_with(metadata: TableMetadata) -> tuple[PartitionField, ...]:
    """The partitions as they were named when the table was made. Raises an error of DAMAGED for a damaged property."""
    return parse_all(json.loads(metadata.properties.get(PARTITION_BY, "[]")))


def _names_of(metadata: TableMetadata, field_id: int) -> set[str]:
    """All names that a column of the table has had."""
    return {column.name for schema in metadata.schemas for column in schema.fields if column.field_id == field_id}


def _listed(fields: Sequence[PartitionField]) -> str:
    """Partitions, as a message names them."""
    return f"the partitions {', '.join(map(str, fields))}" if fields else "no partitions"
