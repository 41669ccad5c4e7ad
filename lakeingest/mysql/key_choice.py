"""Chooses a table's key: the columns that the user names, else the primary key, else a unique key of NOT NULL columns.

The key identifies rows in the lake by the bytes of its values, and it orders the chunks by an index of the server. So
keys that differ in MySQL must differ in the lake. A column that breaks this rule is refused here. If only few values of
a column break the rule, each such value is refused when it is read (`wire.encodings`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakeingest.core.tables.schema import INTEGERS, PRIMARY, Column, Kind

_OPTION = "tables.options → key"
# Gives each row a number, on MySQL and MariaDB; `SELECT *` and an INSERT without names leave the column out
ADD_KEY = "ADD COLUMN row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY"
_UNFIT = {
    Kind.FLOAT: "no comparison finds its values exactly",
    Kind.DOUBLE: "no comparison finds its values exactly",
    Kind.JSON: "its values have no order by bytes",
    Kind.VECTOR: "its values have no order",
}


class NoKey(ValueError):
    """No columns can be the key; the message has the reason and the fix."""


def choose_key(
    columns: Sequence[Column], statistics: Iterable[Mapping[str, Any]], declared: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """The names of the key's columns, in order, and the name of its index ('' for `declared` columns).

    `declared` are the columns that the user names; without them an index is chosen. `statistics` are the rows of
    information_schema.STATISTICS; those of one index are in the order of its columns. The primary key is preferred;
    then a unique key of integers; then the key with the fewest columns; then the first by name. Raises NoKey if no
    columns can be the key, or if a declared column cannot be in a key.
    """
    by_name = {column.name: column for column in columns}
    if declared:
        for name in declared:
            if name not in by_name:
                raise NoKey(f"{_OPTION} names {name}, which is not a column of the table, or is skipped")
            if reason := _why_unfit(by_name[name]):
                raise NoKey(f"{_OPTION} names {name}: {reason}")
        return tuple(declared), ""
    unique_indexes: dict[str, list[Mapping[str, Any]]] = {}
    for row in statistics:
        if not int(row["non_unique"]):
            unique_indexes.setdefault(str(row["index_name"]), []).append(row)
    refusals = {index: _refusal(index, parts, by_name) for index, parts in unique_indexes.items()}
    usable = {  # the columns of each index that can be the key
        index: [by_name[str(part["column_name"])] for part in parts]
        for index, parts in unique_indexes.items()
        if not refusals[index]
    }
    if usable:
        best = min(usable, key=lambda index: _rank(index, usable[index]))
        return tuple(column.name for column in usable[best]), best
    if PRIMARY in refusals:  # there is a primary key, but it was refused
        raise NoKey(f"{refusals[PRIMARY]}; name other columns that are unique with {_OPTION}")
    raise NoKey(
        "it has neither a primary key nor a unique key of NOT NULL columns; name columns that are unique with"
        f" {_OPTION}, or add a key that applications do not see: ALTER TABLE … {ADD_KEY}"
    )


def _rank(name: str, columns: Sequence[Column]) -> tuple[bool, bool, int, str]:
    """The rank of an index with this name and these columns: the least rank is the best."""
    return name != PRIMARY, any(column.kind not in INTEGERS for column in columns), len(columns), name


def _refusal(name: str, parts: Sequence[Mapping[str, Any]], columns: Mapping[str, Column]) -> str | None:
    """The reason why an index cannot be the key; None if it can be the key."""
    # MySQL has the column `is_visible`, and MariaDB has `ignored`
    if str(parts[0].get("is_visible", "YES")).upper() == "NO" or parts[0].get("ignored") == "YES":
        return f"the index {name} is invisible"
    if parts[0]["index_type"] == "HASH":  # MariaDB's, of columns that are too long for a B-tree
        return f"the index {name} has no order"
    for part in parts:
        column = columns.get(part["column_name"])  # the name is NULL for an expression
        if column is None:
            return f"the index {name} has an expression, or a skipped column"
        if part["sub_part"] is not None:
            return f"the index {name} has only the beginning of {column.name}"
        if reason := _why_unfit(column):
            return reason
        if part["nullable"] == "YES":
            return f"{column.name} of the index {name} may be NULL"
    return None


def _why_unfit(column: Column) -> str | None:
    """The reason why a column cannot be in a key; None if it can be in a key."""
    if column.is_geometry:
        why = "its values have no order"
    elif column.kind in _UNFIT:
        why = _UNFIT[column.kind]
    elif not column.has_exact_members:
        why = "the server may show its members with other characters, and its values are found by them"
    elif _has_same_texts(column):
        why = "two of its values are the same text; remove the member that is empty, has a comma, or is a duplicate"
    else:
        return None
    return f"key column {column.name} is {column.source_type}: {why}"


def _has_same_texts(column: Column) -> bool:
    """Whether two numbers of an ENUM or SET have the same text; False for other types.

    The number 0 is the text '', and a SET joins members by commas. MySQL refuses a comma in a member of a SET, except
    in armscii8, which has a second code for the comma.
    """
    texts = ["", *column.members]
    has_comma = column.source_type.name == "set" and any("," in text for text in texts)
    has_duplicate = len(set(texts)) < len(texts)
    return bool(column.members) and (has_comma or has_duplicate)
