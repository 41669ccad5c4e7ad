"""What the state folder keeps of each copied table: its definition, and the position of its first publish.

Readers of the changelog need both without the source, which may have another definition by then; so does a run after
DDL. `first` is the position that the copy was published at first; it is kept before that publish, so that it is known
of every published copy. Each publish carries the definition, too, so that it outlives the state folder.
"""

import base64
import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Self
from urllib.parse import unquote

from lakeingest.core.file_names import file_name
from lakeingest.core.position import FilePosition, Place, Position
from lakeingest.core.schema import LAID_OUT, UNMAPPED, Choices, Column, Kind, SourceType, TableId, TableSchema
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "definitions"
_LAYOUT = ("stored", *(f"{name}s" for name in LAID_OUT))  # the names of a layout's parts in a document
EARLIER_MAX = 8  # definitions that are kept beside the newest one


@dataclass(frozen=True, slots=True)
class Definition:
    """How a table was defined when it was copied.

    `first` is the position of the first publish, and `first_at` its time in seconds since 1970. Each is None before
    that, and for copies that an older version of lakeingest published. `before` is the version that readers saw when
    the copy was started over: it and all earlier versions belong to another changelog. `restarted` is the place from
    which on the copy has all changes since then. Both are None if the copy was never started over.

    `earlier` are the definitions that rows of the copy had, the newest last: a run may have to begin there. `suspect`:
    rows may have been read by a wrong definition, so all rows are read again before the next publish. `found` is the
    definition to read them by, and the end of the source's binlog when a run found it.
    """

    schema: TableSchema
    first: Position | None = None
    before: int | None = None
    earlier: tuple[TableSchema, ...] = ()
    suspect: bool = False
    found: tuple[TableSchema, FilePosition] | None = None
    first_at: int | None = None
    restarted: Place | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        first = None if self.first is None else self.first.to_json()
        doc = {"schema": schema_to_json(self.schema), "first": first}
        earlier = {"earlier": [schema_to_json(one) for one in self.earlier]} if self.earlier else {}
        suspect = {"suspect": True} if self.suspect else {}
        found = self.found and {"schema": schema_to_json(self.found[0]), "at": str(self.found[1])}
        restarted = None if self.restarted is None else str(self.restarted)
        known = {"before": self.before, "found": found, "first_at": self.first_at, "restarted": restarted}
        return doc | earlier | suspect | {name: value for name, value in known.items() if value is not None}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; StateUnreadable for anything else."""
        try:
            first = None if doc["first"] is None else Position.from_json(doc["first"])
            before = None if doc.get("before") is None else int(doc["before"])
            earlier = tuple(map(schema_from_json, doc.get("earlier", ())))
            found = doc.get("found")
            found = found and (schema_from_json(found["schema"]), FilePosition.parse(found["at"]))
            schema, suspect, first_at = schema_from_json(doc["schema"]), doc.get("suspect") is True, doc.get("first_at")
            restarted = doc.get("restarted") and Place.parse(doc["restarted"])
            first_at = None if first_at is None else int(first_at)
            return cls(schema, first, before, earlier, suspect, found, first_at, restarted)
        except DAMAGED as error:
            raise StateUnreadable(f"not a table's definition: {error}") from error


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    """A JSON document that `schema_from_json` reads back; comments and defaults are as the source has them now."""
    layout = dict(zip(_LAYOUT, schema.layout, strict=True))
    doc = asdict(schema) | {"table": str(schema.table), "layout": layout}
    del doc["comment"], doc["stored"]
    for column in doc["columns"]:  # the others are in the layout
        for name in UNMAPPED:
            del column[name]
    return doc


def schema_from_json(given: Mapping[str, Any]) -> TableSchema:
    """The inverse of `schema_to_json`; KeyError, TypeError or ValueError for anything else."""
    unknown = ("",) * len(given["columns"])  # in documents of earlier versions
    layout = dict.fromkeys(_LAYOUT, unknown) | {"stored": ()} | given.get("layout", {})
    known = zip(*(layout[name] for name in _LAYOUT[1:]), strict=True)
    return TableSchema(
        TableId.parse(given["table"]),
        tuple(
            _column(column, dict(zip(LAID_OUT, found, strict=True)))
            for column, found in zip(given["columns"], known, strict=True)
        ),
        tuple(given["key"]),
        _choices(given["choices"]),
        tuple(given["skipped"]),
        tuple(given["generated"]),
        given["index"],
        stored=tuple(layout["stored"]),
    )


def _column(given: Mapping[str, Any], known: Mapping[str, str]) -> Column:
    source = given["source_type"]
    source_type = SourceType(**source | {"members": tuple(source["members"])})
    kind = Kind(given["kind"])
    return Column(**{**given, "kind": kind, "source_type": source_type, **known})


def _choices(given: Mapping[str, Any]) -> Choices:
    """Documents of earlier versions lack the choices that are newer."""
    return Choices(**{**given, "key": tuple(given["key"]), "metadata": tuple(given.get("metadata", ()))})


def definition(state: File, table: TableId) -> Definition | None:
    """What is kept of a table; None where nothing is. StateUnreadable where it is damaged."""
    file = _file(state, table)
    try:
        return Definition.from_json(store.read(file))
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGED, StateUnreadable) as error:
        raise StateUnreadable(f"{table}: {file} cannot be read: {error}; remove it and run again") from error


def defined(state: File) -> list[TableId]:
    """The tables of which a definition is kept: every copied one, unless the state folder was lost since."""
    return [_table_of(state, file) for file in (state / FOLDER).listed("*.json")]


def _table_of(state: File, file: File) -> TableId:
    """The table of a document, by its name, or by what it holds where the name does not say that."""
    with suppress(ValueError):
        table = TableId.parse(unquote(file.stem))
        if _file(state, table).name == file.name:
            return table
    try:
        return TableId.parse(store.read(file)["schema"]["table"])
    except (OSError, *DAMAGED) as error:
        raise StateUnreadable(f"{file} cannot be read: {error}; remove it and run again") from error


def keep_definition(state: File, schema: TableSchema, *, is_new: bool = False) -> Definition:
    """Keep a table's definition, if it is not kept already; a damaged document is replaced. What is kept now.

    Those that rows of the copy had earlier count, too, unless the copy `is_new`.
    """
    known = _known(state, schema.table)
    if known is None or schema not in {known.schema, *(() if is_new else known.earlier)}:
        known = Definition(schema)
    elif is_new and (known.suspect or known.schema.layout != schema.layout):
        known = replace(known, schema=schema, earlier=(), suspect=False, found=None)
    else:
        return known
    _keep(state, known)
    return known


def keep_suspect(state: File, schema: TableSchema) -> None:
    """Keep that rows of the copy may have been read by a wrong definition."""
    _keep(state, replace(_known(state, schema.table) or Definition(schema), suspect=True))


def keep_found(state: File, schema: TableSchema, at: FilePosition) -> FilePosition:
    """Where the binlog ended when a run first found this definition of a suspect copy: `at`, if it is new."""
    known = _known(state, schema.table) or Definition(schema, suspect=True)
    if known.found is not None and known.found[0].reads_as(schema):
        return known.found[1]
    _keep(state, replace(known, found=(schema, at)))
    return at


def keep_layout(state: File, schema: TableSchema) -> None:
    """Keep the layout of a definition that is kept, if that is new."""
    known = _known(state, schema.table)
    if known is not None and known.schema == schema and known.schema.layout != schema.layout:
        _keep(state, replace(known, schema=schema))


def keep_next(state: File, before: TableSchema, schema: TableSchema) -> None:
    """Keep the definition that rows are about to be lifted to, beside those that they have now or had before."""
    known = _known(state, before.table) or Definition(before)
    earlier = {(one, one.layout): one for one in (*known.earlier, known.schema, before)}
    earlier.pop((schema, schema.layout), None)
    _keep(state, replace(known, schema=schema, earlier=tuple(earlier.values())[-EARLIER_MAX:]))


def definition_of(state: File, table: TableId, fingerprint: str) -> TableSchema | None:
    """The definition with this fingerprint that rows of the copy have or had; None where it is not kept.

    Where several have it, their layout is not known as far as they differ.
    """
    known = _known(state, table)
    found = [] if known is None else [one for one in (known.schema, *known.earlier) if one.fingerprint == fingerprint]
    return found[0].laid_out(*found) if found else None


def as_property(schema: TableSchema) -> str:
    """The definition as a property of a publish; compressed, because catalogs keep it with each version of a table."""
    text = json.dumps(schema_to_json(schema), separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def restore_definition(state: File, table: TableId, fingerprint: str, given: str) -> None:
    """Keep the definition that a publish carries, if it has this fingerprint and belongs to this table."""
    try:
        schema = schema_from_json(json.loads(zlib.decompress(base64.b64decode(given, validate=True))))
    except (zlib.error, *DAMAGED):
        return  # it is as if the publish had none
    if schema.table == table and schema.fingerprint == fingerprint:
        _keep(state, Definition(schema))


def keep_first(state: File, schema: TableSchema, published: int | None, position: Position | None) -> None:
    """Keep the position of a copy's first publish, which is about to be tried.

    `published` is what readers see: nothing yet, or the version from before the copy was started over. Otherwise it is
    not the first publish, and nothing is kept.
    """
    known = None if published is None else _known(state, schema.table)
    if published is None or (known is not None and known.before == published):
        first = position and replace(position, history=None)
        restarted = None if known is None else known.restarted
        _keep(state, Definition(schema, first, published, first_at=int(time.time()), restarted=restarted))


def begin_again(state: File, schema: TableSchema, published: int, restarted: Place | None = None) -> None:
    """All rows of the copy are about to be read again, while readers see this version.

    `restarted`: with the changes after this place. None: those that differ are lines of the changelog, which goes on.
    """
    known = _known(state, schema.table)
    earlier = () if known is None else tuple(one for one in (*known.earlier, known.schema) if one != schema)
    suspect, before = (False, None) if known is None else (known.suspect, known.restarted)
    _keep(state, Definition(schema, None, published, earlier[-EARLIER_MAX:], suspect, restarted=restarted or before))


def _known(state: File, table: TableId) -> Definition | None:
    try:
        return definition(state, table)
    except StateUnreadable:
        return None


def _keep(state: File, known: Definition) -> None:
    file = _file(state, known.schema.table)
    store.make_folder(file.parent)
    with store.of_one_table(file):
        store.replace(file, known.to_json())


def _file(state: File, table: TableId) -> File:
    return state / FOLDER / f"{file_name(str(table))}.json"
