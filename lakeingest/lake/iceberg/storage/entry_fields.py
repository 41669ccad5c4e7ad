"""The fields of files in manifests that version 3 of the format has added. PyIceberg's DataFile does not name them.

Source: Iceberg's table specification, "Data File Fields" and "First Row ID Inheritance". A deletion vector is a part of
a file, which may have several of them. So a path alone does not tell two vectors apart.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, FileFormat, ManifestEntry, ManifestEntryStatus

from lakeingest.lake.errors import unreadable

Identity: TypeAlias = tuple[str, int | None]
THIRD: Literal[3] = 3  # the version of the format
_NAMES = [field.name for field in DATA_FILE_TYPE[THIRD].fields]
_FIRST_ROW_ID, _REFERENCED = _NAMES.index("first_row_id"), _NAMES.index("referenced_data_file")
_OFFSET, _SIZE = _NAMES.index("content_offset"), _NAMES.index("content_size_in_bytes")


def identity(file: DataFile) -> Identity:
    """What tells a file of a snapshot from all others: its path, and the byte where a deletion vector begins in it."""
    return file.file_path, _value(file, _OFFSET) if is_vector(file) else None


def is_vector(file: DataFile) -> bool:
    """Whether a file of deletes is a deletion vector."""
    return file.file_format is FileFormat.PUFFIN


def referenced_path(vector: DataFile) -> str:
    """The path of the data file whose rows a vector deletes. Raises StateUnreadable if the manifest does not say it."""
    path: str | None = _value(vector, _REFERENCED)
    if path is None:
        raise unreadable(vector.file_path, "its manifest does not say of which data file a deletion vector is")
    return path


def place_of_blob(vector: DataFile) -> tuple[int, int]:
    """The byte at which a vector begins in its file, and its number of bytes; 0 if the manifest does not say it."""
    return _value(vector, _OFFSET) or 0, _value(vector, _SIZE) or 0


def first_row_id(file: DataFile) -> int | None:
    """The `_row_id` of the first row of a data file; None if rows of the file have no such id yet."""
    found: int | None = _value(file, _FIRST_ROW_ID)
    return found


def with_all_fields(file: DataFile) -> DataFile:
    """A copy of a file that also has the fields of version 3."""
    values = [_value(file, number) for number in range(len(_NAMES))]
    return _copied(file, values)


def with_size_of_blob(vector: DataFile) -> DataFile:
    """A copy of a vector whose size in bytes is that of the vector alone, as summaries count it."""
    values = [vector[number] for number in range(len(vector))]
    _, values[_NAMES.index("file_size_in_bytes")] = place_of_blob(vector)
    return _copied(vector, values)


def inherit_first_row_ids(entries: Iterable[ManifestEntry], first: int | None) -> None:
    """If a data file has no id of its first row, give it the id that it inherits from its manifest.

    `first` is the id that the manifest has in the list of manifests. If `first` is None, every file gets None.
    """
    next_row_id = first
    for entry in entries:
        file = entry.data_file
        if next_row_id is None:
            file[_FIRST_ROW_ID] = None
        elif file[_FIRST_ROW_ID] is None and entry.status is not ManifestEntryStatus.DELETED:
            file[_FIRST_ROW_ID] = next_row_id
            next_row_id += file.record_count


def _copied(file: DataFile, values: list[Any]) -> DataFile:
    """A copy of a file with these values of its fields."""
    copy = DataFile(*values)
    copy.spec_id = file.spec_id
    return copy


def _value(file: DataFile, number: int) -> Any:
    """The value of a field; None if the file has only the fields of an earlier version of the format."""
    return file[number] if number < len(file) else None
