"""Drawn rows: a sample over a whole table of the source, in many short ranges that are spread over its keys.

The rows are read as a run reads chunks, so their values are those of a copy. The places of the ranges are drawn by
chance, from a seed. If most numbers between the least and the greatest key are in use, arithmetic gives the places.
Otherwise the server walks once over the index of the key, without reading rows.
"""

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pyarrow as pa

from lakeingest.config import Config
from lakeingest.core.binlog.position import FIRST_EPOCH
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import TableSchema
from lakeingest.core.waves.chunks import BYTES_MAX, even_step, first_rows
from lakeingest.errors import Retryable, UsageError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.chunk_reader import Cap, read_rows, read_stable
from lakeingest.mysql.source import Source
from lakeingest.mysql.xa_list import settled_now
from lakeingest.pipeline.run.throttle import Throttle
from lakeingest.rows import lake_schema, with_read_metadata

ROWS = 10_000  # of a sample, if nobody says how many
SAMPLE_BYTES = 256 << 20  # of a sample, by the server's estimate: a sample of wide rows has fewer rows
RANGE_ROWS = 50  # of a range: so few that the ranges are many
DECLARED_RANGES = 10  # in a table whose key has no index: few, because each boundary takes a scan of the table
RANGES_AT_ONCE = 20  # the most that are read in one read view
WAIT_SECONDS = 60.0  # the longest wait for `throttle`
_PAUSE_SECONDS = 0.5
_SEEDS = 2**32


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Rows of a table: its columns as in a copy, with metadata columns.

    `ranges`: the number of ranges of keys. `is_whole`: the ranges together have all keys, so all rows were read.
    `estimated_rows`: the server's estimate of the rows of the table.
    """

    schema: TableSchema
    rows: pa.Table
    ranges: int
    seed: int
    is_whole: bool
    estimated_rows: int

    def __str__(self) -> str:
        rows = f"{self.rows.num_rows:,} rows"
        if self.is_whole:
            return f"all {rows} of {self.schema.table}"
        return (
            f"a sample of {rows} of {self.schema.table}, in {self.ranges:,} ranges of keys with the seed {self.seed};"
            f" the table has about {self.estimated_rows:,} rows"
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """How ranges are spread: about `count` ranges of `rows` rows each, `skipped` rows apart on average.

    `at_once`: the number of ranges that are read in one read view.
    """

    count: int
    rows: int
    skipped: int
    at_once: int


def spread(estimated_rows: int, estimated_bytes: int, wanted: int, *, declared: bool = False) -> Spread:
    """How a sample of `wanted` rows is spread over a table; fewer rows if they are wide.

    `declared`: the key has no index.
    """
    rows_that_fit = SAMPLE_BYTES * max(estimated_rows, 1) // max(estimated_bytes, 1)
    wanted = max(1, min(wanted, rows_that_fit))
    per_range = math.ceil(wanted / DECLARED_RANGES) if declared else RANGE_ROWS
    most_at_once = first_rows(estimated_rows, estimated_bytes)  # as many as the first chunk of a run
    per_range = max(1, min(per_range, wanted, most_at_once))
    count = math.ceil(wanted / per_range)
    skipped = max(0, estimated_rows // count - per_range)
    return Spread(count, per_range, skipped, max(1, min(RANGES_AT_ONCE, most_at_once // per_range)))


def draw_rows(config: Config, source: BinlogSource, schema: TableSchema, rows: int, seed: int | None) -> DrawnRows:
    """Read about `rows` rows of a table, or all rows if the table has fewer. Without a `seed`, one is drawn.

    The reads wait for `throttle`. Each read takes some ranges in one read view; no two reads run at the same time.

    Raises:
        UsageError: `rows` is less than 1.
        Retryable: `throttle` lets nothing be read for WAIT_SECONDS.
        ChunkTooLarge, ChunkTooSlow, SplitUnstable, UnsupportedValue: as for a chunk of a run.

    """
    if rows < 1:
        raise UsageError(f"a sample of {schema.table} has at least one row, not {rows}")
    seed = random.SystemRandom().randrange(_SEEDS) if seed is None else seed
    chance = random.Random(f"{seed} {schema.table}")  # noqa: S311 - the seed is printed, so that a draw can be repeated
    throttle = Throttle(config, source)
    _wait(throttle)
    estimated_rows = source.estimated_rows(schema)
    plan = spread(estimated_rows, source.estimated_bytes(schema), rows, declared=schema.declared)
    starts = _starts(source, schema, plan, estimated_rows, chance)
    if starts is None:
        ranges, is_whole = _walked(source, schema, plan, chance)
    else:
        ranges, is_whole = list(_from_starts(source, schema, plan.rows, starts)), False
    uuid = source.state().uuid
    settled = settled_now(config.source, source.connection, uuid)
    tables = [lake_schema(schema).empty_table()]
    for first in range(0, len(ranges), plan.at_once):
        _wait(throttle)
        conditions = [keys.predicate(schema.source_key) for keys in ranges[first : first + plan.at_once]]
        cap = Cap(bytes=BYTES_MAX, bytes_per_second=throttle.bytes_per_second(1))  # one read at a time
        began = time.monotonic()
        read = read_stable(
            partial(read_rows, config.source, schema, conditions, uuid, FIRST_EPOCH, cap=cap, settled=settled)
        )
        throttle.took(read.rows.nbytes, began)
        tables.append(with_read_metadata(read.rows, schema, read.high.place(FIRST_EPOCH)))
    return DrawnRows(schema, pa.concat_tables(tables), len(ranges), seed, is_whole, estimated_rows)


def _wait(throttle: Throttle) -> None:
    """Wait until `throttle` lets rows be read. Raises Retryable after WAIT_SECONDS, or at once outside its window."""
    end = time.monotonic() + WAIT_SECONDS
    while (reason := throttle.reason_to_wait()) is not None:
        if throttle.is_window_closed or time.monotonic() > end:
            raise Retryable(f"the source is not to be read now: {reason}")
        time.sleep(min(_PAUSE_SECONDS, throttle.seconds_left or _PAUSE_SECONDS))


def _starts(
    source: Source, schema: TableSchema, plan: Spread, estimated_rows: int, chance: random.Random
) -> list[Key] | None:
    """The first keys of ranges, by arithmetic, in order; None if the server has to walk over its index.

    The numbers from the least to the greatest key are divided into `plan.count` equal parts. In each, one is drawn.
    """
    bounds = source.key_bounds(schema, EVERY_KEY) if schema.countable and plan.skipped else None
    if bounds is None or even_step(*bounds, estimated_rows, plan.rows) is None:
        return None  # the keys are no integers, all rows are read, or too few numbers between the ends are in use
    least, greatest = bounds
    edges = [least + (greatest + 1 - least) * number // plan.count for number in range(plan.count + 1)]
    return [(chance.randrange(low, high),) for low, high in pairwise(edges) if low < high]


def _from_starts(source: Source, schema: TableSchema, rows: int, starts: Sequence[Key]) -> Iterator[KeyRange]:
    """A range of `rows` rows from each start on. A start in the previous range is replaced by the end of this range."""
    end: Key | None = None
    for start in starts:
        lower = start if end is None or start > end else end
        end = source.next_boundary(schema, lower, rows)
        yield KeyRange(lower, end)
        if end is None:
            return


def _walked(source: Source, schema: TableSchema, plan: Spread, chance: random.Random) -> tuple[list[KeyRange], bool]:
    """Ranges of `plan.rows` rows in the order of the index, and whether they have all keys.

    Between two ranges, a random number of rows is skipped. The estimate of the rows may be too small. So whenever there
    are twice as many ranges as planned, each second range is left out, and more rows are skipped from then on.
    """
    ranges: list[KeyRange] = []
    skipped, end = plan.skipped, None
    is_whole = not skipped
    while True:
        skip = chance.randint(0, 2 * skipped)  # `skipped` rows on average
        lower = source.next_boundary(schema, end, skip) if skip else end
        if skip and lower is None:  # no row is left after those that were skipped
            break
        end = source.next_boundary(schema, lower, plan.rows)
        ranges.append(KeyRange(lower, end))
        if end is None:
            return ranges, is_whole
        if len(ranges) > 2 * plan.count:
            ranges = ranges[chance.randrange(2) :: 2]
            # between two ranges that are left: two gaps, and the range that was left out
            skipped, is_whole = 2 * skipped + plan.rows, False
    if not ranges:  # the estimate was too large
        ranges = [KeyRange(None, source.next_boundary(schema, None, plan.rows))]
    return ranges, False
