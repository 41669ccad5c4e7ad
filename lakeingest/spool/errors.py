"""Failures to write files of the spool, as errors of lakeingest."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store


@contextmanager
def spool_errors(folder: File) -> Iterator[None]:
    """Turn the lack of a file or folder into StateUnreadable, and other failures as `store.storage_errors` does."""
    with store.storage_errors(folder):
        try:
            yield
        except FileNotFoundError as error:
            raise StateUnreadable(
                f"the spool in {folder} lacks a folder or a file: {' '.join(str(error).split())}; remove the folder and"
                " run again"
            ) from error
