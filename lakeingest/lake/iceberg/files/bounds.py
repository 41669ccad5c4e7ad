"""Truncates the bounds of long texts and bytes in a data file's statistics, so that manifests stay small.

Source: Iceberg's table specification, "Data File Fields". A lower bound is at most the least value of the column in the
file, and an upper bound is at least the greatest value. Without a bound, readers cannot skip the file. PyIceberg's own
truncation fails if the last character is U+D7FF, because the next code point is half of a surrogate pair, which is no
character.
"""

from collections.abc import Mapping
from functools import lru_cache

from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, StringType

_LAST, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000  # code points
_LAST_BYTE = 0xFF
_METRICS = "write.metadata.metrics."  # properties that say which bounds are kept


def truncated_lengths(metadata: TableMetadata) -> Mapping[int, int]:
    """For each column whose bounds the table truncates, by field id: the bounds' length in characters or bytes."""
    properties = (item for item in metadata.properties.items() if item[0].startswith(_METRICS))
    return _truncated_lengths(metadata.schema().fields, tuple(sorted(properties)))


@lru_cache(maxsize=1_000)  # each publish asks several times, and PyIceberg makes the schema anew each time
def _truncated_lengths(fields: tuple[NestedField, ...], properties: tuple[tuple[str, str], ...]) -> Mapping[int, int]:
    """`truncated_lengths` by a table's columns and properties. Callers share the result, and do not change it."""
    plan = compute_statistics_plan(sanitize_column_names(Schema(*fields)), dict(properties))
    return {
        field_id: column.mode.length
        for field_id, column in plan.items()
        if column.mode.type is MetricModeTypes.TRUNCATE and column.mode.length is not None
    }


def full_bounds(metadata: TableMetadata) -> Mapping[str, str]:
    """Table properties with which PyIceberg truncates no bounds of the columns in `truncated_lengths`.

    These bounds are not endless: Parquet records at most 4 KB of each.
    """
    lengths = truncated_lengths(metadata)
    return _full(metadata.schema().fields, tuple(lengths))


@lru_cache(maxsize=1_000)  # as `_truncated_lengths`
def _full(fields: tuple[NestedField, ...], truncated: tuple[int, ...]) -> Mapping[str, str]:
    """`full_bounds` by a table's columns, and by the field ids of those whose bounds are truncated."""
    schema_in_files = sanitize_column_names(Schema(*fields))
    prefix = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
    return {f"{prefix}.{schema_in_files.find_column_name(field_id)}": "full" for field_id in truncated}


def truncate_bounds(file: DataFile, metadata: TableMetadata) -> DataFile:
    """Truncate the bounds of a file in place, and return the file. An upper bound without a short form is removed."""
    for field_id, length in truncated_lengths(metadata).items():
        is_text = isinstance(metadata.schema().find_type(field_id), StringType)
        if field_id in file.lower_bounds:
            least = file.lower_bounds[field_id]
            file.lower_bounds[field_id] = least.decode()[:length].encode() if is_text else least[:length]
        if field_id in file.upper_bounds:
            greatest = file.upper_bounds.pop(field_id)
            short_bound = _above_text(greatest.decode(), length) if is_text else _above_bytes(greatest, length)
            if short_bound is not None:
                file.upper_bounds[field_id] = short_bound
    return file


def _above_text(value: str, length: int) -> bytes | None:
    """The text if it has up to `length` characters, else a greater text of up to this length; None: there is none."""
    if len(value) <= length:
        return value.encode()
    # the last character that is not _LAST is raised, because no character is greater than _LAST
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
    kept = value[:length].rstrip(bytes([_LAST_BYTE]))  # _LAST_BYTE cannot be raised, so a byte before it is
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
