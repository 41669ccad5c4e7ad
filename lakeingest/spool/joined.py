"""Joining: neighbouring segments become one segment, with one file for each table.

A run that follows makes a segment a second, and small segments are slow to list and to read.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.binlog.position import GtidSet
from lakeingest.core.tables.schema import TableId
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.spool.manifest import Manifest

JOIN = 64  # how many segments of one level are joined
LAST_LEVEL = 2  # segments of this level are not joined: at a segment a second, each covers 68 minutes
_GROUP_BYTES = 64 << 20  # how many bytes of rows are written as one row group


def join_segments(spool: File, parts: Sequence[Manifest]) -> Manifest | None:
    """Join neighbours that watch the same tables: write durable files, and return the manifest of the joined segment.

    The caller stores the manifest. Returns None if the segments cannot be joined: if one is DDL, or if the files of a
    table differ in their columns or in the definition of their rows. Then some new files may be left (`leftovers`).
    """
    if any(part.alterations for part in parts):
        return None
    names = _write_files(spool, parts)
    if names is None:
        return None
    nulled: dict[TableId, int] = {}
    for part in parts:
        nulled |= {table: nulled.get(table, 0) + count for table, count in part.nulled.items()}
    last = parts[-1]  # the joined segment ends there, so it has this segment's `history` and `pending`
    return Manifest(
        parts[0].start,
        last.stop,
        reduce(or_, (part.gtids for part in parts), GtidSet()),
        transactions=names[None],
        tables={table: _entry(names.get(table), parts, table) for table in parts[0].tables},
        nulled=nulled,
        history=last.history,
        pending=last.pending,
        lacks_cascades=any(part.lacks_cascades for part in parts),
    )


def file_names(segment: Manifest) -> list[str]:
    """The files of a segment, relative to the spool's folder."""
    return [name for table in (None, *segment.tables) if (name := _file_name(segment, table))]


def _write_files(spool: File, parts: Sequence[Manifest]) -> dict[TableId | None, str] | None:
    """Write the rows of these segments into one file for each table, and their transactions into one more file.

    Returns the names of these files by table; the key None stands for the transactions. Returns None if the files of a
    table differ in their columns, or in the definition of their rows.
    """
    attempt = uuid.uuid4().hex
    names: dict[TableId | None, str] = {}
    tables = [table for table in parts[0].tables if any(part.tables[table] for part in parts)]  # those with changes
    for number, table in enumerate([None, *tables]):  # None: the transactions
        name = f"data/{attempt}-{number}.parquet"
        with ExitStack() as opened:
            old_names = [_file_name(part, table) for part in parts]
            inputs = [opened.enter_context(files.parquet(spool / old)) for old in old_names if old]
            schema = inputs[0].schema_arrow
            # the metadata have the definition of the rows
            if any(not file.schema_arrow.equals(schema, check_metadata=True) for file in inputs):
                return None
            with files.written(spool / name) as path, pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for rows in _groups_of_rows(inputs):
                    writer.write_table(rows)
        names[table] = name
    (spool / "data").sync()
    return names


def _groups_of_rows(opened: Sequence[pq.ParquetFile]) -> Iterator[pa.Table]:
    """The rows of these files, in order, in tables that fit into memory."""
    waiting: list[pa.RecordBatch] = []
    for file in opened:
        for batch in file.iter_batches():
            waiting.append(batch)
            if sum(rows.nbytes for rows in waiting) >= _GROUP_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting.clear()
    if waiting:
        yield pa.Table.from_batches(waiting)


def _entry(name: str | None, parts: Sequence[Manifest], table: TableId) -> tuple[str, int] | None:
    """The entry of a table in the joined manifest: the name of its file and the number of rows; None without a file."""
    if name is None:
        return None
    entries = [part.tables[table] for part in parts]
    return name, sum(entry[1] for entry in entries if entry is not None)


def _file_name(segment: Manifest, table: TableId | None) -> str | None:
    """The file of a table in a segment; None without a change of the table. For None: the file of transactions."""
    if table is None:
        return segment.transactions
    entry = segment.tables[table]
    return None if entry is None else entry[0]
