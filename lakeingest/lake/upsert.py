"""The upsert of collapsed changes into Iceberg without a wide row in a JVM.

Spark sees keys alone: it finds where each key's old row stands. Executors then take the new rows out of the Parquet
files that they are in, by their number, and write them with Arrow, beside the positions of the old ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeingest.core.change import DELETED, SOURCE_FILE, SOURCE_ROW
from lakeingest.core.keys import quote
from lakeingest.errors import StateUnreadable
from lakeingest.lake.target import Effects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_OF_A_TASK = 200_000  # new rows that a task writes, which is a file
BROADCAST_ROWS = 1_000_000  # changed keys that each executor can hold: the table's keys are not moved then
_INSERTED, _UPDATED, _GONE = range(3)  # what becomes of a row: new, new in place of an old one; the old one itself


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks have written: pickled files, and how many rows of each kind they are of."""

    files: tuple[bytes, ...]
    effects: Effects


def upsert(
    changes: "DataFrame",
    present: "DataFrame",
    key: Sequence[str],
    write_rows: Callable[[pa.Table], bytes],
    write_deletes: Callable[[pa.Table], bytes],
) -> Written:
    """Write what turns the `present` rows of an Iceberg table into those after `changes`, which has one row a key.

    Files that hold no key between the least and the greatest of `changes` are not read.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    changed = changes.select(*map(quote, key), DELETED, SOURCE_FILE, SOURCE_ROW).persist()
    try:
        first = quote(key[0])
        bounds = changed.agg(F.count("*"), F.min(first), F.max(first)).first()
        assert bounds is not None  # noqa: S101 - an aggregate has a row
        count, least, greatest = bounds
        within = F.col(first).between(F.lit(least), F.lit(greatest)) if count else F.lit(False)
        old = present.where(within).select(
            *map(quote, key), F.col("_file").alias("_lakeingest_old"), F.col("_pos").alias("_lakeingest_at")
        )
        located = _located(changed, old, key, count)
        tasks = max(1, -(-count // ROWS_OF_A_TASK))
        placed = located.repartition(tasks, "gone", "file", F.floor(F.col("row") / ROWS_OF_A_TASK))
        ordered = placed.sortWithinPartitions("gone", "file", "row")
        work = _Work(write_rows, write_deletes)
        parts = ordered.mapInArrow(work.run, "files binary, kind int, count long").collect()
    finally:
        changed.unpersist()
    counts = [sum(part["count"] for part in parts if part["kind"] == kind) for kind in range(3)]
    effects = Effects(counts[_INSERTED], counts[_UPDATED], counts[_GONE] - counts[_UPDATED])
    return Written(tuple(bytes(part["files"]) for part in parts if part["files"] is not None), effects)


def _located(changed: "DataFrame", old: "DataFrame", key: Sequence[str], count: int) -> "DataFrame":
    """A row for each row to be written, and one for each to be deleted: `gone`, `kind`, `file`, `row`."""
    from pyspark.sql import functions as F  # noqa: N812

    if count <= BROADCAST_ROWS:
        keys = F.broadcast(changed.select(*map(quote, key)))
        old = old.join(keys, on=list(key), how="left_semi")
    there, stays = F.col("_lakeingest_old").isNotNull(), ~F.col(DELETED)
    new = F.when(
        stays,
        F.struct(
            F.lit(False).alias("gone"),
            F.when(there, F.lit(_UPDATED)).otherwise(F.lit(_INSERTED)).alias("kind"),
            F.col(SOURCE_FILE).alias("file"),
            F.col(SOURCE_ROW).alias("row"),
        ),
    )
    gone = F.when(
        there,
        F.struct(
            F.lit(True).alias("gone"),
            F.lit(_GONE).alias("kind"),
            F.col("_lakeingest_old").alias("file"),
            F.col("_lakeingest_at").alias("row"),
        ),
    )
    return (
        changed.join(old, on=list(key), how="left")
        .select(F.explode(F.array_compact(F.array(new, gone))).alias("one"))
        .select("one.gone", "one.kind", "one.file", "one.row")
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """The task of an executor: what it gets is sorted by `gone`, `file` and `row`."""

    write_rows: Callable[[pa.Table], bytes]
    write_deletes: Callable[[pa.Table], bytes]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row for each kind, with their number; the files that were written stand in the first of theirs."""
        table = pa.Table.from_batches(batches)
        if not table.num_rows:
            return
        gone = table["gone"].combine_chunks()
        new, old = table.filter(pc.invert(gone)), table.filter(gone)
        if new.num_rows:
            kinds = new["kind"].to_numpy()
            files = self.write_rows(pa.concat_tables(_rows_of(file, rows) for file, rows in _by_file(new)))
            yield _answer(files, _INSERTED, int((kinds == _INSERTED).sum()))
            yield _answer(None, _UPDATED, int((kinds == _UPDATED).sum()))
        if old.num_rows:
            deletes = pa.table({"file_path": old["file"], "pos": old["row"]})
            yield _answer(self.write_deletes(deletes), _GONE, old.num_rows)


def _by_file(new: pa.Table) -> Iterator[tuple[str, "np.ndarray"]]:
    """Each file with the numbers of its rows; StateUnreadable where one is to be written twice."""
    files, rows = new["file"].combine_chunks(), new["row"].to_numpy()
    encoded = files.dictionary_encode()
    starts = np.flatnonzero(np.diff(encoded.indices.to_numpy(), prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        numbers = rows[start:end]
        if not (np.diff(numbers) > 0).all():
            raise StateUnreadable("the table holds a key twice; drop it to copy it again")
        yield files[start].as_py(), numbers


def _rows_of(uri: str, numbers: "np.ndarray") -> pa.Table:
    """The rows of a Parquet file that have these numbers, which ascend."""
    with pq.ParquetFile(url2pathname(urlparse(uri).path)) as opened:
        sizes = [opened.metadata.row_group(index).num_rows for index in range(opened.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        places = np.searchsorted(starts, numbers, side="right") - 1
        parts = [
            opened.read_row_group(index).take(pa.array(numbers[places == index] - starts[index]))
            for index in np.unique(places).tolist()
        ]
    return pa.concat_tables(parts)


def _answer(files: bytes | None, kind: int, count: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"files": pa.array([files], pa.binary()), "kind": pa.array([kind], pa.int32()), "count": pa.array([count])}
    )
