"""The files of one segment while a task writes them: a Parquet file per table, and one for the transactions."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.binlog.history import History
from lakeingest.core.binlog.position import GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import StateUnreadable
from lakeingest.files import file as files
from lakeingest.files.file import Draft, File
from lakeingest.rows import TRANSACTIONS, Part, change_schema, with_definition
from lakeingest.spool.manifest import Manifest

_GROUP_BYTES = 64 << 20  # how many bytes of rows, of all tables, are buffered: small row groups are slow to read


class SegmentFiles:
    """The new files of one segment, in a spool's folder. Nothing refers to the files until their manifest exists."""

    def __init__(self, folder: File, schemas: Mapping[TableId, TableSchema]) -> None:
        self._folder, self._schemas = folder, schemas
        self._attempt = uuid.uuid4().hex
        # by table; the key None stands for the transactions
        self._writers: dict[TableId | None, tuple[str, Draft, pq.ParquetWriter]] = {}
        self._waiting: dict[TableId | None, list[pa.RecordBatch]] = {}  # batches that are not written yet
        self._bytes = 0
        self._rows = dict.fromkeys(schemas, 0)
        self._gtids = GtidSet()

    def __enter__(self) -> Self:
        self._writer(None)  # a segment always has a file of transactions, even without a transaction
        return self

    def __exit__(self, *error: object) -> None:
        for _, draft, writer in self._writers.values():
            writer.close()
            draft.drop()  # after `complete`, nothing is left to drop

    def write(self, part: Part) -> None:
        """Add a batch of change rows of a table, or of transactions."""
        table, batch = part
        if table is None:
            self._gtids |= gtids_of(batch)
        else:
            self._rows[table] += batch.num_rows
        self._waiting.setdefault(table, []).append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def complete(self, segment: Segment, nulled: Mapping[TableId, int], history: History | None = None) -> Manifest:
        """Finish the files and make them durable.

        Returns the manifest of `segment` with these files, with `nulled` (without zeros) and with `history`.
        """
        self._flush()
        for _, draft, writer in self._writers.values():
            writer.close()  # `__exit__` closes it again, which is harmless
            draft.finish()
        names = {table: name for table, (name, *_) in self._writers.items()}
        return Manifest(
            segment.start,
            segment.stop,
            self._gtids,
            transactions=names[None],
            tables={table: (names[table], self._rows[table]) if table in names else None for table in self._schemas},
            nulled={table: count for table, count in nulled.items() if count},
            history=history,
        )

    def _flush(self) -> None:
        """Write the waiting batches: those of each table become one row group."""
        for table, batches in self._waiting.items():
            self._writer(table).write_table(pa.Table.from_batches(batches))
        self._waiting.clear()
        self._bytes = 0

    def _writer(self, table: TableId | None) -> pq.ParquetWriter:
        """The writer of a table's file, or of the file of transactions. The first call opens it."""
        if table not in self._writers:
            name = f"data/{self._attempt}-{len(self._writers)}.parquet"
            draft = Draft.of(self._folder / name)
            self._writers[table] = name, draft, self._new_writer(draft.path, table)
        _, _, writer = self._writers[table]
        return writer

    def _new_writer(self, file: Path, table: TableId | None) -> pq.ParquetWriter:
        """A writer of the table's change rows, or of transactions if `table` is None."""
        if table is None:
            return pq.ParquetWriter(file, TRANSACTIONS, compression="zstd")
        schema = self._schemas[table]
        return pq.ParquetWriter(
            file,
            with_definition(change_schema(schema), schema),
            compression="lz4",  # fast rather than small, because most files are needed for a merge or two
            use_dictionary=list(change.ORIGIN),  # these columns have few values
            write_statistics=list(schema.key),  # `collapse` needs the bounds of keys
        )


def gtids_of(transactions: pa.RecordBatch) -> GtidSet:
    """The GTIDs of a batch of transactions; empty if the source has no GTIDs."""
    with_gtid = pa.Table.from_batches([transactions]).select(["uuid", "tag", "number"]).drop_null()  # NULL: no GTID
    intervals = {}
    for row in with_gtid.group_by(["uuid", "tag"]).aggregate([("number", "list")]).to_pylist():
        numbers = np.sort(np.array(row["number_list"], np.int64))
        ends = np.flatnonzero(np.diff(numbers) > 1)  # the index of the last number before each gap
        # an interval begins at the first number and after each gap; it ends before each gap and at the last number
        lows, highs = numbers[[0, *(ends + 1)]].tolist(), numbers[[*ends, -1]].tolist()
        intervals[row["uuid"], row["tag"]] = list(zip(lows, highs, strict=True))
    return GtidSet.of(intervals)


def whole_file(folder: File, name: str, rows: int) -> File:
    """The file with this name in the spool's folder.

    Raises StateUnreadable if the file is missing or damaged, or if its row count is not `rows`.
    """
    try:
        count = files.parquet_metadata(folder / name).num_rows
    except (OSError, pa.ArrowException) as error:
        raise StateUnreadable(
            f"the spool in {folder} lacks {name}, or it is damaged: {error}; remove the folder and run again"
        ) from error
    if count != rows:
        raise StateUnreadable(f"{folder / name} has {count} rows, not {rows}; remove the folder and run again")
    return folder / name
