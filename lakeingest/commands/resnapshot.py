"""What a re-snapshot is to read again, as people write it: keys in JSON, a condition in SQL."""

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
    """The whole tables; or the rows that `where` holds for, the listed keys, or the keys in [start, stop).

    With `gap` the whole tables: where changes of a table are lost, its rows are compared, not copied again.
    A key is a value of the table's key column, or a list of values in the order of its key columns. UsageError where
    more than one is given, where keys are given of several tables, and where the server or the key's columns refuse
    what is given.
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
        schemas = [source.schema(one, config.tables.of(one).choices) for one in chosen]
        if where is not None:
            for one in schemas:
                _assert_accepted(source, one, where)
            return Scope(where=where)
    [schema] = schemas
    if keys is not None:
        if not keys:
            raise UsageError("no keys are listed")
        return Scope(keys=tuple(_bound(schema, key) for key in keys))
    lower, upper = (None if one is None else _bound(schema, one) for one in (start, stop))
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
    """UsageError unless the server can ask for the rows of the table that the condition holds for."""
    if not where.strip():
        raise UsageError("the condition is empty")
    if (refused := source.refusal_of(schema, where)) is not None:
        raise UsageError(f"{schema.table}: the server refuses the condition: {refused}")
