"""The record key of a Hudi table: Hudi's own text of the key, or a column of ours.

Hudi's own text is exact for integers, and not for other values: two composite keys can have the same text, '' and
`__null__` have a meaning, and the text between `:` and `,` chooses the bucket. Tables with such keys have the column
RECORD_KEY, one text of the whole key, which readers do not need.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeingest.core.keys import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RECORD_KEY = "_lakeingest_key"
_OWN_TEXT = frozenset({"int", "bigint", "decimal(20,0)"})


def record_key(columns: "StructType", key: Sequence[str]) -> tuple[str, ...]:
    """The columns of the record key of a new table with these columns."""
    types = {field.name: field.dataType.simpleString() for field in columns}
    return tuple(key) if {types[name] for name in key} <= _OWN_TEXT else (RECORD_KEY,)


def with_record_key(rows: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The rows with the column RECORD_KEY."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    types = {field.name: field.dataType.simpleString() for field in rows.schema}
    return rows.withColumn(RECORD_KEY, F.expr(key_text([(name, types[name]) for name in key])))


def key_text(key: Sequence[tuple[str, str]]) -> str:
    """A Spark expression for the text of a key, which no other key has; `key` has the columns' names and types.

    A `/` precedes the text of each column. No escaped text has a `/`, `:` or `,`.
    """
    parts = (f"'/', {_escaped(quote(name), kind)}" for name, kind in key)
    return f"concat({', '.join(parts)})"


def _escaped(column: str, kind: str) -> str:
    """The text of one column. No two values of a type have the same text, whatever the session's time zone is."""
    if kind == "binary":
        return f"hex({column})"
    if kind == "timestamp":
        return f"CAST(unix_micros({column}) AS STRING)"
    if kind == "string":
        return f"url_encode({column})"
    return f"url_encode(CAST({column} AS STRING))"
