"""The columns of the histories of tables (`core.companions.history_table`), by the fingerprints in their commits.

histories/<database.table>.json   the last definitions, the newest first

A definition is stored before the commit that first has it. If the folder is lost, the published property PROPERTY has
the definition of the commit that readers see.
"""

from collections.abc import Mapping

from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.files.file import File
from lakeingest.state import store
from lakeingest.state.definition import as_property, from_property, schema_from_json, schema_to_json

FOLDER, PROPERTY = "histories", "lakeingest.definition"
_MOST = 3  # definitions that are kept; a commit that readers see, and one that they do not see yet, need two of them


def keep_history(state: File, history: TableSchema) -> None:
    """Store the columns of a history, before the commit that has them. Raises StorageFailed if that fails."""
    stored = [schema for schema in _stored(state, history.table) if schema.fingerprint != history.fingerprint]
    doc = {"definitions": [schema_to_json(schema) for schema in [history, *stored][:_MOST]]}
    store.make_folder(state / FOLDER)
    store.replace(store.path_of(state / FOLDER, history.table), doc)


def history_with(state: File, table: TableId, fingerprint: str, properties: Mapping[str, str]) -> TableSchema | None:
    """The columns of a history with this fingerprint; None if neither the state nor the `properties` have them."""
    carried = from_property(properties.get(PROPERTY, ""))
    known = [*_stored(state, table), *([] if carried is None else [carried])]
    return next((schema for schema in known if schema.fingerprint == fingerprint), None)


def property_of(history: TableSchema) -> Mapping[str, str]:
    """The property with which a commit of this definition is published."""
    return {PROPERTY: as_property(history)}


def _stored(state: File, table: TableId) -> list[TableSchema]:
    """The stored definitions of a history, the newest first; none if the document is missing or damaged."""
    path = store.path_of(state / FOLDER, table)
    return store.read_or(path, lambda doc: list(map(schema_from_json, doc["definitions"])), [])
