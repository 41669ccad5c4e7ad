"""The documents of the state folder: JSON files, each complete when it exists. Failures are errors of lakeingest.

`storage_errors` names every failure of the state folder, also for packages that write other files into it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from lakeingest.errors import LakeIngestError, Retryable, Scope, StorageFailed
from lakeingest.files import file as files
from lakeingest.files.file import File


def create(path: File, doc: Mapping[str, Any]) -> bool:
    """Make the document.

    False, and nothing is changed, if it exists. Raises StorageFailed when it cannot be written.
    """
    with storage_errors(path):
        return path.create(doc)


def replace(path: File, doc: Mapping[str, Any]) -> None:
    """Make or replace the document. A reader sees the old or the new one.

    Raises StorageFailed when it cannot be written.
    """
    with storage_errors(path):
        path.put_document(doc)


def append(path: File, doc: Mapping[str, Any]) -> None:
    """Add a line with the document to a log, durably. Raises StorageFailed when it cannot be added."""
    with storage_errors(path):
        path.append(doc)


def read(path: File) -> Any:
    """The document. Raises OSError or ValueError when it does not exist or cannot be read."""
    return files.document(path)


def make_folder(path: File) -> None:
    """Make the folder, for this user alone, if it is missing. Raises StorageFailed when it cannot be made."""
    with storage_errors(path):
        path.make_folder(private=True)


def delete(path: File) -> None:
    """Remove the document if it exists. Raises StorageFailed when it cannot be removed."""
    with storage_errors(path):
        path.delete()


@contextmanager
def of_one_table(path: File) -> Iterator[None]:
    """Let a StorageFailed of the block, which writes a document of one table to `path`, stop only that table.

    It stops the pipeline if nothing else can be written into the document's folder either.
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
    """Raises StorageFailed, with the path, if the block cannot write there; Retryable if memory is short.

    Errors of connections pass unchanged, because a block may read from the source what it writes.
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
