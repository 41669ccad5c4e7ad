"""Our decoders as the product runs them; `python -m benchmarks.ours` runs one and prints one JSON line of what it took.

Arguments: file|wire|rows HOST PORT USER FILE... Before the clock starts a little is decoded (the first file, or some
rows), so that every kernel is compiled or loaded.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.clock import report
from benchmarks.source import CHANGES, ORDERS, end_of, start_of
from lakeingest.config import Source, Tls
from lakeingest.core.binlog.position import FILE_START, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import Chunk, chunks_between
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import read_chunk, server_state
from lakeingest.mysql.connection import connect
from lakeingest.mysql.key_space import key_bounds
from lakeingest.mysql.schema_reader import read_schema
from lakeingest.mysql.wire.segment import SegmentDecoder
from lakeingest.rows import Part

_EPOCH = 1
_CHUNK_ROWS = 100_000
_WARM_UP_ROWS = 1_000
_SIZE_AT = slice(9, 13)  # of an event, in its header


def from_memory(schema: TableSchema, uuid: str, sent: Sequence[tuple[Path, bytes]]) -> int:
    """Decode what a server would send for each of some files; how many rows changed."""
    return sum(changed(_decoded(_segment(uuid, file, file), schema, packets)) for file, packets in sent)


def from_wire(source: Source, schema: TableSchema, uuid: str, files: Sequence[Path]) -> int:
    """Read binlog files as an executor reads a segment; how many rows changed."""
    with connect(source) as connection:
        server_id = 1_000_000 + os.getpid()
        segment = _segment(uuid, files[0], files[-1])
        return changed(read_segment(connection, segment, {schema.table: schema}, server_id))


def from_table(source: Source, schema: TableSchema, uuid: str, chunks: Iterable[Chunk]) -> int:
    """Read chunks of a table as an executor reads them, one after the other; how many rows they have."""
    return sum(read_chunk(source, schema, chunk, uuid, _EPOCH).rows.num_rows for chunk in chunks)


def packets(file: Path) -> bytes:
    """The events of a file as a server sends them: each in a packet, after a zero byte."""
    data = memoryview(file.read_bytes())[FILE_START:]
    found = bytearray()
    sequence = 1
    while data:
        size = int.from_bytes(data[_SIZE_AT], "little")
        found += (size + 1).to_bytes(3, "little") + bytes((sequence & 0xFF, 0)) + data[:size]
        data = data[size:]
        sequence += 1
    return bytes(found)


def changed(parts: Iterable[Part]) -> int:
    """How many rows changed: an update is two change rows, of which its −U is not counted."""
    count = 0
    for table, batch in parts:
        if table is not None:
            counted = pc.not_equal(batch[change.KIND], pa.scalar(change.RowKind.UPDATE_BEFORE, pa.int8()))
            count += pc.sum(counted).as_py()
    return count


def _segment(uuid: str, first: Path, last: Path) -> Segment:
    return Segment(uuid, _EPOCH, start_of(first), end_of(last), GtidSet.parse(""))


def _decoded(segment: Segment, schema: TableSchema, sent: bytes) -> Iterator[Part]:
    decoder = SegmentDecoder(segment, segment.start, {schema.table: schema}, gtids=True)
    left = memoryview(sent)
    while left and not decoder.is_done:
        room = decoder.free_space()
        count = min(len(room), len(left))
        room[:count] = left[:count]
        left = left[count:]
        yield from decoder.take(count)


def prepare(mode: str, source: Source, files: Sequence[Path]) -> tuple[Callable[[], int], Callable[[], int]]:
    """What warms up, and what is measured; both answer how many rows they decoded."""
    with connect(source) as connection:
        uuid = server_state(connection).uuid
        schema = read_schema(connection, ORDERS if mode == "rows" else CHANGES)
        bounds = key_bounds(connection, schema)
    match mode:
        case "file":
            sent = [(file, packets(file)) for file in files]
            return lambda: from_memory(schema, uuid, sent[:1]), lambda: from_memory(schema, uuid, sent)
        case "wire":
            return lambda: from_wire(source, schema, uuid, files[:1]), lambda: from_wire(source, schema, uuid, files)
        case "rows":
            least, greatest = bounds or (0, 0)
            steps = [(key,) for key in range(least + _CHUNK_ROWS, greatest + 1, _CHUNK_ROWS)]
            first = chunks_between(schema.table, None, [(least + _WARM_UP_ROWS,)], last=False)
            chunks = chunks_between(schema.table, None, steps, last=True)
            return lambda: from_table(source, schema, uuid, first), lambda: from_table(source, schema, uuid, chunks)
    raise SystemExit(f"unknown mode {mode}")


def main() -> None:
    mode, host, port, user, *files = sys.argv[1:]
    source = Source(host=host, port=int(port), user=user, tls=Tls(mode="disabled"))  # the peers have none either
    warm_up, work = prepare(mode, source, [Path(file) for file in files])
    warm_up()
    report(work)


if __name__ == "__main__":
    main()
