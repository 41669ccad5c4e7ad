"""The rows of passes on the disk of this machine, so that each file of staging is decoded once.

A pass is a range of buckets. Every file of staging has rows of all passes, and together they do not fit into memory.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import pyarrow as pa

from lakeingest.rows import values_of

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class PassFiles:
    """A file for the rows of each pass, in a private folder that is gone at the end of `pass_files`."""

    def __init__(self, folder: Path, schema: pa.Schema, files: ExitStack) -> None:
        self._folder, self._schema, self._files = folder, schema, files
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._lock = Lock()

    def append(self, rows_by_pass: Mapping[int, pa.Table]) -> None:
        """Append rows to the files of their passes. Threads may call this at the same time.

        A column of the schema that the rows do not have is NULL in them: the source has dropped the column.
        """
        with self._lock:
            for number, rows in rows_by_pass.items():
                columns = [values_of(rows, field) for field in self._schema]
                self._writer(number).write_table(pa.table(columns, schema=self._schema))

    def rows(self, number: int) -> pa.Table | None:
        """The rows of a pass; None if it has none. After the first call nothing can be appended."""
        with self._lock:
            self._files.close()  # what is written is complete now
        if number not in self._writers:
            return None
        with pa.memory_map(str(self._path(number))) as file:
            return pa.ipc.open_stream(file).read_all()

    def _writer(self, number: int) -> pa.ipc.RecordBatchStreamWriter:
        """The writer of the pass with this number. The first call for the pass opens its file."""
        if number not in self._writers:
            file = self._files.enter_context(pa.OSFile(str(self._path(number)), "wb"))
            writer = pa.ipc.new_stream(file, self._schema, options=_OPTIONS)
            self._writers[number] = self._files.enter_context(writer)
        return self._writers[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.arrows"


@contextmanager
def pass_files(schema: pa.Schema) -> Iterator[PassFiles]:
    """Make files for the rows of passes, with the columns of `schema`. They are deleted at the end of the block."""
    with TemporaryDirectory(prefix="lakeingest-") as folder, ExitStack() as files:
        yield PassFiles(Path(folder), schema, files)
