"""Reads and writes the documents of the state folder: JSON files, each of which is complete when it exists.

Failures of the state folder become errors of lakeingest. Packages that write other files into the folder use
`storage_errors` for that.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from lakeingest.core.file_names import file_name
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, LakeIngestError, Retryable, Scope, StateUnreadable, StorageFailed
from lakeingest.files import file as files
from lakeingest.files.file import File

Value = TypeVar("Value")


def path_of(folder: File, table: TableId) -> File:
    """The document of a table in a folder with a document for each table."""
    return folder / f"{file_name(str(table))}.json"


def create(path: File, doc: Mapping[str, Any]) -> bool:
    """Make the document. Returns False, and changes nothing, if it exists already.

    Raises StorageFailed if it cannot be written.
    """
    with storage_errors(path):
        return path.create(doc)


def replace(path: File, doc: Mapping[str, Any]) -> None:
    """Make or replace the document. At any time, a reader finds the whole old or the whole new document.

    Raises StorageFailed if it cannot be written.
    """
    with storage_errors(path):
        path.put_document(doc)


def append(path: File, doc: Mapping[str, Any]) -> None:
    """Add a line with the document to a log, durably. Raises StorageFailed if the line cannot be added."""
    with storage_errors(path):
        path.append(doc)


def read(path: File) -> Any:
    """The document. Raises OSError if it does not exist or cannot be read, ValueError if it is not JSON.

    In an object store, StorageFailed or StorageAway is raised if it cannot be read.
    """
    return files.document(path)


def read_or(path: File, value_of: Callable[[Any], Value], otherwise: Value) -> Value:
    """What `value_of` makes of the document; `otherwise` if the document does not exist, or is damaged.

    On a disk, also `otherwise` if it cannot be read. In an object store, StorageFailed or StorageAway is raised.
    """
    try:
        return value_of(read(path))
    except (OSError, *DAMAGED, StateUnreadable):
        return otherwise


def make_folder(path: File) -> None:
    """Make the folder if it is missing; only this user can read it. Raises StorageFailed if it cannot be made."""
    with storage_errors(path):
        path.make_folder(private=True)


def delete(path: File) -> None:
    """Remove the document if it exists. Raises StorageFailed if it cannot be removed."""
    with storage_errors(path):
        path.delete()


def replace_of_table(path: File, doc: Mapping[str, Any]) -> None:
    """Make or replace the document of one table, and its folder if it is missing.

    If only this document cannot be written, StorageFailed stops only the table (`of_one_table`).
    """
    make_folder(path.parent)
    with of_one_table(path):
        replace(path, doc)


@contextmanager
def of_one_table(path: File) -> Iterator[None]:
    """Let a failed write of a document of one table stop only this table. The block writes the document to `path`.

    If no other file can be written into the document's folder either, the StorageFailed stops the pipeline.
    """
    try:
        yield
    except StorageFailed as error:
        with suppress(OSError, LakeIngestError):
            path.parent.probe()  # raises if the folder cannot be written; then the scope stays
            error.scope = Scope.TABLE
        raise


@contextmanager
def storage_errors(path: File, action: str = "written") -> Iterator[None]:
    """Turn an OSError of the block into StorageFailed with the path, and a MemoryError into Retryable.

    `action` is the word for the failed work in the message. Errors of connections stay as they are, because the block
    may also read from the source.
    """
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be {action}: {path}: {error.strerror or error}; make room or repair it, then run"
            " the same command again"
        ) from error
    except MemoryError as error:
        raise Retryable(
            f"{path}: memory is short: {error}; give the run more, then run the same command again"
        ) from error
