"""Failures to read and write files of the spool, as errors of lakeingest."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
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


@contextmanager
def opened_file(file: File) -> Iterator[pq.ParquetFile]:
    """An open file of the spool. Raises StateUnreadable if it cannot be opened, or cannot be read in the block."""
    try:
        with files.parquet(file) as opened:
            yield opened
    except (OSError, pa.ArrowException) as error:
        raise StateUnreadable(
            f"{file} of the spool cannot be read: {error}; remove the spool's folder and run again"
        ) from error
