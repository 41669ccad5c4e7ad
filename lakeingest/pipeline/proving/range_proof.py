"""The comparison of a few ranges of one table with the source, while others write and publish, without Spark.

It is `verify` in small: the same checksums, the same look into the binlog, and each difference is found twice before it
is reported. The source answers one query at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.config import Config
from lakeingest.core.cascades.cascades import family
from lakeingest.core.proofs.proof import RangeProof, Turn
from lakeingest.core.tables.keys import EVERY_KEY, Key, KeyRange
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import Retryable
from lakeingest.lake.target import Bounds, Target
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.key_values import key_of_difference
from lakeingest.pipeline.proving.comparison import FINEST_ROWS, ChunkPlan, Sides, SourceTime, cut_range
from lakeingest.pipeline.proving.copy_files import CopyFiles, names_to_read
from lakeingest.pipeline.proving.table_comparison import Confirmed, TableComparison
from lakeingest.pipeline.run.edge_errors import translate_errors
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.spark.scatter import Workers

RANGES_AT_ONCE = 4  # so many neighbours are compared together, because each comparison opens the files of the copy
KEYS_SHOWN = 3  # of the keys that differ, in messages


@dataclass(frozen=True, slots=True)
class Proved:
    """What a comparison has found: the `ranges` with their new state.

    `rate`: how many rows the source has compared in a second; None if rows differ, or if no row was compared. `keys`:
    the keys that differ, as a re-snapshot takes them; empty if the rows that differ have no key to name. `seconds`: the
    source's time, with that of the second comparison after a difference.
    """

    ranges: tuple[RangeProof, ...]
    rate: float | None
    keys: tuple[Key, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Compares ranges of about `rows` rows, from `lower` to before `upper`. `workers` read the files of the copy.

    A bound that is None does not limit the keys. If only the server knows their order, all rows are compared.
    """

    config: Config
    table: TableId
    lower: Key | None
    upper: Key | None
    rows: int
    workers: Workers

    def run(self, now: float, spent: SourceTime) -> Proved:
        """Compare the ranges, and return what was found. `now`: seconds since 1970. `spent` gets the source's time.

        Raises the errors of `TableComparison`, and Retryable if only Spark could read the copy.
        """
        target = open_target(self.config)
        with translate_errors(self.config.source, target), BinlogSource.open(self.config.source) as source:
            options = self.config.tables.of(self.table)
            with spent.counted():
                schema = source.schema(self.table, options.choices)
                ranges = self._ranges(source, schema)
                has_family = options.cascades == "read"
                unlogged = source.unlogged_keys([self.table], are_logged=True).keys if has_family else {}
                parents = {key.parent for key in family(self.table, unlogged)}
                others = sorted(parents - {self.table})
                parent_schemas = [source.schema(parent, self.config.tables.of(parent).choices) for parent in others]
            # buckets of about FINEST_ROWS rows each; 0: the chunks are the ranges
            buckets = 0 if schema.ordered else max(1, len(ranges) * self.rows // FINEST_ROWS)
            chosen = tuple(range(buckets or len(ranges)))
            # None: all chunks are begun at once
            plan = ChunkPlan(tuple(ranges), buckets, chosen, None, schema.fingerprint)
            sides = _FilesAlone(source, target, schema, self.workers, spent)
            comparison = TableComparison(
                self.config, source, target, schema, sides.opened, parent_schemas, self.table in parents
            )
            return _proved(schema, plan, comparison.confirmed(plan), now, spent.seconds)

    def _ranges(self, source: BinlogSource, schema: TableSchema) -> list[KeyRange]:
        """At most RANGES_AT_ONCE ranges, from `lower` on; all ranges if only the server knows the order of keys."""
        if not schema.ordered:
            return cut_range(source, schema, EVERY_KEY, self.rows)
        ranges, lower = list[KeyRange](), self.lower
        for _ in range(RANGES_AT_ONCE):
            upper = source.next_boundary(schema, lower, self.rows)
            if upper is None or (self.upper is not None and upper >= self.upper):
                return [*ranges, KeyRange(lower, self.upper)]
            ranges.append(KeyRange(lower, upper))
            lower = upper
        return ranges


@dataclass(frozen=True, slots=True)
class _FilesAlone:
    """Opens both sides of a comparison that never needs Spark."""

    source: BinlogSource
    target: Target
    schema: TableSchema
    workers: Workers
    spent: SourceTime

    def opened(self, version: int, plan: ChunkPlan) -> Sides:
        """Both sides, with this version of the copy. Raises Retryable if files cannot tell its rows."""
        bounds = _bounds(plan.ranges) if not plan.buckets else None
        readers = self.target.batch_readers(self.schema.table, version, names_to_read(self.schema), bounds)
        if readers is None:
            raise Retryable(f"{self.schema.table}: its files alone do not tell its rows; `lakeingest verify` reads it")
        # one task of the copy, and one query of the source, at a time; the files also give single rows
        files = CopyFiles(readers, self.schema, self.source.double_widths, self.workers, 1)
        return Sides(self.source, self.schema, files, files, 1, self.spent)


def _bounds(ranges: Sequence[KeyRange]) -> Bounds | None:
    """The least and the greatest value of the key's first column in neighbouring ranges; None if there is no limit."""
    lower, upper = ranges[0].lower, ranges[-1].upper
    return None if lower is None and upper is None else (lower and lower[0], upper and upper[0])


def _proved(schema: TableSchema, plan: ChunkPlan, found: Confirmed, now: float, seconds: float) -> Proved:
    """What is known after a comparison. `seconds`: the source's time for it."""
    position, rows = str(found.position.at), found.compared.source.rows
    ranges = (EVERY_KEY,) if plan.buckets else plan.ranges
    if not found.differs:
        share = seconds / len(ranges)
        proven = tuple(RangeProof(keys).compared(Turn.EQUAL, now, share, position) for keys in ranges)
        return Proved(proven, rows / seconds if rows and seconds else None, (), seconds)
    differing = []
    for keys in ranges:
        inside = [each for each in found.differences if plan.buckets or each.key in keys]
        if inside or not found.differences:  # without keys, it is not known in which of the ranges
            shown = ", ".join(f"{_key_text(each.key)} {each.where}" for each in inside[:KEYS_SHOWN])
            why = f"{len(inside):,} keys differ: {shown}" if inside else "source ≠ target, without a key that differs"
            seen = RangeProof(keys).compared(Turn.DIFFERENT, now, seconds / len(ranges), position, why)
            differing.append(seen)
    # the other ranges are compared again: single rows may have been left out there
    differing_keys = dict.fromkeys(key_of_difference(schema, each.key) for each in found.differences)
    return Proved(tuple(differing), None, tuple(differing_keys), seconds)


def _key_text(key: Key) -> str:
    return f"key {', '.join(map(str, key))}"
