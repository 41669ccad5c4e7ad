"""A document for each copied table in the state folder: the table's definition, and the position of its first publish.

Readers of the changelog, and a run after DDL, need the definition that the copied rows have. The source cannot tell
this definition, because its table may already have another definition. The position is stored before the first publish,
so it is known for each published copy. Each publish carries the definition, too, in case the state folder is lost.

Each function that stores raises StorageFailed if the document cannot be written. A damaged document counts as missing,
except in `definition`.
"""

import base64
import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import unquote

from lakeingest.core.binlog.position import FilePosition, Place, Position
from lakeingest.core.plain import plain
from lakeingest.core.tables.column_choice import ALL_COLUMNS, ColumnChoice
from lakeingest.core.tables.schema import LAID_OUT, UNMAPPED, Choices, Column, Kind, SourceType, TableId, TableSchema
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.latest import Latest
from lakeingest.state import store

FOLDER = "definitions"
_LAYOUT = ("stored", *(f"{name}s" for name in LAID_OUT))  # the JSON keys of the parts of `TableSchema.layout`
EARLIER_MAX = 8  # how many earlier definitions a document keeps


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition that the rows of a copy have (`schema`), and what is known of the copy's publishes.

    `first` is the position of the first publish, and `first_at` its time in seconds since 1970. They are None before
    the first publish, or if an older version of lakeingest made that publish. `audited_at` is the time of the last
    audit in full; None if there was none.

    If the copy was started over, `before` is the version that readers saw then: this version and all earlier versions
    belong to another changelog. From the place `restarted` on, the copy has all changes. `before` and `restarted` are
    None if the copy was never started over.

    `earlier` are former definitions, the newest last: the rows of a commit from before DDL have one of them.
    `suspect`: rows may have been read with a wrong definition, so all rows are read again before the next publish.
    `found` then has the definition by which they are read, and the end of the source's binlog when a run found it.
    """

    schema: TableSchema
    first: Position | None = None
    before: int | None = None
    earlier: tuple[TableSchema, ...] = ()
    suspect: bool = False
    found: tuple[TableSchema, FilePosition] | None = None
    first_at: int | None = None
    restarted: Place | None = None
    audited_at: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        first = None if self.first is None else self.first.to_json()
        doc: dict[str, Any] = {"schema": schema_to_json(self.schema), "first": first}
        if self.earlier:
            doc["earlier"] = [schema_to_json(schema) for schema in self.earlier]
        if self.suspect:
            doc["suspect"] = True
        if self.before is not None:
            doc["before"] = self.before
        if self.found is not None:
            found_schema, found_at = self.found
            doc["found"] = {"schema": schema_to_json(found_schema), "at": str(found_at)}
        if self.first_at is not None:
            doc["first_at"] = self.first_at
        if self.audited_at is not None:
            doc["audited_at"] = self.audited_at
        if self.restarted is not None:
            doc["restarted"] = str(self.restarted)
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for any other document."""
        try:
            first = None if doc["first"] is None else Position.from_json(doc["first"])
            before = None if doc.get("before") is None else int(doc["before"])
            earlier = tuple(map(schema_from_json, doc.get("earlier", ())))
            found_doc = doc.get("found")
            found = found_doc and (schema_from_json(found_doc["schema"]), FilePosition.parse(found_doc["at"]))
            schema = schema_from_json(doc["schema"])
            suspect = doc.get("suspect") is True
            restarted = doc.get("restarted") and Place.parse(doc["restarted"])
            first_at = None if doc.get("first_at") is None else int(doc["first_at"])
            audited_at = None if doc.get("audited_at") is None else int(doc["audited_at"])
            return cls(
                schema,
                first=first,
                before=before,
                earlier=earlier,
                suspect=suspect,
                found=found,
                first_at=first_at,
                restarted=restarted,
                audited_at=audited_at,
            )
        except DAMAGED as error:
            raise StateUnreadable(f"not a table's definition: {error}") from error


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    """A JSON document that `schema_from_json` reads back.

    Comments and defaults are left out, because they are always taken from the source.
    """
    layout = dict(zip(_LAYOUT, schema.layout, strict=True))
    doc: dict[str, Any] = plain(schema) | {"table": str(schema.table), "layout": layout}
    del doc["comment"], doc["stored"], doc["_fingerprint"]  # the layout has `stored`
    # so that earlier versions can read the document
    if not schema.choices.rows:
        del doc["choices"]["rows"]
    if not schema.choices.columns.cast:
        del doc["choices"]["columns"]["cast"]
    if not schema.choices.columns.rename:
        del doc["choices"]["columns"]["rename"]
        if schema.choices.columns == ALL_COLUMNS:  # this does not compare `rename`, which is empty here
            del doc["choices"]["columns"]
    for column in doc["columns"]:  # of the UNMAPPED fields, the document has only those in the layout
        for name in UNMAPPED:
            del column[name]
        if not column["renamed_from"]:
            del column["renamed_from"]
    return doc


