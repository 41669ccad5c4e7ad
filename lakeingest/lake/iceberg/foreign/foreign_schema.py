"""The columns of a copy that takes over a foreign table: they keep the field ids that its files have.

The copy's schema is added to the table, and belongs to staging until the first publish, as after a lift
(`staged_schema`). A column may get a wider type, as Iceberg's table specification allows it ("Schema Evolution").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
)

from lakeingest.core.tables.casts import kind_in_copy
from lakeingest.core.tables.column_choice import HASHED, MASKED
from lakeingest.core.tables.foreign_columns import Matched, match
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.lake.iceberg.files.types import iceberg_type
from lakeingest.lake.iceberg.tables.staged_schema import FieldIds, identifier_of

# for a type in the foreign table, the cast in pipeline.yml that gives a column of the copy this type
_CASTS: Mapping[type[IcebergType], str] = {LongType: "bigint", StringType: "string", BooleanType: "boolean"}
# a type in the foreign table, and the wider type that the copy may give the column
_WIDER: Sequence[tuple[type[IcebergType], type[IcebergType]]] = (
    (IntegerType, LongType),
    (FloatType, DoubleType),
)


@dataclass(frozen=True, slots=True)
class CopySchema:
    """The schema of the copy, and how it comes from the foreign table's: `matched`, and the columns that are `widened`.

    `refusals`: why the table cannot be taken over; empty if it can.
    """

    schema: Schema
    matched: Matched
    widened: tuple[str, ...]
    refusals: tuple[str, ...]


def copy_schema(
    metadata: TableMetadata, schema: TableSchema, drop: Sequence[str], *, keeps_dropped: bool
) -> CopySchema:
    """The schema of a copy that takes over the table with this metadata. `schema`: the definition of the copied table.

    `drop`: as in `Adopt`. With `keeps_dropped`, dropped columns stay for readers as new fields, which are NULL. But
    dropped columns with parts, such as structs, are removed.
    """
    foreign, ids = metadata.schema(), FieldIds(metadata.last_column_id)
    columns = schema.lake_columns
    matched = match([field.name for field in foreign.fields], [column.name for column in columns], drop)
    fields, widened, refusals = list[NestedField](), list[str](), list[str]()
    if matched.unnamed:
        refusals.append(
            f"the source has no column {', '.join(matched.unnamed)}; name those that the copy is not to have in"
            " adopt.drop"
        )
    for column in columns:
        is_required = column.name in schema.key or not column.nullable
        origin = matched.origins[column.name]
        if origin is None:  # old rows have no value, so the column cannot be required
            fields.append(ids.new_field(column.name, iceberg_type(column), required=False))
            continue
        field = foreign.find_field(origin)
        kept = _kept_type(field, column)
        if kept is None:
            refusals.append(
                f"{origin} is {field.field_type}, and the copy's {column.name} ({column.source_type}) is"
                f" {iceberg_type(column)}{_way(field, column)}"
            )
        elif kept != field.field_type:
            widened.append(f"{origin} ({field.field_type} to {kept})")
        if field.initial_default is not None:
            refusals.append(f"{origin} has a value for rows that lack it (initial-default), which is in no file")
        required = field.required and is_required  # an optional column stays optional
        # without a kept type the table is refused, and nobody uses the schema
        fields.append(
            NestedField(field.field_id, column.name, kept or field.field_type, doc=field.doc, required=required)
        )
    refusals += [f"the key's column {name} is not in it" for name in schema.key if matched.origins[name] is None]
    taken = {field.name.casefold() for field in fields}
    for name in matched.dropped if keeps_dropped else ():
        field = foreign.find_field(name)
        if name.casefold() not in taken and field.field_type.is_primitive:
            fields.append(ids.new_field(name, field.field_type, required=False, doc=field.doc))
    number = max(each.schema_id for each in metadata.schemas) + 1
    new = Schema(*fields, schema_id=number, identifier_field_ids=identifier_of(fields, schema.key))
    return CopySchema(new, matched, tuple(widened), tuple(refusals))


def _way(field: NestedField, column: Column) -> str:
    """How the user can let the column stay, in words; '' if no cast gives the copy the foreign field's type."""
    to = next((name for kind, name in _CASTS.items() if isinstance(field.field_type, kind)), None)
    if to is None or column.choice in {HASHED, MASKED}:
        return ""
    kind = kind_in_copy(column.source_type, column.precision, to)
    if kind is None or iceberg_type(replace(column, kind=kind)) != field.field_type:
        return ""
    return f" (it stays with columns: {{cast: {{{column.source_name}: {to}}}}})"


def _kept_type(field: NestedField, column: Column) -> IcebergType | None:
    """The type of the column in the copy, which holds each value of the foreign field; None if no type does."""
    found, wanted = field.field_type, iceberg_type(column)
    if column.kind is Kind.VECTOR:  # a list has the field id of its elements
        return found if isinstance(found, ListType) and isinstance(found.element_type, FloatType) else None
    if found == wanted:
        return found
    if isinstance(found, DecimalType) and isinstance(wanted, DecimalType):
        return wanted if found.scale == wanted.scale and found.precision <= wanted.precision else None
    is_wider = any(isinstance(found, narrow) and isinstance(wanted, wide) for narrow, wide in _WIDER)
    return wanted if is_wider else None
