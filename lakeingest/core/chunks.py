"""Where to cut a table: boundaries become ranges that tile the key space from end to end.

Integer keys of even density are cut by arithmetic; all others by boundaries that the server computes
(Flink CDC 2.0, chunk splitting; the factors are the ones it made customary).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.schema import TableId

LOWER_FACTOR = 0.05  # denser than this: more than 20 rows a key, the estimate of rows must be wrong
UPPER_FACTOR = 1000.0  # sparser than this: arithmetic would cut mostly empty chunks


@dataclass(frozen=True, slots=True)
class Chunk:
    """A planned range of one table's keys, read by one SELECT."""

    table: TableId
    range: KeyRange


def even_step(minimum: int, maximum: int, rows: int, chunk_rows: int) -> int | None:
    """Keys per chunk where the density is even enough for arithmetic, or None where the server must be asked.

    `rows` is an estimate; the distribution factor is keys per row between `minimum` and `maximum`.
    """
    factor = (maximum - minimum + 1) / max(rows, 1)
    if not LOWER_FACTOR <= factor <= UPPER_FACTOR:
        return None
    return max(1, round(factor * chunk_rows))


def even_boundaries(start: int, step: int, maximum: int, count: int) -> tuple[list[Key], bool]:
    """Up to `count` boundaries after `start`, `step` apart, none above `maximum`; and whether the end is reached.

    `maximum` is read anew for every wave, so the last chunk cannot have grown while the others were read.
    """
    boundaries: list[Key] = [(start + step * i,) for i in range(1, count + 1) if start + step * i <= maximum]
    return boundaries, len(boundaries) < count


def chunks_between(table: TableId, lower: Key | None, boundaries: Sequence[Key], *, last: bool) -> list[Chunk]:
    """The chunks from `lower` through each boundary; with `last`, one more without upper bound."""
    bounds: list[Key | None] = [lower, *boundaries]
    if last:
        bounds.append(None)
    return [Chunk(table, KeyRange(bounds[i], bounds[i + 1])) for i in range(len(bounds) - 1)]
