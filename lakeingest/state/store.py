"""The documents of the state folder, under our names of errors: JSON files, each complete when it exists.

`storage_errors` names every failure of the state folder, also for the rooms that write other files into it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from lakeingest.errors import LakeIngestError, Retryable, Scope, StorageFailed
from lakeingest.files import file as files
from lakeingest.files.file import File


def create(path: File, doc: Mapping[str, Any]) -> bool:
    """Make the document; False, and nothing is changed, when it exists. StorageFailed when it cannot be written."""
    with storage_errors(path):
        return path.create(doc)


def replace(path: File, doc: Mapping[str, Any]) -> None:
    """Make or replace the document: a reader sees the old or the new one. StorageFailed when it cannot be written."""
    with storage_errors(path):
        path.put_document(doc)


def append(path: File, doc: Mapping[str, Any]) -> None:
    """Add a line with the document to a log; it is durable then. StorageFailed when it cannot be added."""
    with storage_errors(path):
        path.append(doc)


def read(path: File) -> Any:
    """The document. OSError or ValueError when it does not exist or cannot be read."""
    return files.document(path)


def make_folder(path: File) -> None:
    """Make the folder, for this user alone, if it is missing. StorageFailed when it cannot be made."""
    with storage_errors(path):
        path.make_folder(private=True)


def delete(path: File) -> None:
    """Remove the document if it exists. StorageFailed when it cannot be removed."""
    with storage_errors(path):
        path.delete()


@contextmanager
def of_one_table(path: File) -> Iterator[None]:
    """A StorageFailed of the block, which writes a table's document there, stops only that table.

    Unless nothing can be written into the folder of the document.
    """
    try:
        yield
    except StorageFailed as error:
        with suppress(OSError, LakeIngestError):
            path.parent.probe()
            error.scope = Scope.TABLE
        raise


@contextmanager
def storage_errors(path: File, action: str = "written") -> Iterator[None]:
    """StorageFailed, which names the path, when the block cannot write there; Retryable when memory is short.

    Errors of connections pass: a block may read from the source what it writes.
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