def schema_from_json(doc: Mapping[str, Any]) -> TableSchema:
    """The inverse of `schema_to_json`. Raises an error of `errors.DAMAGED` for any other document."""
    unknown = ("",) * len(doc["columns"])  # documents of earlier versions do not have all parts of the layout
    layout = dict.fromkeys(_LAYOUT, unknown) | {"stored": ()} | doc.get("layout", {})
    parts = [layout[name] for name in _LAYOUT[1:]]  # the parts after `stored`: each has a value for each column
    layouts_of_columns = (dict(zip(LAID_OUT, values, strict=True)) for values in zip(*parts, strict=True))
    return TableSchema(
        TableId.parse(doc["table"]),
        tuple(
            _column(column, layout_of_column)
            for column, layout_of_column in zip(doc["columns"], layouts_of_columns, strict=True)
        ),
        tuple(doc["key"]),
        choices=_choices(doc["choices"]),
        skipped=tuple(doc["skipped"]),
        generated=tuple(doc["generated"]),
        index=doc["index"],
        stored=tuple(layout["stored"]),
    )


def _column(doc: Mapping[str, Any], layout: Mapping[str, str]) -> Column:
    """The column in a document. `layout`: its fields that are in the layout of the table."""
    source = doc["source_type"]
    source_type = SourceType(**source | {"members": tuple(source["members"])})
    kind = Kind(doc["kind"])
    return Column(**{**doc, "kind": kind, "source_type": source_type, **layout})


def _choices(doc: Mapping[str, Any]) -> Choices:
    """The choices in a document. Documents of earlier versions have no `metadata` and no `columns`."""
    chosen: dict[str, Any] = dict(doc.get("columns", {}))
    pairs: dict[str, Any] = {key: tuple(map(tuple, chosen.pop(key, ()))) for key in ("cast", "rename")}
    key_id = str(chosen.pop("key_id", ""))
    lists = {key: tuple(names) for key, names in chosen.items()}  # the other keys: include, exclude, hash, mask
    columns = ColumnChoice(**lists, **pairs, key_id=key_id)
    key_and_metadata = {name: tuple(doc.get(name, ())) for name in ("key", "metadata")}
    return Choices(**{**doc, **key_and_metadata, "columns": columns})


_MADE: Latest[str, Definition] = Latest()  # by the path of a document, what was made of its contents last


def definition(state: File, table: TableId) -> Definition | None:
    """The stored definition of a table; None if none is stored. Raises StateUnreadable if the document is damaged."""
    file = _file(state, table)
    try:
        contents = file.read()  # read several times in a run: from equal contents, the value is made once
        return _MADE.of(str(file), contents, lambda: Definition.from_json(files.parsed(contents)))
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGED, StateUnreadable) as error:
        raise StateUnreadable(f"{table}: {file} cannot be read: {error}; remove it and run again") from error


def defined_tables(state: File) -> list[TableId]:
    """The tables whose definition is stored. These are all copied tables, unless the state folder was lost.

    Raises StorageFailed if the folder cannot be listed, and StateUnreadable if a document with a shortened name is
    damaged.
    """
    with store.storage_errors(state / FOLDER, "read"):
        documents = (state / FOLDER).listed("*.json")
    return [_table_of(state, document) for document in documents]


