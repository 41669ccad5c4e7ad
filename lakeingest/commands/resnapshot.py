"""The scope of a re-snapshot, as people write it: keys in JSON, a condition in SQL."""

import json
from collections.abc import Sequence
from typing import Any

from lakeingest.commands.signal import chosen_tables
from lakeingest.config import Config
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.schema import TableSchema
from lakeingest.core.signals import OVER_GAP, WHOLE, Scope
from lakeingest.errors import UsageError
from lakeingest.mysql.key_values import bound_of, parse_key
from lakeingest.mysql.source import Source


def scope_of(
    config: Config,
    tables: Sequence[str],
    *,
    where: str | None = None,
    keys: Sequence[Any] | None = None,
    start: Any = None,
    stop: Any = None,
    gap: bool = False,
) -> Scope:
    """The whole tables; or the rows that the condition `where` selects, the listed keys, or the keys in [start, stop).

    With `gap`, a table that has lost changes is compared as a whole, instead of copied again. A key is a value of the
    table's key column, or a list of values in the order of its key columns.

    Raises UsageError for more than one of these, for keys of several tables, for a condition that the server refuses,
    and for keys that do not fit the key's columns.
    """
    ranged = start is not None or stop is not None
    if sum((where is not None, keys is not None, ranged, gap)) > 1:
        raise UsageError("one of a condition, keys, a range and a gap, not several")
    if gap:
        return OVER_GAP
    if where is None and keys is None and not ranged:
        return WHOLE
    chosen = chosen_tables(config, tables)
    if where is None and len(chosen) != 1:
        raise UsageError("keys and a range of keys are those of one table; name one")
    with Source.open(config.source) as source:
        schemas = [source.schema(table, config.tables.of(table).choices) for table in chosen]
        if where is not None:
            for schema in schemas:
                _assert_accepted(source, schema, where)
            return Scope(where=where)
    [schema] = schemas
    if keys is not None:
        if not keys:
            raise UsageError("no keys are listed")
        return Scope(keys=tuple(_bound(schema, key) for key in keys))
    lower, upper = (None if key is None else _bound(schema, key) for key in (start, stop))
    try:
        return Scope(range=KeyRange(lower, upper))
    except ValueError as error:
        raise UsageError(f"no range of keys: {error}") from error


def keys_of(lines: Sequence[str]) -> list[Any]:
    """The keys of a file, one in each line that is not empty."""
    return [key_of(line) for line in lines if line.strip()]


def key_of(text: str) -> Any:
    """A key as it is written on the command line: JSON, or a bare word."""
    try:
        return json.loads(text, parse_float=str)
    except ValueError:
        return text.strip()


def _bound(schema: TableSchema, key: Any) -> Key:
    values = key if isinstance(key, list | tuple) else [key]
    return bound_of(schema, parse_key(schema, json.dumps(list(values), default=_text)))


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _assert_accepted(source: Source, schema: TableSchema, where: str) -> None:
    """Raise UsageError unless the server accepts the condition for this table."""
    if not where.strip():
        raise UsageError("the condition is empty")
    if (refused := source.refusal_of(schema, where)) is not None:
        raise UsageError(f"{schema.table}: the server refuses the condition: {refused}")
