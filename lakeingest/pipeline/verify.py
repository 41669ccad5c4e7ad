"""Verify: source = target, chunk by chunk, by checksums that each side computes itself.

The source has to be quiet: the binlog after the published position is scanned before and after, and a change of a
verified table in it is noticed.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lakeingest.config import Config, Source
from lakeingest.core.checksum import Checksum, Difference, differences
from lakeingest.core.keys import Key, KeyRange
from lakeingest.core.position import GtidSet, Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import Retryable, SourceMoved
from lakeingest.lake.formats import open_target
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql import checksum as source_side
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.chunk_reader import next_boundary
from lakeingest.mysql.connection import connect, free_server_id, written_position
from lakeingest.mysql.schema_reader import list_tables, read_schema
from lakeingest.pipeline.opening import assert_unchanged, choose
from lakeingest.pipeline.report import Report
from lakeingest.quality import reconciliation as target_side
from lakeingest.spark.ranges import ranges, within
from lakeingest.spark.scatter import scatter
from lakeingest.spark.session import open_session

if TYPE_CHECKING:
    import pymysql
    from pyspark.sql import DataFrame, SparkSession

CHUNK_ROWS = 50_000
FINEST_ROWS = 2_000  # a differing chunk is cut down to this before its rows are compared one by one
KEYS_NAMED = 10_000  # at most, of one chunk: the driver holds them


@dataclass(frozen=True, slots=True)
class TableVerification:
    """What was compared of one table, and what differs."""

    table: TableId
    source: Checksum
    target: Checksum
    chunks: int
    differences: tuple[Difference, ...]
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether source = target."""
        return self.source == self.target and not self.differences


class Verifications(Report, tuple[TableVerification, ...]):
    """What was compared of some tables."""

    __slots__ = ()

    @property
    def equal(self) -> bool:
        """Whether source = target for all of them."""
        return all(one.equal for one in self)

    headers = ("table", "result", "source rows", "target rows", "keys that differ", "checksum", "chunks", "seconds")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row a table; the keys are in its `differences`."""
        for one in self:
            rows, differing = (one.source.rows, one.target.rows), len(one.differences)
            checksum = str(one.source) if one.equal else f"{one.source} ≠ {one.target}"
            result = "source = target" if one.equal else "source ≠ target"
            yield str(one.table), result, *rows, differing, checksum, one.chunks, one.seconds


@dataclass(frozen=True, slots=True)
class ChecksumRange:
    """The task of one executor: a range's checksum by the source."""

    source: Source
    schema: TableSchema
    keys: KeyRange

    def run(self) -> Checksum:
        """Ask the source."""
        return source_side.range_checksum(self.source, self.schema, self.keys)


def verify(config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None) -> Verifications:
    """Compare the published rows of the given tables (none: all) with the source's.

    Retryable when a table is not published yet; SourceMoved when a table was changed since its published position.
    """
    target = open_target(config)
    with connect(config.source) as connection:
        chosen = choose(config, config.tables.select(list_tables(connection)), tables)
        schemas = {table: read_schema(connection, table) for table in chosen}
        staged = {table: _published(target, schemas[table]) for table in chosen}
        session = spark or open_session(config)
        with target.stored():  # Spark's reads are lazy
            return Verifications(
                _verify_table(config, connection, target, session, schemas[table], staged[table]) for table in chosen
            )


def _published(target: Target, schema: TableSchema) -> Staged:
    staged = target.look(schema.table)
    if staged is None or staged.published is None or staged.progress.position is None:
        raise Retryable(f"{schema.table} is not published yet; run `lakeingest run` first")
    assert_unchanged(staged, schema)
    if not staged.visible:
        raise Retryable(f"{schema.table}: a run is under way or was interrupted; run `lakeingest run` first")
    return staged


def _verify_table(
    config: Config,
    connection: "pymysql.Connection",
    target: Target,
    spark: "SparkSession",
    schema: TableSchema,
    staged: Staged,
) -> TableVerification:
    began = time.monotonic()
    position = staged.progress.position
    assert position is not None  # noqa: S101 - it is published
    _assert_quiet(config.source, position, schema)
    rows = target.read(schema.table, staged.version, spark)
    comparison = _Comparison(config, connection, spark, schema, rows)
    chunks = _cut(connection, schema, KeyRange(), CHUNK_ROWS)
    sums = comparison.compare(chunks)
    found = comparison.differing_rows([keys for keys, (ours, theirs) in sums.items() if ours != theirs])
    _assert_quiet(config.source, position, schema)
    ours, theirs = (sum((pair[side] for pair in sums.values()), Checksum()) for side in (0, 1))
    return TableVerification(schema.table, ours, theirs, len(chunks), tuple(found), time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One table, both sides of it."""

    config: Config
    connection: "pymysql.Connection"
    spark: "SparkSession"
    schema: TableSchema
    rows: "DataFrame"

    def compare(self, chunks: Sequence[KeyRange]) -> dict[KeyRange, tuple[Checksum, Checksum]]:
        """Of each range the source's checksum and the target's."""
        tasks = [ChecksumRange(self.config.source, self.schema, keys) for keys in chunks]
        ours = scatter(self.spark, ChecksumRange.run, tasks, self.config.source.max_connections - 1)
        theirs = target_side.range_checksums(self._numbered(chunks), self.schema)
        return {keys: (ours[number], theirs.get(number, Checksum())) for number, keys in enumerate(chunks)}

    def differing_rows(self, chunks: Sequence[KeyRange]) -> list[Difference]:
        """The keys that differ within ranges that do: each is cut finer, and only what differs is compared by rows."""
        finer = [part for keys in chunks for part in _cut(self.connection, self.schema, keys, FINEST_ROWS)]
        found: list[Difference] = []
        for keys, (ours, theirs) in self.compare(finer).items() if finer else ():
            if ours != theirs:
                source = source_side.row_checksums(self.config.source, self.schema, keys, KEYS_NAMED)
                within_range = self.rows.where(keys.predicate(self.schema.key))
                found += differences(source, target_side.row_checksums(within_range, self.schema, KEYS_NAMED))
        return found

    def _numbered(self, chunks: Sequence[KeyRange]) -> "DataFrame":
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

        tagged = [(keys, (number,)) for number, keys in enumerate(chunks)]
        numbers = ranges(self.spark, tagged, "number int", len(self.schema.key))
        return self.rows.join(F.broadcast(numbers), on=within(self.schema.key), how="inner")


def _cut(connection: "pymysql.Connection", schema: TableSchema, keys: KeyRange, rows: int) -> list[KeyRange]:
    """Cut a range at every `rows` rows of the source."""
    bounds: list[Key | None] = [keys.lower]
    while (following := next_boundary(connection, schema, bounds[-1], rows)) is not None:
        if keys.upper is not None and following >= keys.upper:
            break
        bounds.append(following)
    return [KeyRange(lower, upper) for lower, upper in pairwise([*bounds, keys.upper])]


def _assert_quiet(source: Source, position: Position, schema: TableSchema) -> None:
    """SourceMoved when the binlog after the position holds a change of the table."""
    with connect(source) as connection:
        stop = written_position(connection)
        since = Segment(position.server_uuid, position.epoch, position.at, stop, position.gtids or GtidSet())
        server_id = free_server_id(connection, source)
        for table, batch in read_segment(connection, since, {schema.table: schema}, server_id):
            if table is not None and batch.num_rows:
                raise SourceMoved(
                    f"{schema.table} was changed after {position.at}, where it is published: run `lakeingest run`, and "
                    "verify while nobody writes to it"
                )