def _table_of(state: File, file: File) -> TableId:
    """The table of a document: from the file's name, or from the contents if the name was shortened.

    Raises StateUnreadable if these contents are damaged.
    """
    with suppress(ValueError):
        table = TableId.parse(unquote(file.stem))
        if _file(state, table).name == file.name:
            return table
    try:
        return TableId.parse(store.read(file)["schema"]["table"])
    except (OSError, *DAMAGED) as error:
        raise StateUnreadable(f"{file} cannot be read: {error}; remove it and run again") from error


def keep_definition(state: File, schema: TableSchema, *, is_new: bool = False) -> Definition:
    """Store a table's definition if it is not stored yet, and return the document that is stored afterwards.

    A definition among the `earlier` ones counts as stored. For a new copy (`is_new`), earlier definitions do not count,
    and a document that is suspect, or whose definition has another layout, is replaced. A damaged document is always
    replaced. If the definition differs from the stored one only in choices that concern no column of the table, the
    document gets the new choices and keeps the rest.
    """
    document = stored = _stored_or_none(state, schema.table)
    if stored is not None and not is_new and stored.schema == schema:
        return stored
    if stored is not None and _form(stored.schema) == _form(schema):
        document = replace(stored, schema=schema)  # with the new choices, which concern no column
    earlier = () if document is None or is_new else document.earlier
    if document is None or schema not in {document.schema, *earlier}:  # the definition is not stored yet
        document = Definition(schema)
    elif is_new and (document.suspect or document.schema.layout != schema.layout):
        document = replace(document, schema=schema, earlier=(), suspect=False, found=None)
    elif document == stored:  # nothing has changed, so nothing is to be stored
        return document
    _keep(state, document)
    return document


def _form(schema: TableSchema) -> tuple[object, ...]:
    """A definition without the choices that concern none of its columns: the fingerprint has all other choices."""
    return schema.fingerprint, schema.layout, replace(schema, choices=Choices())


def keep_suspect(state: File, schema: TableSchema) -> None:
    """Store that the copy is suspect: its rows may have been read with a wrong definition."""
    _keep(state, replace(_stored_or_none(state, schema.table) or Definition(schema), suspect=True))


def keep_found(state: File, schema: TableSchema, at: FilePosition) -> FilePosition:
    """Store the definition that a run found in the source, and `at`, where the binlog ended then.

    The run looked because the stored definition of the copy is `suspect`: it may be wrong. Returns the position at
    which the binlog ended when a run first found this definition: the stored position if this definition is stored as
    `found` already, else `at`.
    """
    stored = _stored_or_none(state, schema.table) or Definition(schema, suspect=True)
    if stored.found is not None and stored.found[0].reads_as(schema):
        return stored.found[1]
    _keep(state, replace(stored, found=(schema, at)))
    return at


def keep_layout(state: File, schema: TableSchema) -> None:
    """Store the layout of `schema` if the same definition is stored with another layout."""
    stored = _stored_or_none(state, schema.table)
    if stored is not None and stored.schema == schema and stored.schema.layout != schema.layout:
        _keep(state, replace(stored, schema=schema))


def keep_next(state: File, current: TableSchema, schema: TableSchema) -> None:
    """Store `schema`, the definition to which the rows are about to be lifted.

    The `current` definition of the rows, and the stored definitions, become earlier definitions. Of all these, the last
    EARLIER_MAX are stored.
    """
    stored = _stored_or_none(state, current.table) or Definition(current)
    # the keys have the layout, too, because definitions that differ only in the layout are equal
    earlier = {(old, old.layout): old for old in (*stored.earlier, stored.schema, current)}
    earlier.pop((schema, schema.layout), None)
    _keep(state, replace(stored, schema=schema, earlier=tuple(earlier.values())[-EARLIER_MAX:]))


