"""The record key of a Hudi table: the columns of the primary key, or our column RECORD_KEY.

Hudi makes a text of the record key. Only for integers, different keys always have different texts. For other types, two
composite keys can have the same text, Hudi treats '' and `__null__` as special values, and Hudi takes the part between
`:` and `,` for the bucket. So a table with a column of another type in its key has the column RECORD_KEY: one text of
the whole key, which readers do not need.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeingest.core.tables.keys import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RECORD_KEY = "_lakeingest_key"
_EXACT = frozenset({"int", "bigint", "decimal(20,0)"})  # the types whose values Hudi's own text distinguishes


def record_key(columns: "StructType", key: Sequence[str]) -> tuple[str, ...]:
    """The columns of the record key of a new table: the columns of the primary `key`, or RECORD_KEY alone.

    `columns` has the types of all columns of the table.
    """
    types = {field.name: field.dataType.simpleString() for field in columns}
    return tuple(key) if {types[name] for name in key} <= _EXACT else (RECORD_KEY,)


def with_record_key(rows: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The rows with the additional column RECORD_KEY, made from the columns of `key`."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    types = {field.name: field.dataType.simpleString() for field in rows.schema}
    return rows.withColumn(RECORD_KEY, F.expr(key_text([(name, types[name]) for name in key])))


def key_text(key: Sequence[tuple[str, str]]) -> str:
    """A Spark expression for the text of a key. `key` has the name and the type of each column.

    Different keys have different texts. A `/` precedes the text of each column. The text itself is escaped, so that it
    has no `/`, `:` or `,`.
    """
    parts = (f"'/', {_escaped(quote(name), kind)}" for name, kind in key)
    return f"concat({', '.join(parts)})"


def _escaped(column: str, kind: str) -> str:
    """A Spark expression for the escaped text of one column. Different values have different texts in any time zone."""
    if kind == "binary":
        return f"hex({column})"
    if kind == "timestamp":
        return f"CAST(unix_micros({column}) AS STRING)"
    if kind == "string":
        return f"url_encode({column})"
    return f"url_encode(CAST({column} AS STRING))"
