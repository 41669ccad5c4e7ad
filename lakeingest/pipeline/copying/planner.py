"""Plans a table's chunks one wave at a time, so that memory does not grow with the table.

The costs of earlier waves decide how large the chunks are.
"""

from collections.abc import Sequence

from lakeingest.config.tables import TableOptions
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import (
    SHRINK,
    Chunk,
    Cost,
    balanced_step,
    chunks_between,
    even_boundaries,
    even_step,
    first_rows,
    next_rows,
)
from lakeingest.mysql.source import Source

CHUNKS_PER_SLOT = 4  # in a wave: enough that its last chunk does not leave the other executors idle for long


class Planner:
    """The chunks of one table, or of a range of its keys.

    `at_once`: the number of chunks that are read at a time. `short`: no wave has more than `at_once` chunks.
    """

    def __init__(
        self,
        source: Source,
        schema: TableSchema,
        options: TableOptions,
        at_once: int,
        keys: KeyRange = EVERY_KEY,
        *,
        short: bool = False,
    ) -> None:
        self._source, self._schema, self._at_once, self._keys = source, schema, at_once, keys
        self._chunks_per_slot = 1 if short else CHUNKS_PER_SLOT
        self._fixed = options.chunk_rows != "auto"
        self._estimated_rows = source.estimated_rows(schema, keys)
        self._estimated_bytes = source.estimated_bytes(schema)
        self._chunk_rows = (
            first_rows(self._estimated_rows, self._estimated_bytes)
            if options.chunk_rows == "auto"
            else options.chunk_rows
        )

    @property
    def estimated_rows(self) -> int:
        """The optimizer's estimate of the number of rows in the table or range."""
        return self._estimated_rows

    @property
    def estimated_bytes(self) -> int:
        """The server's estimate of the bytes that the rows take on its disk."""
        return self._estimated_bytes

    @property
    def chunk_rows(self) -> int:
        """The number of rows per chunk in the next wave.

        A chunk by arithmetic is a range of up to twice as many keys, because some keys of the range have no row.
        """
        return self._chunk_rows

    @property
    def by_arithmetic(self) -> bool:
        """True if arithmetic gives the boundaries of the next wave; False if the server is asked for each boundary."""
        return self._even_cuts() is not None

    def next_wave(self, lower: Key | None) -> list[Chunk]:
        """The chunks of the next wave, from the key `lower` on; None: from the start of the range.

        If the chunks reach the end of the range, the last chunk has the upper bound of the range. If the size of chunks
        is not fixed, the first wave has only as many chunks as are read at a time, because nothing is measured yet.
        """
        lower = self._keys.lower if lower is None else lower
        is_first = lower == self._keys.lower
        is_unmeasured = is_first and not self._fixed
        chunk_count = self._at_once if is_unmeasured else self._chunks_per_slot * self._at_once
        cuts = self._even_cuts()
        if cuts is None:
            boundaries, reaches_end = self._boundaries_of_server(lower, chunk_count)
        else:
            least, step, greatest = cuts
            start = int(lower[0]) if lower else least
            if not self._fixed:
                step = balanced_step(start, step, greatest, chunk_count, self._at_once)
            boundaries, reaches_end = even_boundaries(start, step, greatest, chunk_count)
        return chunks_between(self._schema.table, lower, boundaries, last=reaches_end, upper=self._keys.upper)

    def learn(self, wave: Sequence[Cost]) -> None:
        """Size the next wave by the costs of this wave's chunks; a fixed `chunk_rows` does not change."""
        if not self._fixed:
            self._chunk_rows = next_rows(self._chunk_rows, wave)

    @property
    def can_shrink(self) -> bool:
        """Whether chunks can be smaller: `chunk_rows` is neither fixed nor 1."""
        return not self._fixed and self._chunk_rows > 1

    def shrink(self) -> None:
        """Make chunks smaller, because a chunk was too slow or too large."""
        self._chunk_rows = max(1, self._chunk_rows // SHRINK)

    def _even_cuts(self) -> tuple[int, int, int] | None:
        """The current least key, the keys per chunk, and the current greatest key, if chunks are cut by arithmetic.

        None if the key is not a countable integer, or if so few keys are in use that `even_step` refuses.
        """
        if not self._schema.countable:
            return None
        bounds = self._source.key_bounds(self._schema, self._keys)
        if not bounds:
            return None
        least, greatest = bounds
        step = even_step(least, greatest, self._estimated_rows, self._chunk_rows)
        return (least, step, greatest) if step else None

    def _boundaries_of_server(self, lower: Key | None, count: int) -> tuple[list[Key], bool]:
        """Up to `count` boundaries after `lower`, as the server computes them; and True if no boundary follows them."""
        boundaries: list[Key] = []
        for _ in range(count):
            following = self._source.next_boundary(self._schema, lower, self._chunk_rows, self._keys.upper)
            if following is None:
                return boundaries, True
            boundaries.append(following)
            lower = following
        return boundaries, False