def definition_of(state: File, table: TableId, fingerprint: str) -> TableSchema | None:
    """The stored definition with this fingerprint, the current or an earlier one; None if no definition has it.

    If several definitions have the fingerprint, the result has only the parts of the layout in which they agree.
    """
    stored = _stored_or_none(state, table)
    schemas = () if stored is None else (stored.schema, *stored.earlier)
    matches = [schema for schema in schemas if schema.fingerprint == fingerprint]
    return with_layout(matches[0], *matches) if matches else None


def with_layout(schema: TableSchema, *known: TableSchema) -> TableSchema:
    """`schema.laid_out(*known)`, which is `schema` itself for most tables of a run."""
    layout = schema.layout
    # `laid_out` would change nothing: `stored` is layout[0] already, and all definitions agree
    if known and schema.stored == layout[0] and all(other.layout == layout for other in known):
        return schema
    return schema.laid_out(*known)


def as_property(schema: TableSchema) -> str:
    """The definition as the text of a publish's property, compressed because each version of a table keeps it."""
    text = json.dumps(schema_to_json(schema), separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def from_property(text: str) -> TableSchema | None:
    """The inverse of `as_property`; None for any other text."""
    try:
        return schema_from_json(json.loads(zlib.decompress(base64.b64decode(text, validate=True))))
    except (zlib.error, *DAMAGED):
        return None


def restore_definition(state: File, table: TableId, fingerprint: str, carried: str) -> None:
    """Store the definition that a publish carries, if it has this fingerprint and belongs to this table.

    `carried`: the text of the publish's property (`as_property`). A damaged text is ignored.
    """
    schema = from_property(carried)
    if schema is None:
        return
    if schema.table == table and schema.fingerprint == fingerprint:
        _keep(state, Definition(schema))


def keep_first_position(
    state: File, schema: TableSchema, published: int | None, position: Position | None
) -> Definition | None:
    """Before a publish at this position, store the position if the publish is the first one of the copy.

    The publish is the first one if `published`, the version that readers see, is None, or if readers still see the
    version from before the copy was started over. For other publishes nothing is stored. In each case, the result is
    the definition that is stored afterwards; None if none is stored.
    """
    stored = None if published is None else _stored_or_none(state, schema.table)  # says if the copy was started over
    is_started_over = stored is not None and stored.before == published
    if published is None or is_started_over:
        # the changelog needs only the place of the first publish, so the history of the binlog is not stored
        first = None if position is None else replace(position, history=None)
        restarted = None if stored is None else stored.restarted
        first_at = int(time.time())
        # a new document, without earlier definitions, and not suspect
        stored = Definition(schema, first=first, before=published, first_at=first_at, restarted=restarted)
        _keep(state, stored)
    return stored


def keep_audit(state: File, definition: Definition) -> None:
    """Store the table's `definition` again, with the present time as that of its last audit in full."""
    _keep(state, replace(definition, audited_at=int(time.time())))


def keep_restart(state: File, schema: TableSchema, published: int, restarted: Place | None = None) -> None:
    """Store that the copy is about to be started over, while readers see the version `published`.

    `restarted` is the place from which on the copy will have all changes. It is None if the changelog continues
    with the differences between the old and the new rows: then the stored `restarted` stays.
    """
    stored = _stored_or_none(state, schema.table) or Definition(schema)
    earlier = tuple(old for old in (*stored.earlier, stored.schema) if old != schema)
    _keep(
        state,
        Definition(
            schema,
            first=None,
            before=published,
            earlier=earlier[-EARLIER_MAX:],
            suspect=stored.suspect,
            restarted=restarted or stored.restarted,
        ),
    )


def _stored_or_none(state: File, table: TableId) -> Definition | None:
    """The stored definition; None if none is stored, or if the document is damaged."""
    try:
        return definition(state, table)
    except StateUnreadable:
        return None


def _keep(state: File, document: Definition) -> None:
    """Store the document of a table, in the place of the stored one."""
    store.replace_of_table(_file(state, document.schema.table), document.to_json())


def _file(state: File, table: TableId) -> File:
    return store.path_of(state / FOLDER, table)
