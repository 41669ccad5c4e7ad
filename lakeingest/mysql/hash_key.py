"""Adds the key of the hashes to the definition that a decoder gets. All other definitions are without the key."""

from dataclasses import replace

from lakeingest.config import Source
from lakeingest.core.tables.column_choice import HASHED
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import OperatorNeeded


def keyed(schema: TableSchema, source: Source) -> TableSchema:
    """The definition, with the key of the hashes in its columns if the copy has hashes of any values.

    Raises OperatorNeeded if the key is needed and not set. The result is for a decoder alone: it must not be stored or
    logged.
    """
    hashed = [column.name for column in schema.columns if column.choice == HASHED]
    if not hashed:
        return schema
    if not source.hash_key:
        raise OperatorNeeded(f"{schema.table}: {', '.join(hashed)} is hashed; set tables.hash_key")
    return replace(schema, columns=tuple(replace(column, secret=source.hash_key) for column in schema.columns))
