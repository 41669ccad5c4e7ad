"""Truncates the bounds of long texts and bytes in a data file's statistics, so that manifests stay small.

Source: Iceberg's table specification, "Data File Fields". A lower bound is at most the least value of the column in the
file, and an upper bound is at least the greatest value. Without a bound, readers cannot skip the file. PyIceberg's own
truncation fails if the last character is U+D7FF, because the next code point is half of a surrogate pair, which is no
character.
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


def truncated_lengths(metadata: TableMetadata) -> dict[int, int]:
    """For each column whose bounds the table truncates, by field id: their length in characters or bytes."""
    plan = compute_statistics_plan(sanitize_column_names(metadata.schema()), metadata.properties)
    return {
        number: column.mode.length
        for number, column in plan.items()
        if column.mode.type is MetricModeTypes.TRUNCATE and column.mode.length is not None
    }


def full_bounds(metadata: TableMetadata) -> Mapping[str, str]:
    """Table properties with which PyIceberg does not truncate these bounds. Parquet records at most 4 KB of each."""
    written = sanitize_column_names(metadata.schema())
    prefix = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
    return {f"{prefix}.{written.find_column_name(number)}": "full" for number in truncated_lengths(metadata)}


def truncate_bounds(file: DataFile, metadata: TableMetadata) -> DataFile:
    """Truncate the bounds of a file in place, and return the file. An upper bound without a short form is removed."""
    for number, length in truncated_lengths(metadata).items():
        is_text = isinstance(metadata.schema().find_type(number), StringType)
        if number in file.lower_bounds:
            least = file.lower_bounds[number]
            file.lower_bounds[number] = least.decode()[:length].encode() if is_text else least[:length]
        if number in file.upper_bounds:
            greatest = file.upper_bounds.pop(number)
            short_bound = _above_text(greatest.decode(), length) if is_text else _above_bytes(greatest, length)
            if short_bound is not None:
                file.upper_bounds[number] = short_bound
    return file


def _above_text(value: str, length: int) -> bytes | None:
    """The text if it has up to `length` characters, else a greater text of up to this length; None: there is none."""
    if len(value) <= length:
        return value.encode()
    kept = value[:length].rstrip(chr(_LAST))
    if not kept:
        return None
    last = ord(kept[-1])
    following = _AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1
    return (kept[:-1] + chr(following)).encode()


def _above_bytes(value: bytes, length: int) -> bytes | None:
    """The value if it has up to `length` bytes, else a greater value of up to this length; None: there is none."""
    if len(value) <= length:
        return value
    kept = value[:length].rstrip(bytes([_LAST_BYTE]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
