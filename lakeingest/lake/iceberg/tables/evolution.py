"""The changes of a publish to a table besides its rows: comments of the source, and properties that users ask for.

The table property `lakeingest.given` names the comments and properties that we have set. Only these are removed when
the source or pipeline.yml no longer has them. Comments and properties of others stay.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, TableUpdate

from lakeingest import config
from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.partitioning import PartitionField
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.core.tables.sorting import SortField
from lakeingest.errors import DAMAGED
from lakeingest.lake.iceberg.files.sorting import follow_sort_by
from lakeingest.lake.iceberg.tables.properties import PROPERTIES, VERSION, wanted_properties, wanted_version
from lakeingest.lake.iceberg.tables.shape import LOCATION

GIVEN = "lakeingest.given"
_NO_OPTIONS = TableOptions()
_ONE_LINE = {"glue": 255, "hive": 255}  # in these catalogs a column's comment is one line of at most so many characters


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a table: its properties, its columns' comments by their names, its partitions and its sort order.

    The partitions and the version of Iceberg's format are those of a new table: a publish does not change them.
    """

    properties: Mapping[str, str]
    comments: Mapping[str, str]
    partitions: tuple[PartitionField, ...] = ()
    sorting: tuple[SortField, ...] = ()
    version: int = VERSION

    @classmethod
    def of(
        cls,
        schema: TableSchema,
        properties: Mapping[str, str],
        catalog: str | None,
        options: TableOptions = _NO_OPTIONS,
        version: int = VERSION,
    ) -> Self:
        """The form that the source and the users ask for. `catalog` is the type of the catalog."""
        comments = {column.name: _shortened(column.comment, catalog) for column in schema.columns if column.comment}
        return cls(properties, comments, options.partitions, options.sorting, version)

    @property
    def all_properties(self) -> dict[str, str]:
        """The properties, and GIVEN, which names these properties and the comments. Empty if there are neither."""
        names = {"properties": sorted(self.properties), "comments": sorted(self.comments)}
        return {**self.properties, GIVEN: json.dumps(names)} if any(names.values()) else {}


def wanted_form(settings: config.Target, options: TableOptions, schema: TableSchema, of_copy: TableOptions) -> Form:
    """The form that the source and pipeline.yml ask for. `of_copy`: the options with the copy's names of columns."""
    properties = wanted_properties(settings, options, schema.comment)
    return Form.of(schema, properties, settings.catalog.type, of_copy, wanted_version(settings, options))


def evolve(transaction: Transaction, table: TableId, form: Form) -> None:
    """Let this commit give the table the properties, comments and sort order of this form, as far as they differ.

    A property that we once set, and that nobody asks for any more, gets our default value or is removed. Raises
    PartitionsDiffer as `follow_sort_by`.
    """
    follow_sort_by(transaction, table, form.sorting)
    metadata = transaction.table_metadata
    given = _given_names(metadata)
    withdrawn = [name for name in given["properties"] if name not in form.properties]
    defaults = {name: PROPERTIES[name] for name in withdrawn if name in PROPERTIES}
    wanted = {**defaults, LOCATION: metadata.location, **form.all_properties}  # an earlier version set no LOCATION
    current = metadata.properties
    if changed := {name: value for name, value in wanted.items() if current.get(name) != value}:
        transaction.set_properties(changed)
    # `form.all_properties` has GIVEN only if there is something to name in it
    unwanted = [name for name in (*withdrawn, GIVEN) if name not in wanted]
    if removed := [name for name in unwanted if name in current]:
        transaction.remove_properties(*removed)
    if updates := _comment_updates(metadata, form.comments, given["comments"]):
        transaction._stage(updates, ())  # noqa: SLF001 - the commit asserts the schema


def _comment_updates(
    metadata: TableMetadata, comments: Mapping[str, str], ours: Sequence[str]
) -> tuple[TableUpdate, ...]:
    """The updates that give the columns these comments; none if the columns have them already.

    `ours` names the columns whose present comments we have set. If such a column has no comment in `comments`, its
    present comment is removed.
    """
    current = metadata.schema()
    fields = []
    for field in current.fields:
        kept_comment = None if field.name in ours else field.doc
        fields.append(field.model_copy(update={"doc": comments.get(field.name) or kept_comment}))
    if all(field.doc == old.doc for field, old in zip(fields, current.fields, strict=True)):
        return ()
    new = Schema(
        *fields,
        schema_id=max(schema.schema_id for schema in metadata.schemas) + 1,
        identifier_field_ids=current.identifier_field_ids,
    )
    existing = next((schema.schema_id for schema in metadata.schemas if schema == new), None)
    if existing is not None:  # an older schema has the same columns and comments
        return (SetCurrentSchemaUpdate.model_validate({"schema-id": existing}),)
    # -1: the schema that was added last
    return AddSchemaUpdate.model_validate({"schema": new}), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})


def _given_names(metadata: TableMetadata) -> dict[str, list[str]]:
    """The names of the properties and comments that we have set, from the property GIVEN.

    There are none in a copy that an earlier version made, or if someone else has damaged the property.
    """
    try:
        names = json.loads(metadata.properties.get(GIVEN, "{}"))
        return {kind: [str(name) for name in names.get(kind, [])] for kind in ("properties", "comments")}
    except DAMAGED:
        return {"properties": [], "comments": []}


def _shortened(comment: str, catalog: str | None) -> str:
    """The comment as a catalog of the type `catalog` can store it: some limit its length, and allow only one line."""
    limit = _ONE_LINE.get(catalog or "")
    if limit is None:
        return comment
    line = re.sub(r"[\x00-\x1f\x7f]+", " ", comment)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
