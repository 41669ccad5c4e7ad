"""The scope of a re-snapshot, made from what a user writes: keys in JSON, or a condition in SQL."""

import json
from collections.abc import Sequence
from typing import Any

from lakeingest.commands.signal import chosen_tables
from lakeingest.config import Config
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.scope import OVER_GAP, WHOLE, Scope
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
    """The scope of a re-snapshot of these tables: all rows, unless one of the options chooses something else.

    `where`: the rows that this SQL condition selects. `keys`: the rows with these keys. `start` and `stop`: the rows
    with keys in [start, stop); one of the two can be left out. `gap`: all rows of tables whose changes are lost; these
    rows are compared with the copy, and only rows that differ are copied.

    A key is a value of the table's key column, or a list of values in the order of the key's columns.

    Raises UsageError if several options are given, if keys or a range are given for several tables, if the list of keys
    or the condition is empty, if the server refuses the condition, or if a key does not fit the key's columns.
    """
    has_range = start is not None or stop is not None
    options_given = sum((where is not None, keys is not None, has_range, gap))
    if options_given > 1:
        raise UsageError("one of a condition, keys, a range and a gap, not several")
    if gap:
        return OVER_GAP
    if options_given == 0:
        return WHOLE
    chosen = chosen_tables(config, tables)
    if where is None and len(chosen) != 1:
        raise UsageError("keys and a range of keys are those of one table; name one")
    with Source.open(config.source) as source:
        schemas = [source.schema(table, config.tables.of(table).choices) for table in chosen]
        if where is not None:
            for schema in schemas:
                _assert_condition_accepted(source, schema, where)
            return Scope(where=where)
    [schema] = schemas  # keys and ranges are of one table
    if keys is not None:
        if not keys:
            raise UsageError("no keys are listed")
        return Scope(keys=tuple(_parsed_key(schema, key) for key in keys))
    lower, upper = (None if key is None else _parsed_key(schema, key) for key in (start, stop))
    try:
        return Scope(range=KeyRange(lower, upper))
    except ValueError as error:
        raise UsageError(f"no range of keys: {error}") from error


def keys_of(lines: Sequence[str]) -> list[Any]:
    """The keys in the lines of a file; empty lines are skipped."""
    return [key_of(line) for line in lines if line.strip()]


def key_of(text: str) -> Any:
    """A key from the command line or a file: the value of the JSON text, or the text itself if it is not JSON."""
    try:
        return json.loads(text, parse_float=str)  # decimals stay texts, because floats would be inexact
    except ValueError:
        return text.strip()


def _parsed_key(schema: TableSchema, key: Any) -> Key:
    """The key of a table for a value or a list of values. Raises UsageError if it does not fit the key's columns."""
    return bound_of(schema, key_values(schema, key))


def key_values(schema: TableSchema, key: Any) -> dict[str, Any]:
    """The Arrow values of `key`, a value or a list of values, by column. Raises UsageError if they do not fit."""
    values = key if isinstance(key, list | tuple) else [key]
    return parse_key(schema, json.dumps(list(values), default=_as_text))


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _assert_condition_accepted(source: Source, schema: TableSchema, where: str) -> None:
    """Raise UsageError unless the server accepts the condition for this table."""
    if not where.strip():
        raise UsageError("the condition is empty")
    if (refused := source.refusal_of(schema, where)) is not None:
        raise UsageError(f"{schema.table}: the server refuses the condition: {refused}")
