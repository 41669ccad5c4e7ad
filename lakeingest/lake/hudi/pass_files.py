"""The rows of passes on the disk of this machine, so that each file of staging is decoded and divided once.

A pass is a range of buckets. Every file of staging has rows of all passes, and together they do not fit into memory. So
the rows of each file are written once more, in the order of their buckets, as one file for which a part of each pass is
one range. A bucket then gets a slice of each of these files, without a second division of its rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from lakeingest.rows import values_of

_PLAIN, _SMALLER = pa.ipc.IpcWriteOptions(), pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class _Divided:
    """A written file: the numbers of the batches of each pass, and the number of the first row of each bucket.

    `starts` ends with the number of all rows.
    """

    path: Path
    batches: Sequence[range]
    starts: np.ndarray


class PassFiles:
    """Files for the rows of all passes, in a private folder that is gone at the end of `pass_files`.

    `passes` are consecutive ranges of buckets from 0 on. `are_many`: the rows are so many that their files are
    compressed.
    """

    def __init__(self, folder: Path, schema: pa.Schema, passes: Sequence[range], *, are_many: bool) -> None:
        self._folder, self._schema, self._passes = folder, schema, passes
        self._options = _SMALLER if are_many else _PLAIN
        self._divided: dict[int, _Divided] = {}

    def add(self, number: int, rows: pa.Table, buckets: np.ndarray) -> None:
        """Write the rows of the file of staging with this number. `buckets` has the bucket of each row.

        A column of the schema that the rows do not have is NULL in them: the source has dropped the column. Threads may
        call this at the same time, each with another number.
        """
        order = np.argsort(buckets.astype(np.uint32), kind="stable")
        starts = np.searchsorted(buckets[order], np.arange(self._passes[-1].stop + 1))
        columns = [values_of(rows, field) for field in self._schema]
        ordered = pa.table(columns, schema=self._schema).take(pa.array(order))
        path, batches, written = self._folder / f"{number}.arrow", list[range](), 0
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self._schema, options=self._options) as writer:
            for one in self._passes:
                first, end = starts[one.start], starts[one.stop]
                parts = ordered.slice(first, end - first).combine_chunks().to_batches()
                for part in parts:
                    writer.write_batch(part)
                batches.append(range(written, written + len(parts)))
                written += len(parts)
        self._divided[number] = _Divided(path, batches, starts)

    def rows_by_bucket(self, number: int) -> dict[int, pa.Table]:
        """The rows of each bucket of the pass with this number, in the order of the files of staging.

        A bucket without rows has no entry.
        """
        buckets = self._passes[number]
        slices: dict[int, list[pa.Table]] = {}
        for _, divided in sorted(self._divided.items()):
            with pa.memory_map(str(divided.path)) as file:
                reader = pa.ipc.open_file(file)
                batches = [reader.get_batch(batch) for batch in divided.batches[number]]
            rows = pa.Table.from_batches(batches, self._schema)
            starts = divided.starts
            for bucket in buckets:
                if count := starts[bucket + 1] - starts[bucket]:
                    slices.setdefault(bucket, []).append(rows.slice(starts[bucket] - starts[buckets.start], count))
        return {bucket: pa.concat_tables(parts) for bucket, parts in slices.items()}


@contextmanager
def pass_files(schema: pa.Schema, passes: Sequence[range], *, are_many: bool) -> Iterator[PassFiles]:
    """Make files for rows with the columns of `schema`. They are deleted at the end of the block.

    The other arguments are those of `PassFiles`.
    """
    with TemporaryDirectory(prefix="lakeingest-") as folder:
        yield PassFiles(Path(folder), schema, passes, are_many=are_many)
