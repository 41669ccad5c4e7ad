"""What a publish changes of a table beside its rows: comments of the source, and properties that users ask for.

The table property `lakeingest.given` names what we set. Only that is taken back when the source or pipeline.yml no
longer has it: what others set, or wrote as comments, stays.
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

from lakeingest.core.schema import TableSchema
from lakeingest.errors import DAMAGED
from lakeingest.lake.iceberg.properties import PROPERTIES
from lakeingest.lake.iceberg.shape import LOCATION

GIVEN = "lakeingest.given"
_ONE_LINE = {"glue": 255, "hive": 255}  # most characters of a column's comment in these catalogs, which is one line


@dataclass(frozen=True, slots=True)
class Form:
    """What a table shows beside its rows: its properties, and the comments of its columns by their names."""

    properties: Mapping[str, str]
    comments: Mapping[str, str]

    @classmethod
    def of(cls, schema: TableSchema, properties: Mapping[str, str], catalog: str | None) -> Self:
        """The form that the source and the users ask for, in a catalog of this type."""
        comments = {column.name: _fitting(column.comment, catalog) for column in schema.columns if column.comment}
        return cls(properties, comments)

    @property
    def all_properties(self) -> dict[str, str]:
        """The properties, and the one that names what is given."""
        given = {"properties": sorted(self.properties), "comments": sorted(self.comments)}
        return {**self.properties, GIVEN: json.dumps(given)} if any(given.values()) else {}


def evolve(transaction: Transaction, form: Form) -> None:
    """Let this commit give the table another form, where it has not this one."""
    metadata = transaction.table_metadata
    given, found = _given(metadata), metadata.properties
    gone = [name for name in given["properties"] if name not in form.properties]
    again = {name: PROPERTIES[name] for name in gone if name in PROPERTIES}
    wanted = {**again, LOCATION: metadata.location, **form.all_properties}
    if not form.all_properties and GIVEN in found:
        gone.append(GIVEN)
    if changed := {name: value for name, value in wanted.items() if found.get(name) != value}:
        transaction.set_properties(changed)
    if left := [name for name in gone if name in found and name not in wanted]:
        transaction.remove_properties(*left)
    if updates := _commented(metadata, form.comments, given["comments"]):
        transaction._stage(updates, ())  # noqa: SLF001 - the commit asserts the schema


def _commented(metadata: TableMetadata, comments: Mapping[str, str], given: Sequence[str]) -> tuple[TableUpdate, ...]:
    """The updates that give the columns these comments; none where they have them."""
    now = metadata.schema()
    fields = [
        field.model_copy(update={"doc": comments.get(field.name) or (None if field.name in given else field.doc)})
        for field in now.fields
    ]
    if all(field.doc == before.doc for field, before in zip(fields, now.fields, strict=True)):
        return ()
    new = Schema(
        *fields,
        schema_id=max(one.schema_id for one in metadata.schemas) + 1,
        identifier_field_ids=now.identifier_field_ids,
    )
    known = next((one.schema_id for one in metadata.schemas if one == new), None)
    if known is not None:
        return (SetCurrentSchemaUpdate.model_validate({"schema-id": known}),)
    return AddSchemaUpdate.model_validate({"schema": new}), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})


def _given(metadata: TableMetadata) -> dict[str, list[str]]:
    """The names of what we set; a copy of an earlier version has none, and a value of someone else means none."""
    try:
        named = json.loads(metadata.properties.get(GIVEN, "{}"))
        return {kind: [str(name) for name in named.get(kind, [])] for kind in ("properties", "comments")}
    except DAMAGED:
        return {"properties": [], "comments": []}


def _fitting(comment: str, catalog: str | None) -> str:
    """The comment as the catalog can store it."""
    most = _ONE_LINE.get(catalog or "")
    if most is None:
        return comment
    line = re.sub(r"[\x00-\x1f\x7f]+", " ", comment)
    return line if len(line) <= most else f"{line[: most - 1]}…"
