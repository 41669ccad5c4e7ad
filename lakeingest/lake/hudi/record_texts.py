"""Record keys of Arrow rows: the same texts that Hudi makes, or that Spark makes by `record_key.key_text`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.lake.hudi.record_key import RECORD_KEY
from lakeingest.lake.hudi.table_form import Unfit

_EXACT = {pa.int32(), pa.int64(), pa.decimal128(20, 0)}  # the types whose values Hudi's own text distinguishes
# types whose values Arrow and Spark cast to the same texts
_CAST_ALIKE = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date, pa.types.is_boolean)


@dataclass(frozen=True, slots=True)
class RecordTexts:
    """The record keys of some rows. `parts` has an array for each part of the key; the parts decide the buckets."""

    keys: pa.Array
    parts: tuple[pa.Array, ...]


def record_key_for(columns: pa.Schema, key: Sequence[str]) -> tuple[str, ...]:
    """The same as `record_key.record_key`, for columns of Arrow: the columns of the record key of a new table."""
    return tuple(key) if all(columns.field(name).type in _EXACT for name in key) else (RECORD_KEY,)


def record_texts(rows: pa.Table, key: Sequence[str], record_key: Sequence[str]) -> RecordTexts:
    """The record keys of the rows. `key` has the columns of the primary key, `record_key` those of the record key.

    Raises Unfit if a column of the key has a type whose text only Spark can make.
    """
    if tuple(record_key) == (RECORD_KEY,):  # our own column: the values of the primary key, as /value/value
        texts = [_escaped(_texts(rows, name)) for name in key]
        keys = _joined(piece for text in texts for piece in ("/", text))
        return RecordTexts(keys, (keys,))
    parts = tuple(_texts(rows, name) for name in record_key)
    if len(parts) == 1:
        return RecordTexts(parts[0], parts)
    # Hudi's text of a key with several columns: `<name>:<value>,<name>:<value>`
    pieces: list[str | pa.Array] = []
    for number, (name, values) in enumerate(zip(record_key, parts, strict=True)):
        separator = "," if number else ""
        pieces += [f"{separator}{name}:", values]
    return RecordTexts(_joined(pieces), parts)


def _joined(pieces: Iterable[str | pa.Array]) -> pa.Array:
    """The pieces of each row, joined without a separator. A text is a piece of every row."""
    return pc.binary_join_element_wise(*pieces, "")


def _texts(rows: pa.Table, name: str) -> pa.Array:
    """The texts that Spark makes of a column's values, as in `record_key.key_text`, before they are escaped.

    Raises Unfit for a type whose text only Spark can make.
    """
    values = rows[name].combine_chunks()
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if any(is_kind(kind) for is_kind in _CAST_ALIKE):
        return values.cast(pa.string())
    if pa.types.is_binary(kind):  # Spark's `hex`
        return pa.array([value.hex().upper() for value in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:  # Spark's `unix_micros`
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        # Spark leaves out the zeros at the end of a fraction, and the point if all digits are zeros
        return pc.replace_substring_regex(values.cast(pa.timestamp("us")).cast(pa.string()), r"\.?0{1,6}$", "")
    raise Unfit


def _escaped(texts: pa.Array) -> pa.Array:
    """The texts as Java's `URLEncoder` writes them."""
    need_no_escapes = pc.all(pc.match_substring_regex(texts, r"^[A-Za-z0-9.*_-]*$")).as_py()
    if need_no_escapes is not False:  # True, or None if there are no texts
        return texts
    return pa.array([quote_plus(text, safe="*").replace("~", "%7E") for text in texts.to_pylist()], pa.string())
