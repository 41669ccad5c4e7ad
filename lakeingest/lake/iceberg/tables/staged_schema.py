"""The schema of staging, which differs from the schema that readers see between a lift and its publish.

Iceberg's current schema belongs to the table, not to a branch. So a lift only adds its schema to the table. While the
transaction of a staging commit is prepared, this schema is the current one for a moment: so the commit names this
schema, and the commit's files have the schema's field ids. The commit that moves main makes the schema the current one
for readers.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import IcebergType, ListType, NestedField

from lakeingest.core.ddl.lift import Lift
from lakeingest.core.ddl.origins import Origins
from lakeingest.core.tables.schema import Kind, TableSchema
from lakeingest.core.tables.shards import field_id
from lakeingest.lake.iceberg.files.types import iceberg_type
from lakeingest.lake.iceberg.tables.history import is_marked
from lakeingest.lake.iceberg.tables.shape import schema_differences

SHARD = "lakeingest.shard"  # a property of the table of a shard: its columns have ids by their names
NEWEST = -1  # in an update: the schema that was added last


def schema_of(metadata: TableMetadata, version: int) -> int:
    """The id of the schema that commits on this snapshot have.

    This is the schema of our newest commit in the snapshot's history. A compaction by others does not count, because it
    may have another schema. In two cases it is the table's current schema instead:

    - The current schema has the same columns: it may have newer comments, and optional columns for required ones.
    - The schema of our commit is unknown.
    """
    snapshot = metadata.snapshot_by_id(version)
    ours = next((below for below in ancestors_of(snapshot, metadata) if is_marked(below)), None)
    our_schema_id = None if ours is None else ours.schema_id
    our_schema = next((schema for schema in metadata.schemas if schema.schema_id == our_schema_id), None)
    if our_schema is None or not any(schema_differences(our_schema, metadata.schema())):
        return metadata.current_schema_id
    return our_schema.schema_id


def as_staged(loaded: Table, version: int) -> Table:
    """The table, but its current schema is that of commits on this snapshot. Do not commit on the returned table."""
    schema = schema_of(loaded.metadata, version)
    if schema == loaded.metadata.current_schema_id:
        return loaded
    staged = copy.copy(loaded)
    staged.metadata = loaded.metadata.model_copy(update={"current_schema_id": schema})
    return staged


@contextmanager
def temporary_schema(transaction: Transaction, schema: int) -> Iterator[None]:
    """Make this schema the current one in the block: snapshots that are made in the block have it."""
    current = transaction.table_metadata.current_schema_id
    _set_current(transaction, schema)
    yield
    _set_current(transaction, current)


def show_schema(transaction: Transaction, version: int) -> None:
    """Let this transaction make the schema of a snapshot the one that readers see."""
    _set_current(transaction, schema_of(transaction.table_metadata, version))


def lifted_schema(metadata: TableMetadata, version: int, lift: Lift, *, keeps_dropped: bool) -> Schema:
    """The schema that a lift gives to the rows of this snapshot."""
    old = next(schema for schema in metadata.schemas if schema.schema_id == schema_of(metadata, version))
    next_id = max(schema.schema_id for schema in metadata.schemas) + 1
    return lift_schema(old, lift, field_ids_of(metadata), next_id, keeps_dropped=keeps_dropped)


def add_lifted(transaction: Transaction, new: Schema) -> int:
    """Add a schema to the table, unless the table has it already. Returns the schema's id for `temporary_schema`."""
    existing = next((schema.schema_id for schema in transaction.table_metadata.schemas if schema == new), None)
    if existing is not None:
        return existing
    transaction._stage((AddSchemaUpdate.model_validate({"schema": new}),), ())  # noqa: SLF001 - the commit asserts
    return NEWEST


def lift_schema(old: Schema, lift: Lift, ids: "FieldIds", schema_id: int, *, keeps_dropped: bool = True) -> Schema:
    """The schema after a lift. A column keeps its field id, even if it is renamed; a new column gets a new field id.

    A dropped column is removed; with `keeps_dropped` it stays for readers as a new field, which is NULL in all rows,
    until its name is used again. If ids are by name, a renamed column gets another id, and a dropped one is removed.
    """
    # Step 1: the columns after the lift
    old_names = dict(zip(lift.after.names, lift.origins, strict=True))
    fields = []
    for column in lift.after.lake_columns:
        is_required = column.name in lift.after.key or not column.nullable
        old_name = old_names.get(column.name, column.name)  # metadata columns keep their names
        if not old_name:  # the lift adds the column
            fields.append(ids.new_field(column.name, iceberg_type(column), required=is_required))
            continue
        field = old.find_field(old_name)
        # a list (VECTOR) keeps the old type, because the type of a list has the field id of the elements
        new_type = field.field_type if column.kind is Kind.VECTOR else iceberg_type(column)
        required = field.required and is_required  # an optional column stays optional
        if ids.are_by_name and old_name != column.name:
            fields.append(ids.new_field(column.name, iceberg_type(column), required=required, doc=field.doc))
            continue
        fields.append(NestedField(field.field_id, column.name, new_type, doc=field.doc, required=required))
    # Step 2: columns that stay for readers only, unless a column after the lift has the name
    names_before = {column.name for column in lift.before.lake_columns}
    taken = {field.name.lower() for field in fields}
    for field in old.fields:
        if field.name.lower() in taken:
            continue
        if field.name not in names_before:  # an earlier lift dropped this column
            fields.append(field)
        # a field under the old name of a renamed column is left out: step 1 has the column
        elif keeps_dropped and not ids.are_by_name and field.name in lift.dropped:
            fields.append(ids.new_field(field.name, field.field_type, required=False, doc=field.doc))
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=identifier_of(fields, lift.after.key))


