"""The plan of a `verify`: how a table is cut into chunks, and which of them are compared."""

import math

from lakeingest.commands.extent import Extent
from lakeingest.core.tables.keys import KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.mysql.source import Source
from lakeingest.pipeline.proving import comparison
from lakeingest.pipeline.proving.comparison import ChunkPlan

SCANS = 8  # if time is limited, a table by buckets is read so many times, each time for a share of the buckets


def plan_chunks(source: Source, schema: TableSchema, extent: Extent) -> ChunkPlan:
    """Cut the table into chunks, and choose those that are compared."""
    ranges = tuple(comparison.cut_range(source, schema, KeyRange(), comparison.CHUNK_ROWS))
    # so many buckets that each has about comparison.FINEST_ROWS rows
    buckets = 0 if schema.ordered else len(ranges) * comparison.CHUNK_ROWS // comparison.FINEST_ROWS
    chosen = extent.drawn(schema.table, buckets or len(ranges))  # a chunk is a bucket; without buckets, a range
    at_once: int | None = None  # all chunks at once, unless the time is limited
    if extent.max_seconds is not None:
        at_once = math.ceil(len(chosen) / SCANS) if buckets else source.settings.max_connections - 1  # `source` has one
    return ChunkPlan(ranges, buckets, chosen, at_once, schema.fingerprint)
