"""Reads the first rows of a chunk again, by the text protocol, and compares them with those of the fast decoder.

The fast decoder reads binary results by compiled code. Here the server makes a text of each value, and Arrow reads the
texts: the two share only the driver's connection and the read view.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pymysql

from lakeingest.core.proofs.audit import differing_columns
from lakeingest.core.proofs.witness import Compared, Difference
from lakeingest.core.tables.schema import Column, Kind, TableSchema
from lakeingest.errors import UnsupportedValue
from lakeingest.mysql.connection import table_name
from lakeingest.mysql.text_rows import stream_texts, text_columns
from lakeingest.mysql.wire.matching import compared_columns, matching
from lakeingest.mysql.wire.refusals import is_chosen
from lakeingest.rows import table_schema

# Charsets in which each character has one code, and is in Unicode. '' is for types that have no charset
_CHARSETS = frozenset({"", "ascii", "latin1", "ucs2", "utf8mb3", "utf8mb4", "utf16", "utf16le", "utf32"})
_OURS, _THEIRS = "_lakeingest_ours", "_lakeingest_theirs"


def compare_rows(
    connection: pymysql.Connection, schema: TableSchema, select: str, condition: str, rows: pa.Table, most: int
) -> Compared:
    """Read up to `most` of the rows that meet `condition`, and compare them with `rows`.

    `rows` are all rows that meet `condition`, and the condition of the user, as the fast decoder has read them.
    `connection` is still in the read view of `rows`. `select` begins the statement, such as SELECT with a hint.
    """
    table = schema.table
    gaps = {column.name: gap for column in schema.columns if (gap := gap_of_column(column))}
    needed = (*schema.key, *compared_columns(schema))  # no row is found without these columns
    if gaps.keys() & set(needed):
        unread = Counter(gaps[name] for name in needed if name in gaps)
        return Compared(Counter(), unread, None, is_partial=False, differences=())
    readable = replace(schema, columns=tuple(column for column in schema.columns if column.name not in gaps))
    sql = f"{select} {text_columns(readable)} FROM {table_name(table)} WHERE {condition} LIMIT {most}"
    try:
        batches = list(stream_texts(connection, readable, sql))
        texts = pa.Table.from_batches((matching(batch, readable) for batch in batches), table_schema(readable))
    except UnsupportedValue as error:  # a difference, because the fast decoder has read every value
        differences = [Difference(table, "a chunk", "a value that cannot be copied", "no such value", error.line)]
        return Compared(Counter(), Counter(), None, is_partial=False, differences=differences)
    is_whole = sum(batch.num_rows for batch in batches) < most  # else there may be more rows
    differences = list(_differences(readable, rows.select(readable.names), texts, is_whole=is_whole))
    unread = Counter(gap for gap in gaps.values() for _ in range(texts.num_rows))
    return Compared(Counter({table: texts.num_rows}), unread, None, is_partial=not is_whole, differences=differences)


def gap_of_column(column: Column) -> str:
    """Why `text_rows` does not read every value of the column exactly; '' if it does."""
    if is_chosen(column):
        return f"type {column.source_type.name}, mapped as chosen, in chunks"
    if column.kind is Kind.VECTOR:
        return f"type {column.source_type.name}, in chunks"
    return "" if column.charset in _CHARSETS else f"charset {column.charset}, in chunks"


def _differences(schema: TableSchema, rows: pa.Table, texts: pa.Table, *, is_whole: bool) -> Iterator[Difference]:
    """Yield the differences: keys of `texts` without a row or with several, other values, another number of rows.

    `is_whole`: there should be a text for each row. If False, the number of rows is not compared.
    """
    key = list(schema.key)
    all_ours = rows.select(key).append_column(_OURS, pa.array(np.arange(rows.num_rows)))
    # only rows with a key of `texts`, of which there are few: the join would put the keys of all rows into a hash table
    ours = all_ours.join(texts.select(key), key, join_type="left semi")
    theirs = texts.select(key).append_column(_THEIRS, pa.array(np.arange(texts.num_rows)))
    pairs = theirs.join(ours, key, join_type="left outer").sort_by(_THEIRS)
    numbers = pairs[_THEIRS].to_numpy()  # of each pair, the index in `texts`
    for index in np.flatnonzero(np.bincount(numbers, minlength=texts.num_rows) > 1).tolist():
        yield _difference(schema, texts, index, "the number of its rows", "several", 1)
    for index in np.flatnonzero(pairs[_OURS].is_null().to_numpy()).tolist():
        yield _difference(schema, texts, numbers[index], "the number of its rows", 0, 1)
    if is_whole and rows.num_rows != texts.num_rows:
        yield Difference(schema.table, "a chunk", "the number of its rows", rows.num_rows, texts.num_rows)
    matched = pairs.filter(pairs[_OURS].is_valid())
    made, wanted = rows.take(matched[_OURS]), texts.take(matched[_THEIRS])
    for name in schema.names:
        if made[name].equals(wanted[name]):
            continue
        values = zip(made[name].to_pylist(), wanted[name].to_pylist(), strict=True)
        for index, (our_value, their_value) in enumerate(values):
            if differing_columns({name: their_value}, {name: our_value}):  # not `!=`: here NaN equals NaN
                yield _difference(schema, wanted, index, f"column {name}", our_value, their_value)
                break  # one difference for each column is enough


def _difference(
    schema: TableSchema, texts: pa.Table, index: int, what: str, ours: object, theirs: object
) -> Difference:
    """A difference at the key of this row."""
    key = texts.select(list(schema.key)).slice(index, 1).to_pylist()[0]
    at = ", ".join(f"{name}={value}" for name, value in key.items())
    return Difference(schema.table, f"{at} in a chunk", what, ours, theirs)