def identifier_of(fields: Iterable[NestedField], key: Collection[str]) -> list[int]:
    """The field ids of the key, by which Iceberg identifies rows; none if another tool has made a key column optional.

    Iceberg allows only required columns there.
    """
    of_key = [field for field in fields if field.name in key]
    return [field.field_id for field in of_key] if all(field.required for field in of_key) else []


def restarted_schema(
    metadata: TableMetadata, version: int, schema: TableSchema, origins: Origins | None, *, keeps_dropped: bool
) -> Schema:
    """The schema of a copy that is started over on this snapshot, so that all its rows are read again.

    A column keeps its field id if its origin, the old column that it comes from, has the same type. `origins` has the
    origin of each column; without `origins` it is the old column of the same name. An optional column that is now in
    the key becomes a new field, because key columns are required and older rows may have NULL. A column that the source
    no longer has is removed; with `keeps_dropped` it stays, and is NULL.
    """
    old = next(candidate for candidate in metadata.schemas if candidate.schema_id == schema_of(metadata, version))
    old_fields = {field.name: field for field in old.fields}
    ids = field_ids_of(metadata)
    keeps_dropped = keeps_dropped and not ids.are_by_name
    origins = origins or {}
    fields = []
    for column in schema.lake_columns:
        origin = origins.get(column.name, column.name)  # None: the column is new
        field = old_fields.get(origin) if origin else None
        is_key = column.name in schema.key
        is_required = is_key or not column.nullable
        new_type = iceberg_type(column)
        if field is not None and not ids.are_by_name and _is_kept(field, new_type, is_key=is_key):
            fields.append(field.model_copy(update={"name": column.name, "required": field.required and is_required}))
        else:
            fields.append(ids.new_field(column.name, new_type, required=is_required))
    taken = {field.name.lower() for field in fields}
    taken |= {origin.lower() for origin in origins.values() if origin}  # these columns are renamed, not dropped
    dropped = [field for field in old.fields if keeps_dropped and field.name.lower() not in taken]
    fields += [field.model_copy(update={"required": False}) for field in dropped]
    key = [field.field_id for field in fields if field.name in schema.key]
    schema_id = max(candidate.schema_id for candidate in metadata.schemas) + 1
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=key)


def _is_kept(field: NestedField, new_type: IcebergType, *, is_key: bool) -> bool:
    """Whether a column whose origin is this field keeps the field id when the copy is started over."""
    if is_key and not field.required:  # older rows may have NULL
        return False
    are_lists = isinstance(field.field_type, ListType) and isinstance(new_type, ListType)  # all lists are of floats
    return field.field_type == new_type or are_lists


class FieldIds:
    """Gives field ids to new fields, and to the elements of new lists. `last` is the last id that the table has."""

    are_by_name = False  # whether a column of one name and family of types always has one id

    def __init__(self, last: int) -> None:
        self._last = last

    def new_field(self, name: str, kind: IcebergType, *, required: bool, doc: str | None = None) -> NestedField:
        """A field with the next id. If it is a list, its elements get the id that follows."""
        self._last += 1
        number = self._last
        if isinstance(kind, ListType):
            self._last += 1
            kind = ListType(self._last, kind.element_type, element_required=kind.element_required)
        return NestedField(number, name, kind, doc=doc, required=required)


class IdsByName(FieldIds):
    """Gives each field the id that it has in every shard."""

    are_by_name = True

    def __init__(self) -> None:
        super().__init__(0)

    def new_field(self, name: str, kind: IcebergType, *, required: bool, doc: str | None = None) -> NestedField:
        """A field whose id follows from its name and its type. The id of a list's elements follows from both, too."""
        number = field_id(name, str(kind))
        if isinstance(kind, ListType):
            elements = field_id(name, str(kind), "elements")
            kind = ListType(elements, kind.element_type, element_required=kind.element_required)
        return NestedField(number, name, kind, doc=doc, required=required)


def field_ids_of(metadata: TableMetadata) -> FieldIds:
    """What gives field ids to new fields of the table."""
    return IdsByName() if SHARD in metadata.properties else FieldIds(metadata.last_column_id)


def number_by_name(transaction: Transaction, shard: str) -> None:
    """Let the transaction, before its first snapshot, give the columns the ids that they have in every shard.

    `shard`: the name of the shard, for a property of the table.
    """
    schema, ids = transaction.table_metadata.schema(), IdsByName()
    fields = [
        ids.new_field(field.name, field.field_type, required=field.required, doc=field.doc) for field in schema.fields
    ]
    key = {schema.find_field(number).name for number in schema.identifier_field_ids}
    transaction.set_properties({SHARD: shard})
    show_new(transaction, fields, key)


def show_new(transaction: Transaction, fields: Sequence[NestedField], key: Collection[str]) -> None:
    """Let the transaction add a schema of these fields, with this key, and make it the table's current one."""
    next_id = max(schema.schema_id for schema in transaction.table_metadata.schemas) + 1
    schema = Schema(*fields, schema_id=next_id, identifier_field_ids=identifier_of(fields, key))
    transaction._stage((AddSchemaUpdate.model_validate({"schema": schema}),), ())  # noqa: SLF001 - the commit asserts
    _set_current(transaction, NEWEST)


def _set_current(transaction: Transaction, schema: int) -> None:
    """Let the transaction make this schema the table's current one, unless it is already."""
    if schema != transaction.table_metadata.current_schema_id:
        update = SetCurrentSchemaUpdate.model_validate({"schema-id": schema})
        transaction._stage((update,), ())  # noqa: SLF001 - the commit asserts the schema
