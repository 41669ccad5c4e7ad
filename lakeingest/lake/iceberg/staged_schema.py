"""The schema of staging, which may be ahead of the one that readers of main see.

Iceberg's current schema is the table's, not a branch's. So the schema of a lifted copy is only added to the table; a
staging commit is made while it is current, within one transaction, and names it: its files have the field ids of the
future. It stays current from the commit on that moves main.
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
from lakeingest.lake.iceberg.shape import changes
from lakeingest.lake.iceberg.types import iceberg_type

NEWEST = -1  # the schema that was added last


def schema_of(metadata: TableMetadata, version: int) -> int:
    """The id of the schema that commits on this snapshot are made with.

    That is the one of our commit, or of our commit below a compaction of others, who may have had another schema then;
    unless the current one has the same columns: with other comments, or not required.
    """
    snapshot = metadata.snapshot_by_id(version)
    ours = next((one for one in ancestors_of(snapshot, metadata) if is_marked(one)), None)
    number, now = None if ours is None else ours.schema_id, metadata.schema()
    own = next((one for one in metadata.schemas if one.schema_id == number), None)
    if own is None or not any(changes(own, now)):
        return metadata.current_schema_id
    return own.schema_id


def as_staged(loaded: Table, version: int) -> Table:
    """The table as commits on this snapshot see it: the schema of the snapshot is the current one. Never commit it."""
    schema = schema_of(loaded.metadata, version)
    if schema == loaded.metadata.current_schema_id:
        return loaded
    staged = copy.copy(loaded)
    staged.metadata = loaded.metadata.model_copy(update={"current_schema_id": schema})
    return staged


@contextmanager
def under(transaction: Transaction, schema: int) -> Iterator[None]:
    """What the block writes is written with this schema; after it the current one is what it was before."""
    before = transaction.table_metadata.current_schema_id
    _set_current(transaction, schema)
    yield
    _set_current(transaction, before)


def show_schema(transaction: Transaction, version: int) -> None:
    """Readers see the schema of this snapshot from this commit on."""
    _set_current(transaction, schema_of(transaction.table_metadata, version))


def future(metadata: TableMetadata, version: int, lift: Lift, *, keeps_dropped: bool) -> Schema:
    """The schema of the rows that are lifted from this snapshot on."""
    old = next(one for one in metadata.schemas if one.schema_id == schema_of(metadata, version))
    following = max(one.schema_id for one in metadata.schemas) + 1
    return lifted(old, lift, metadata.last_column_id, following, keeps_dropped=keeps_dropped)


def add_lifted(transaction: Transaction, new: Schema) -> int:
    """Add a schema to the table, if it has not this one; its id, for `under`."""
    known = next((one.schema_id for one in transaction.table_metadata.schemas if one == new), None)
    if known is not None:
        return known
    transaction._stage((AddSchemaUpdate.model_validate({"schema": new}),), ())  # noqa: SLF001 - the commit asserts
    return NEWEST


def lifted(old: Schema, lift: Lift, last_column_id: int, schema_id: int, *, keeps_dropped: bool = True) -> Schema:
    """The schema after a lift: a column that was there before keeps its field id, whatever it is called now.

    One that was dropped goes, or stays for readers, as a new field that is NULL in all rows, until its name is used
    again.
    """
    ids = _Ids(last_column_id)
    origins = {name: origin or "" for name, origin in zip(lift.after.names, lift.origins, strict=True)}
    fields = []
    for column in lift.after.lake_columns:
        origin = origins.get(column.name, column.name)  # metadata columns have the names that they had
        is_required = column.name in lift.after.key or not column.nullable
        if origin:
            field = old.find_field(origin)
            # the elements of a list have a field id, too, which stays
            kind = field.field_type if column.kind is Kind.VECTOR else iceberg_type(column)
            required = field.required and is_required
            fields.append(NestedField(field.field_id, column.name, kind, doc=field.doc, required=required))
        else:
            fields.append(ids.new_field(column.name, iceberg_type(column, 0), required=is_required))
    known, taken = {column.name for column in lift.before.lake_columns}, {field.name.lower() for field in fields}
    for field in old.fields:
        if field.name.lower() not in taken and field.name not in known:
            fields.append(field)
        elif keeps_dropped and field.name.lower() not in taken and field.name in lift.dropped:
            fields.append(ids.new_field(field.name, field.field_type, required=False, doc=field.doc))
    key = [field.field_id for field in fields if field.name in lift.after.key]
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=key)


def begun_again(
    metadata: TableMetadata, version: int, schema: TableSchema, origins: Origins | None, *, keeps_dropped: bool
) -> Schema:
    """The schema of rows that are all read again after this snapshot: a column of one origin and type is the same.

    Without `origins` it is the one of its name. Not one that is of the key now and may be NULL in older rows, because
    the columns of a key are required. A column that the source has no more goes, or is NULL.
    """
    old = next(one for one in metadata.schemas if one.schema_id == schema_of(metadata, version))
    ids, known = _Ids(metadata.last_column_id), {field.name: field for field in old.fields}
    named = origins or {}
    fields = []
    for column in schema.lake_columns:
        field, is_key = known.get(named.get(column.name, column.name) or ""), column.name in schema.key
        kind, is_required = iceberg_type(column, 0), is_key or not column.nullable
        is_same = field is not None and (field.field_type == kind or column.kind is Kind.VECTOR)
        if field is not None and is_same and (field.required or not is_key):
            fields.append(field.model_copy(update={"name": column.name, "required": field.required and is_required}))
        else:
            fields.append(ids.new_field(column.name, kind, required=is_required))
    taken = {field.name.lower() for field in fields}
    taken |= {was.lower() for was in named.values() if was}
    left = [one for one in old.fields if keeps_dropped and one.name.lower() not in taken]
    fields += [one.model_copy(update={"required": False}) for one in left]
    key = [field.field_id for field in fields if field.name in schema.key]
    return Schema(*fields, schema_id=max(one.schema_id for one in metadata.schemas) + 1, identifier_field_ids=key)


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
