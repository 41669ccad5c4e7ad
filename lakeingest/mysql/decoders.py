"""Chooses the decoders of the source's rows: fast decoders, or, with LAKEINGEST_WIRE=reference, slow decoders.

Only this module chooses. The fast decoders are in `wire`. They are imported late, because numba takes a second to
import. The slow decoders are `witness`, for the binlog, and `text_rows`, for a SELECT.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pymysql

from lakeingest.core.binlog.position import FilePosition
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.proofs.witness import Compared
from lakeingest.core.tables.keys import quote
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.mysql.packets import dumped_events
from lakeingest.mysql.row_stream import Receiver, stream_rows
from lakeingest.mysql.wire.dml import Reach
from lakeingest.mysql.wire.grammar import Watched
from lakeingest.mysql.wire.segment_facts import SegmentFacts
from lakeingest.mysql.wire.xa import Replay
from lakeingest.rows import Part

if TYPE_CHECKING:
    from lakeingest.mysql.wire.segment import SegmentDecoder

SWITCH, SLOW = "LAKEINGEST_WIRE", "reference"


def uses_slow_decoders() -> bool:
    """Whether this process reads rows by the slow decoders."""
    return os.environ.get(SWITCH) == SLOW


def select_rows(
    connection: pymysql.Connection, schema: TableSchema, select: str, rest: str, nulled: Counter[TableId] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a SELECT of all columns, in batches (`stream_rows`).

    The statement is `select`, such as SELECT with a hint, then the columns, then `rest`, which begins with FROM.
    """
    if uses_slow_decoders():
        from lakeingest.mysql.text_rows import stream_texts, text_columns

        return stream_texts(connection, schema, f"{select} {text_columns(schema)} {rest}")
    return stream_rows(connection, schema, f"{select} {', '.join(map(quote, schema.source_names))} {rest}", nulled)


def change_rows(
    connection: pymysql.Connection,
    segment: Segment,
    begin: FilePosition,
    schemas: Mapping[TableId, TableSchema],
    waiting: Mapping[TableId, TableSchema],
    facts: SegmentFacts,
    *,
    gtids: bool,
    reach: Reach,
    replay: Replay | None,
) -> Iterator[Part]:
    """Yield the parts of a segment, and set its `facts`, as `read_segment` does.

    The connection has just begun a dump at `begin`. `gtids` says whether the server has GTIDs. `replay` reads prepared
    XA transactions; without `replay`, XA transactions are refused. `facts.lacks_cascades` becomes True if an event
    does not say that changes by foreign keys are logged. The caller makes it False if the source can never log them.
    """
    if uses_slow_decoders():
        from lakeingest.mysql.witness import rows_in

        sent = dumped_events(connection)
        yield from rows_in(sent, segment, begin, schemas, waiting, facts, gtids=gtids, reach=reach)
    else:
        from lakeingest.mysql.wire.follow import ReaderState
        from lakeingest.mysql.wire.segment import SegmentDecoder

        decoder = SegmentDecoder(segment, begin, schemas, waiting, gtids=gtids, replay=replay, reach=reach)
        yield from receive_parts(connection, decoder)
        facts.nulled.update(decoder.nulled)
        facts.history, facts.pending, facts.met = decoder.history, decoder.xa.pending, decoder.maps.met
        facts.lacks_cascades = bool(decoder.reader[ReaderState.LACKS_CASCADES])


def receive_parts(connection: pymysql.Connection, decoder: "SegmentDecoder") -> Iterator[Part]:
    """Yield the parts that a decoder makes of the bytes which the server sends.

    Raises the error that the server reports, as the driver's error.
    """
    receiver = Receiver(connection)
    while not decoder.is_done:
        yield from decoder.take(receiver.receive(decoder.free_space()))
        if decoder.error is not None:
            pymysql.err.raise_mysql_exception(decoder.error)


def stretch_differences(
    raw_events: Iterable[bytes],
    segment: Segment,
    watched: Watched,
    tables: Collection[TableId],
    most_rows: int,
    most_events: int,
    rows_until: Callable[[TableId, tuple[int, int], int | None], pa.Table],
) -> Compared:
    """Compare the rows that the fast decoder has made of the start of a segment with those that the slow one makes.

    The arguments up to `most_events` are those of `witness.stretch.read_stretch`. `rows_until` returns the fast
    decoder's rows of a table. It takes the table, the place (the file's number, and the position) of the last
    transaction whose rows are returned, and the most rows to return; None: all.
    """
    from lakeingest.mysql.witness.difference import first_difference
    from lakeingest.mysql.witness.stretch import read_stretch

    stretch = read_stretch(raw_events, segment, watched, tables, most_rows, most_events)
    last, differences = stretch.last, []
    for table in sorted(tables):
        if last is None:  # no transaction was read, so there is nothing to compare
            break
        image_count = len(stretch.images.get(table, ()))
        # If the table was cut, only its first rows have images, and the other rows are not needed. But if transactions
        # were passed over, their rows, which have no images, may be among the first rows: then all rows are needed.
        first_rows_suffice = table in stretch.cut and not stretch.passed
        rows = rows_until(table, last, image_count if first_rows_suffice else None)
        differences.append(first_difference(watched.schemas[table], rows, stretch))
    counts = Counter({table: len(images) for table, images in stretch.images.items()})
    found = [difference for difference in differences if difference is not None]
    return Compared(counts, stretch.unread, last, stretch.is_partial, tuple(found))


def row_differences(
    connection: pymysql.Connection, schema: TableSchema, select: str, condition: str, rows: pa.Table, most: int
) -> Compared:
    """Compare rows that the fast decoder has read with those that the slow one reads (`second_rows.compare_rows`)."""
    from lakeingest.mysql.second_rows import compare_rows

    return compare_rows(connection, schema, select, condition, rows, most)
