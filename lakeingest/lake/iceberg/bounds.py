"""The bounds of long texts and bytes in the statistics of a data file, truncated to a length that suits a manifest.

Source: Iceberg's table specification, "Data File Fields". A lower bound is at most the least value of the column in the
file, an upper bound at least the greatest; a missing bound excludes nothing. PyIceberg's truncation fails if the last
character is U+D7FF: the next code point is half of a surrogate pair, which is no character.
"""

from collections.abc import Mapping

from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType

_LAST, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000
_LAST_BYTE = 0xFF


def cut_lengths(metadata: TableMetadata) -> dict[int, int]:
    """The length of each column's bounds that the table truncates, in characters or bytes, by field id."""
    plan = compute_statistics_plan(sanitize_column_names(metadata.schema()), metadata.properties)
    return {
        number: column.mode.length
        for number, column in plan.items()
        if column.mode.type is MetricModeTypes.TRUNCATE and column.mode.length is not None
    }


def uncut(metadata: TableMetadata) -> Mapping[str, str]:
    """Table properties with which a writer records these bounds in full, up to the 4 KB that Parquet records."""
    written = sanitize_column_names(metadata.schema())
    prefix = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
    return {f"{prefix}.{written.find_column_name(number)}": "full" for number in cut_lengths(metadata)}


def cut(file: DataFile, metadata: TableMetadata) -> DataFile:
    """The file with truncated bounds. An upper bound without a short form is left out."""
    for number, length in cut_lengths(metadata).items():
        is_text = isinstance(metadata.schema().find_type(number), StringType)
        if number in file.lower_bounds:
            least = file.lower_bounds[number]
            file.lower_bounds[number] = least.decode()[:length].encode() if is_text else least[:length]
        if number in file.upper_bounds:
            greatest = file.upper_bounds.pop(number)
            short = _above_text(greatest.decode(), length) if is_text else _above_bytes(greatest, length)
            if short is not None:
                file.upper_bounds[number] = short
    return file


def _above_text(value: str, length: int) -> bytes | None:
    """The value, or a greater text of at most `length` characters; None if no such text exists."""
    if len(value) <= length:
        return value.encode()
    head = value[:length].rstrip(chr(_LAST))
    if not head:
        return None
    last = ord(head[-1])
    following = _AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1
    return (head[:-1] + chr(following)).encode()


def _above_bytes(value: bytes, length: int) -> bytes | None:
    """The value, or greater bytes, at most `length` of them; None if no such bytes exist."""
    if len(value) <= length:
        return value
    head = value[:length].rstrip(bytes([_LAST_BYTE]))
    return head[:-1] + bytes([head[-1] + 1]) if head else None
