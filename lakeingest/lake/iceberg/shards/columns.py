"""The columns of a shared table: those of all shards, by their names. Their field ids are by name, too."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import NestedField

from lakeingest.core.tables.change import DATABASE, TABLE
from lakeingest.core.tables.schema import TableId
from lakeingest.core.tables.shards import ShardsDiffer, SharedColumn, field_id, joined
from lakeingest.errors import ForeignWrite, UnsupportedTable
from lakeingest.lake.iceberg.tables.staged_schema import show_new

_KEY_OF_SHARDS = (DATABASE, TABLE)  # the first columns of the key, whose values tell the rows of shards apart


@dataclass(frozen=True, slots=True)
class SharedColumns:
    """The columns of the shared table `name`. `has_global_key`: its key is that of its shards, without their names."""

    name: str
    has_global_key: bool

    def show(self, transaction: Transaction, shard: TableId, shared: Schema | None, copy: Table) -> None:
        """Let the transaction add the columns of a shard that the shared table, with the columns `shared`, lacks.

        Raises ForeignWrite if a column of the shard does not have the id that follows from its name and type: then
        readers of the shared table would not find its values.
        """
        for field in copy.schema().fields:
            if field.field_id != field_id(field.name, str(field.field_type)):
                raise ForeignWrite(
                    f"{shard}: column {field.name} of {'.'.join(copy.name())} has an id of its own: someone else has"
                    " changed the columns or the properties of this table; drop it to copy it again"
                )
        fields = self.with_shard(shard, shared, copy.schema())
        if shared is None or tuple(fields) != shared.fields:
            # in a shared table, only columns of the key are required
            show_new(transaction, fields, [field.name for field in fields if field.required])

    def with_shard(self, shard: TableId, shared: Schema | None, of_shard: Schema) -> list[NestedField]:
        """The columns of the shared table once it has the shard. `shared`: its present columns; None: it is new.

        Raises UnsupportedTable if a column of the shard cannot be a column of the shared table.
        """
        present = [] if shared is None else list(shared.fields)
        columns, key = _columns(present), self._key(of_shard if shared is None else shared)
        try:
            merged = joined(columns, key, _columns(of_shard.fields), self._key(of_shard))
        except ShardsDiffer as error:
            raise UnsupportedTable(
                f"{shard}: it cannot be a shard of {self.name}: {error}; give the column another name or type in the"
                " copy (columns: rename, cast, exclude), or leave the table out"
            ) from error
        folded_key = {name.casefold() for name in key}
        # `present` is last, so a field of the shared table takes the place of the shard's
        by_name = {field.name.casefold(): field for field in (*of_shard.fields, *present)}
        types = {(field.name.casefold(), str(field.field_type)): field for field in (*of_shard.fields, *present)}
        fields = []
        for column in merged:
            name = column.name.casefold()
            of_type = types[name, column.kind]  # one of the two tables has the type of the merged column
            changed = {"name": column.name, "required": name in folded_key, "doc": by_name[name].doc}
            fields.append(_numbered(of_type.model_copy(update=changed), column))
        return sorted(fields, key=lambda field: field.name.startswith("_lakeingest_"))  # our own come last

    def _key(self, schema: Schema) -> list[str]:
        """The key in the shared table: the shard's own, after the columns that name the shard if it is not global."""
        names = [field.name for field in schema.fields if field.field_id in schema.identifier_field_ids]
        own = [name for name in names if name not in _KEY_OF_SHARDS]
        return own if self.has_global_key else [*_KEY_OF_SHARDS, *own]


def _columns(fields: Sequence[NestedField]) -> list[SharedColumn]:
    return [SharedColumn(field.name, str(field.field_type)) for field in fields]


def _numbered(field: NestedField, column: SharedColumn) -> NestedField:
    """The field with the id of its column; the ids of a list's elements are by its name already."""
    return field.model_copy(update={"field_id": column.field_id})
