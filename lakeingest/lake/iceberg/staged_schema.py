"""The schema of staging, which may be ahead of the one that readers of main see.

Iceberg's current schema belongs to the table, not to a branch. So the schema of a lifted copy is only added to the
table. For a staging commit it becomes current within the commit's transaction: the commit names it, and its files have
its field ids. It stays current from the commit on that moves main.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import IcebergType, ListType, NestedField

from lakeingest.core.lift import Lift
from lakeingest.core.origins import Origins
from lakeingest.core.schema import Kind, TableSchema
from lakeingest.lake.iceberg.history import is_marked
from lakeingest.lake.iceberg.shape import schema_differences
from lakeingest.lake.iceberg.types import iceberg_type

NEWEST = -1  # stands for the schema that was added last


def schema_of(metadata: TableMetadata, version: int) -> int:
    """The id of the schema with which commits on this snapshot are made.

    It is the schema of our commit, also if that is below a compaction by others, who may have had another schema then.
    The current schema is used instead if it has the same columns; comments may differ, and columns may be optional.
    """
    snapshot = metadata.snapshot_by_id(version)
    ours = next((below for below in ancestors_of(snapshot, metadata) if is_marked(below)), None)
    number = None if ours is None else ours.schema_id
    own = next((schema for schema in metadata.schemas if schema.schema_id == number), None)
    if own is None or not any(schema_differences(own, metadata.schema())):
        return metadata.current_schema_id
    return own.schema_id


def as_staged(loaded: Table, version: int) -> Table:
    """The table as commits on this snapshot see it: its schema is the current one. Never commit this table."""
    schema = schema_of(loaded.metadata, version)
    if schema == loaded.metadata.current_schema_id:
        return loaded
    staged = copy.copy(loaded)
    staged.metadata = loaded.metadata.model_copy(update={"current_schema_id": schema})
    return staged


@contextmanager
def current_schema(transaction: Transaction, schema: int) -> Iterator[None]:
    """Make this schema the current one within the block, so that its commits have it."""
    current = transaction.table_metadata.current_schema_id
    _set_current(transaction, schema)
    yield
    _set_current(transaction, current)


def show_schema(transaction: Transaction, version: int) -> None:
    """Let readers see the schema of this snapshot from this commit on."""
    _set_current(transaction, schema_of(transaction.table_metadata, version))


def lifted_schema(metadata: TableMetadata, version: int, lift: Lift, *, keeps_dropped: bool) -> Schema:
    """The schema of rows that are lifted from this snapshot."""
    old = next(schema for schema in metadata.schemas if schema.schema_id == schema_of(metadata, version))
    following = max(schema.schema_id for schema in metadata.schemas) + 1
    return lift_schema(old, lift, metadata.last_column_id, following, keeps_dropped=keeps_dropped)


def add_lifted(transaction: Transaction, new: Schema) -> int:
    """Add a schema to the table, unless it has it. Returns its id, for `current_schema`."""
    existing = next((schema.schema_id for schema in transaction.table_metadata.schemas if schema == new), None)
    if existing is not None:
        return existing
    transaction._stage((AddSchemaUpdate.model_validate({"schema": new}),), ())  # noqa: SLF001 - the commit asserts
    return NEWEST


def lift_schema(old: Schema, lift: Lift, last_column_id: int, schema_id: int, *, keeps_dropped: bool = True) -> Schema:
    """The schema after a lift. A column that exists before and after it keeps its field id, whatever its name is now.

    A dropped column goes. With `keeps_dropped` it stays for readers, as a new field that is NULL in all rows, until its
    name is used again.
    """
    ids = _Ids(last_column_id)
    origins = {name: origin or "" for name, origin in zip(lift.after.names, lift.origins, strict=True)}
    fields = []
    for column in lift.after.lake_columns:
        origin = origins.get(column.name, column.name)  # metadata columns keep their names
        is_required = column.name in lift.after.key or not column.nullable
        if origin:
            field = old.find_field(origin)
            # the field id of a list's elements stays, too
            kind = field.field_type if column.kind is Kind.VECTOR else iceberg_type(column)
            required = field.required and is_required
            fields.append(NestedField(field.field_id, column.name, kind, doc=field.doc, required=required))
        else:
            fields.append(ids.new_field(column.name, iceberg_type(column, 0), required=is_required))
    copied, taken = {column.name for column in lift.before.lake_columns}, {field.name.lower() for field in fields}
    for field in old.fields:
        if field.name.lower() not in taken and field.name not in copied:
            fields.append(field)  # an older dropped column
        elif keeps_dropped and field.name.lower() not in taken and field.name in lift.dropped:
            fields.append(ids.new_field(field.name, field.field_type, required=False, doc=field.doc))
    key = [field.field_id for field in fields if field.name in lift.after.key]
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=key)


def restarted_schema(
    metadata: TableMetadata, version: int, schema: TableSchema, origins: Origins | None, *, keeps_dropped: bool
) -> Schema:
    """The schema of rows that are all read again after this snapshot.

    A column of the same origin and type stays the same. Without `origins`, the origin of a column is its name. An
    optional column that is part of the key now becomes a new one, because the columns of a key are required and older
    rows may have NULL. A column that the source does not have any more goes, or with `keeps_dropped` is NULL.
    """
    old = next(candidate for candidate in metadata.schemas if candidate.schema_id == schema_of(metadata, version))
    ids, old_fields = _Ids(metadata.last_column_id), {field.name: field for field in old.fields}
    origins = origins or {}
    fields = []
    for column in schema.lake_columns:
        field, is_key = old_fields.get(origins.get(column.name, column.name) or ""), column.name in schema.key
        kind, is_required = iceberg_type(column, 0), is_key or not column.nullable
        is_same = field is not None and (field.field_type == kind or column.kind is Kind.VECTOR)
        if field is not None and is_same and (field.required or not is_key):
            fields.append(field.model_copy(update={"name": column.name, "required": field.required and is_required}))
        else:
            fields.append(ids.new_field(column.name, kind, required=is_required))
    taken = {field.name.lower() for field in fields}
    taken |= {origin.lower() for origin in origins.values() if origin}
    dropped = [field for field in old.fields if keeps_dropped and field.name.lower() not in taken]
    fields += [field.model_copy(update={"required": False}) for field in dropped]
    key = [field.field_id for field in fields if field.name in schema.key]
    number = max(candidate.schema_id for candidate in metadata.schemas) + 1
    return Schema(*fields, schema_id=number, identifier_field_ids=key)


class _Ids:
    """The field ids of new fields, and of the elements of their lists."""

    def __init__(self, last: int) -> None:
        self._last = last

    def new_field(self, name: str, kind: IcebergType, *, required: bool, doc: str | None = None) -> NestedField:
        """A field with the next id."""
        self._last += 1
        number = self._last
        if isinstance(kind, ListType):
            self._last += 1
            kind = ListType(self._last, kind.element_type, element_required=kind.element_required)
        return NestedField(number, name, kind, doc=doc, required=required)


def _set_current(transaction: Transaction, schema: int) -> None:
    if schema != transaction.table_metadata.current_schema_id:
        update = SetCurrentSchemaUpdate.model_validate({"schema-id": schema})
        transaction._stage((update,), ())  # noqa: SLF001 - the commit asserts the schema
