"""The record key of a Hudi table: Hudi's own text of it, or a column of ours.

Hudi's own text is exact for integers. Of other values it is not: two composite keys can have the same text, '' and
`__null__` have a meaning, and a bucket is chosen by what stands between `:` and `,`. Tables with such keys have the
column RECORD_KEY, one text of the whole key, which readers have no need of.
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
    """The columns that are the record key of a new table with these columns."""
    types = {field.name: field.dataType.simpleString() for field in columns}
    return tuple(key) if {types[name] for name in key} <= _OWN_TEXT else (RECORD_KEY,)


def with_record_key(rows: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The rows with RECORD_KEY."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    types = {field.name: field.dataType.simpleString() for field in rows.schema}
    return rows.withColumn(RECORD_KEY, F.expr(key_text([(name, types[name]) for name in key])))


def key_text(key: Sequence[tuple[str, str]]) -> str:
    """Spark's expression of a text that no other key has, for the names and types of the key's columns.

    Each part stands after a `/`, which no escaped text has; nor have they any `:` or `,`.
    """
    parts = (f"'/', {_escaped(quote(name), kind)}" for name, kind in key)
    return f"concat({', '.join(parts)})"


def _escaped(column: str, kind: str) -> str:
    """The text of one column. No two values of a type have the same, whatever the session's time zone is."""
    if kind == "binary":
        return f"hex({column})"
    if kind == "timestamp":
        return f"CAST(unix_micros({column}) AS STRING)"
    if kind == "string":
        return f"url_encode({column})"
    return f"url_encode(CAST({column} AS STRING))"
