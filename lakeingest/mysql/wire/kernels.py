"""Compiles all kernels ahead of time, by running each part of the decoder on empty input.

`python -m lakeingest.mysql.wire.kernels` compiles the kernels, unless the cache has all of them, and prints the files
of the cache.
"""

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema
from lakeingest.mysql.wire import cache, charsets, numbers, temporals
from lakeingest.mysql.wire.encodings import FieldType, Sent
from lakeingest.mysql.wire.follow import Row
from lakeingest.mysql.wire.framing import frame_bare_events
from lakeingest.mysql.wire.json_text import json_texts
from lakeingest.mysql.wire.maps import Maps
from lakeingest.mysql.wire.result_set import ResultSet
from lakeingest.mysql.wire.row_events import walk_rows
from lakeingest.mysql.wire.segment import SegmentDecoder
from lakeingest.mysql.wire.values import Values

_NO_VALUES = Values.of(())
_ID = Column("id", Kind.INT64, SourceType("bigint", "bigint"), nullable=False)
_AT = Column("at", Kind.DATETIME, SourceType("datetime", "datetime"))
_TIME = Column("time", Kind.TIME, SourceType("time", "time"))


def compile_kernels() -> None:
    """Compile each kernel for the types that it is called with, or load it from the cache.

    The kernels for result sets come first, because the first copy of tables needs them before those for the binlog.
    """
    _compile_result_sets()
    _compile_segments()
    cache.mark_complete()


def _compile_result_sets() -> None:
    """Compile the kernels that read result sets, by reading empty values of each type that has a kernel."""
    table = TableSchema(TableId("", ""), (_ID,), ("id",))
    list(ResultSet(table, (Sent(FieldType.LONGLONG),), 1).take(0))
    numbers.integers(_NO_VALUES, 8, pa.int64(), signed=True)
    charsets.texts(_NO_VALUES, "utf8mb4")
    numbers.decimal_texts(_NO_VALUES, 9, 0)
    temporals.binary_days(_NO_VALUES, _AT)
    temporals.binary_times(_NO_VALUES, _TIME)
    charsets.texts(_NO_VALUES, "latin1")


def _compile_segments() -> None:
    """Compile the kernels that only the binlog needs, by decoding an empty segment, and empty values."""
    start = FilePosition("binlog.000001", 4)
    list(SegmentDecoder(Segment("", 1, start, start, GtidSet()), start, {}, gtids=True).take(0))
    Maps().table(0, 0)  # compiles `map_index`
    # empty arrays of the types that the decoder uses: a kernel is compiled for the types of its arguments
    offsets, bytes_, cells = np.empty(0, np.int64), np.empty(0, np.uint8), np.empty((0, 0), np.int32)
    frame_bare_events(bytes_, 0, 0, offsets, offsets)
    events, rows, kinds = np.empty(0, np.int32), np.empty((0, len(Row)), np.int64), np.empty(0, np.int8)
    walk_rows(bytes_, rows, offsets, np.zeros(3, np.int64), offsets, bytes_, cells, cells, events, events, kinds)
    numbers.packed_decimals(_NO_VALUES, 9, 0)
    temporals.dates(_NO_VALUES, _AT)
    temporals.datetimes(_NO_VALUES, 0, _AT)
    temporals.timestamps(_NO_VALUES, 0, _AT, fraction_counts=False)
    temporals.times(_NO_VALUES, 0, _TIME)
    json_texts(_NO_VALUES)


if __name__ == "__main__":
    if not cache.is_complete():
        compile_kernels()
    print(*cache.compiled_files(), sep="\n")  # noqa: T201 - the output of this program
