"""Where a table is cut into chunks, and how finely: boundaries become ranges that tile the key space from end to end.

If at least half of the integer keys are in use, the boundaries are computed here, by arithmetic. For all other keys,
the server computes the boundaries (Flink CDC 2.0, chunk splitting). Flink CDC uses arithmetic up to 1000 keys per row
(its `chunk-key.even-distribution.factor.upper-bound`), so a cluster of keys can put a thousand times the wanted rows
into a chunk. Here the limit is 2 keys per row. A range of n integer keys has at most n rows, so a chunk has at most
twice the wanted rows, whatever the estimate says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId

EVEN_FACTOR = 2  # the most keys per row for arithmetic: a chunk has at most this many times the wanted rows
TARGET_SECONDS = 2.0  # of a chunk's read view: well under 5 s, because the view holds a metadata lock and delays purge
TARGET_BYTES = 32 << 20  # of a chunk's Arrow columns; packets and Python objects need memory too
SECONDS_MAX = 60.0  # of a chunk's SELECT: the server ends it after so many seconds
BYTES_MAX = 4 * TARGET_BYTES  # of a chunk: at more, the executor gives it up; estimates may be wrong, and rows differ
FIRST_ROWS = 50_000  # per chunk before anything is measured: a second at most if rows are narrow
ROWS_MAX = 200_000
GROWTH = 4  # the most per wave: a measured cost is true for neighbouring keys, not for the whole table
SHRINK = 4  # after a chunk was given up; each try costs a wave


@dataclass(frozen=True, slots=True)
class Chunk:
    """A planned range of one table's keys, read by one SELECT."""

    table: TableId
    range: KeyRange


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a chunk: its rows, their bytes in Arrow, the seconds that its read view was open."""

    rows: int
    bytes: int
    seconds: float


def first_rows(rows: int, size: int) -> int:
    """The number of rows per chunk in a table's first wave.

    `rows` and `size`: the estimated numbers of the table's rows and bytes. Without rows, the result is FIRST_ROWS.
    """
    by_size = TARGET_BYTES * rows // max(size, 1)
    return max(1, min(FIRST_ROWS, by_size)) if rows else FIRST_ROWS


def next_rows(chunk_rows: int, wave: Sequence[Cost]) -> int:
    """The number of rows per chunk in the next wave, from the slowest and the largest chunk of the last `wave`.

    `chunk_rows`: the number of rows per chunk for which the last wave was planned. It grows at most to GROWTH times the
    rows of the fullest chunk, because a wave of nearly empty chunks proves nothing about the next wave.
    """
    seconds = max(cost.seconds for cost in wave)
    size = max(cost.bytes for cost in wave)
    by_cost = chunk_rows * min(TARGET_SECONDS / max(seconds, 1e-9), TARGET_BYTES / max(size, 1))
    fullest = max(cost.rows for cost in wave)
    # nearly empty chunks stop the growth, but do not make the number smaller
    most = max(chunk_rows, GROWTH * min(chunk_rows, fullest))
    return max(1, min(int(by_cost), most, ROWS_MAX))


def even_step(minimum: int, maximum: int, rows: int, chunk_rows: int) -> int | None:
    """How many integers a chunk spans, used or not, if arithmetic computes the boundaries; None if the server must.

    `rows`: the estimated number of rows with keys from `minimum` to `maximum`. `chunk_rows`: the wanted rows per chunk.
    """
    keys = maximum - minimum + 1
    keys_per_row = max(1, keys / max(rows, 1))  # never below 1: the estimate of the rows may be wrong
    if keys_per_row > EVEN_FACTOR:
        return None
    return round(keys_per_row * chunk_rows)


def balanced_step(start: int, step: int, maximum: int, count: int, at_once: int) -> int:
    """The number of keys per chunk: `step`, or fewer in a table's last wave, so that all executors end together.

    `start` and `maximum`: the first and last key that is not read yet. A wave has up to `count` chunks, of which
    `at_once` are read at the same time; `count` is a multiple of `at_once`. In the last wave, the number of chunks
    becomes one, too, or less if few keys are left. If only one chunk is left, or more than one wave, the result is
    `step`.
    """
    keys = maximum - start + 1
    is_last_wave = keys <= step * count
    if keys <= step or not is_last_wave:
        return step
    rounds = -(-keys // (step * at_once))  # rounded up: how many chunks each executor reads, one after the other
    chunks = rounds * at_once
    return -(-keys // chunks)  # rounded up


def even_boundaries(start: int, step: int, maximum: int, count: int) -> tuple[list[Key], bool]:
    """Up to `count` boundaries after `start`, `step` apart, none above `maximum`; and whether the wave is the last one.

    The wave is the last one if there are fewer than `count` boundaries. The caller reads `maximum` again for every
    wave, so that rows that were added after the first wave do not make the last chunk long.
    """
    boundaries: list[Key] = [(start + step * i,) for i in range(1, count + 1) if start + step * i <= maximum]
    return boundaries, len(boundaries) < count


def chunks_between(
    table: TableId, lower: Key | None, boundaries: Sequence[Key], *, last: bool, upper: Key | None = None
) -> list[Chunk]:
    """The chunks from `lower` to the last boundary, cut at each boundary.

    With `last`, one more chunk goes from the last boundary to `upper`. If `lower` or `upper` is None, there is no bound
    on that side.
    """
    bounds: list[Key | None] = [lower, *boundaries]
    if last:
        bounds.append(upper)
    return [Chunk(table, KeyRange(bounds[i], bounds[i + 1])) for i in range(len(bounds) - 1)]
