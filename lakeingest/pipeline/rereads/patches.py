"""Rows of a copied table are read again, as patches, which wait for the next merge (`core.waves.rereads`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeingest.core.tables.keys import EVERY_KEY
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.rereads import Patch
from lakeingest.mysql.chunk_reader import Cap
from lakeingest.mysql.key_values import key_table
from lakeingest.mysql.keyed_rows import conditions_of
from lakeingest.pipeline.binlog.watermarks import settled_position
from lakeingest.pipeline.rereads.tasks import Chunk, FindPresent, Patched, ReadAgain
from lakeingest.pipeline.run.binlog_run import BinlogRun
from lakeingest.pipeline.run.edges import Edges
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.rows import source_names, table_schema
from lakeingest.spark.scatter import scatter
from lakeingest.spool.patch_files import PatchFolder, keys_not_in

KEYS_AT_ONCE = 5_000  # listed keys of a task, which reads their rows in one view


def patch_folder(edges: Edges, table: TableRun) -> PatchFolder:
    """The folder of the table's patches."""
    return PatchFolder.of(edges.state, table.schema)


def compared_columns(schema: TableSchema) -> list[str]:
    """The columns of the copy that `source_rows` needs. The key is first, because bounds apply to the first column."""
    return [*schema.key, *(name for name in source_names(schema) if name not in schema.key)]


def listed_chunk(schema: TableSchema, keys: Sequence[Mapping[str, Any]]) -> Chunk:
    """The chunk of the rows with these keys."""
    return Chunk(tuple(conditions_of(schema, keys)), EVERY_KEY, tuple(keys))


def read_keys(
    edges: Edges, binlog: BinlogRun, table: TableRun, signal: int, keys: Sequence[Mapping[str, Any]]
) -> list[Patched]:
    """Let tasks read the rows of these keys again and write patches, as `read_chunks` does."""
    groups = [keys[first : first + KEYS_AT_ONCE] for first in range(0, len(keys), KEYS_AT_ONCE)]
    return read_chunks(edges, binlog, table, signal, [listed_chunk(table.schema, group) for group in groups])


def read_chunks(
    edges: Edges, binlog: BinlogRun, table: TableRun, signal: int, chunks: Sequence[Chunk]
) -> list[Patched]:
    """Let tasks read these chunks again and write patches, whose names begin with `signal`. Waits for the tasks."""
    source, server, patches = edges.source.settings, table.progress.server_uuid, patch_folder(edges, table)
    epoch, settled = binlog.spool.position.epoch, settled_position(edges, binlog)
    tasks = [
        ReadAgain(
            source,
            table.schema,
            chunk,
            signal,
            server_uuid=server,
            epoch=epoch,
            settled=settled,
            cap=Cap(),
            patches=patches,
        )
        for chunk in chunks
    ]
    executors = edges.executors
    return scatter(executors.for_tasks(small=len(tasks) <= 1), ReadAgain.run, tasks, executors.at_once)


def patches_of(edges: Edges, table: TableRun, signal: int, patched: Sequence[Patched], epoch: int) -> list[Patch]:
    """The patches that tasks have written. For keys without a row in the source, also writes and returns patches."""
    patches = [Patch(name, part.within, part.low, part.high.place(epoch)) for part in patched for name in part.names]
    for part in patched:
        patches += _patch_of_listed_absent(edges, table, signal, part, epoch)
        if part.gone is not None:
            patches += _patch_of_absent(edges, table, signal, part.gone, part, epoch)
    return patches


def _patch_of_listed_absent(edges: Edges, table: TableRun, signal: int, part: Patched, epoch: int) -> list[Patch]:
    """Write the patch that marks rows of the copy as deleted: their keys were listed, and have no row in the source.

    An empty list if the copy has no such row, or if deleted rows do not stay in the copy (then `to_mark` is empty).
    """
    if not part.to_mark:
        return []
    files = map(patch_folder(edges, table).file, part.names)
    keys = keys_not_in(files, key_table(table.schema, part.to_mark), table.schema.key)
    return _patch_of_absent(edges, table, signal, keys, part, epoch)


def _patch_of_absent(
    edges: Edges, table: TableRun, signal: int, keys: pa.Table, part: Patched, epoch: int
) -> list[Patch]:
    """Write the patch that deletes these keys, which have no row in the source. An empty list if it would be empty.

    If deleted rows stay in the copy, the patch marks the rows of these keys as deleted.
    """
    if not keys.num_rows:
        return []
    rows = _rows_to_mark(edges, table, keys) if table.schema.keeps_deleted else keys
    if not rows.num_rows:  # the copy has no unmarked row with these keys
        return []
    return [Patch(patch_folder(edges, table).write_absent(signal, rows), part.within, part.low, part.high.place(epoch))]


def _rows_to_mark(edges: Edges, table: TableRun, keys: pa.Table) -> pa.Table:
    """The rows of the copy that have these keys and are not marked as deleted."""
    schema, executors = table.schema, edges.executors
    ends = pc.min_max(keys[schema.key[0]]).as_py()
    bounds = (ends["min"], ends["max"]) if schema.ordered else None
    [readers] = edges.target.readers(table.staged, compared_columns(schema), [bounds])
    tasks = [FindPresent(reader, keys, schema) for reader in readers]
    parts = scatter(executors.for_tasks(small=len(tasks) <= 1), FindPresent.run, tasks, executors.at_once)
    return pa.concat_tables([table_schema(schema).empty_table(), *parts])
