"""Verify: source = target, chunk by chunk, by checksums that each side computes itself.

The source has to be quiet: the binlog after the published position is scanned before and after, and a change of a
verified table in it is noticed.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.commands.report import Report
from lakeingest.config import Config, Source
from lakeingest.core.cascades import family
from lakeingest.core.checksum import Checksum, Difference
from lakeingest.core.position import Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import Retryable, SourceMoved
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.binlog_reader import read_segment
from lakeingest.mysql.connection import connect, free_server_id, written_position
from lakeingest.mysql.continuity import still_there
from lakeingest.mysql.preflight.foreign_keys import unlogged_keys
from lakeingest.mysql.preflight.server import Server
from lakeingest.mysql.schema_reader import list_tables, read_schema
from lakeingest.pipeline.comparison import Sides, compare
from lakeingest.pipeline.live_rows import live
from lakeingest.pipeline.opening import assert_unchanged
from lakeingest.pipeline.quiet_tables import open_target
from lakeingest.spark.session import open_session

if TYPE_CHECKING:
    import pymysql
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The comparison of a table, and what differs."""

    table: TableId
    source: Checksum
    target: Checksum
    chunks: int
    differences: tuple[Difference, ...]
    seconds: float
    repaired: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether source = target."""
        return self.source == self.target and not self.differences


class Verifications(Report, tuple[TableVerification, ...]):
    """The comparisons of several tables."""

    __slots__ = ()

    @property
    def equal(self) -> bool:
        """Whether source = target for all of them."""
        return all(result.equal for result in self)

    headers = (
        "table",
        "result",
        "source rows",
        "target rows",
        "keys that differ",
        "repaired",
        "checksum",
        "chunks",
        "seconds",
    )

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table. The keys that differ are in its `differences`."""
        for verified in self:
            rows = verified.source.rows, verified.target.rows
            keys = len(verified.differences), len(verified.repaired)
            checksum = str(verified.source) if verified.equal else f"{verified.source} ≠ {verified.target}"
            result = "source = target" if verified.equal else "source ≠ target"
            yield str(verified.table), result, *rows, *keys, checksum, verified.chunks, verified.seconds


def verify(config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None) -> Verifications:
    """Compare the published rows of the given tables (none: all) with the source's; not those marked as deleted.

    Retryable when a table is not published yet, or not by its definition of now; SourceMoved when a table was changed
    since its published position.
    """
    target = open_target(config)
    with connect(config.source) as connection:
        chosen = config.tables.choose(config.tables.select(list_tables(connection)), tables)
        schemas = {table: read_schema(connection, table, config.tables.of(table).choices) for table in chosen}
        staged = {table: _published(config, target, schemas[table]) for table in chosen}
        above = _parents(config, connection, chosen)
        session = spark or open_session(config)
        with target.storage_errors():  # Spark's reads are lazy
            return Verifications(
                _verify_table(config, connection, target, session, schemas[table], staged[table], above.get(table, ()))
                for table in chosen
            )


def _parents(
    config: Config, connection: "pymysql.Connection", tables: Sequence[TableId]
) -> dict[TableId, list[TableSchema]]:
    """Of each table the parents whose changes are changes of it, too, which the source does not log."""
    read = [table for table in tables if config.tables.of(table).cascades == "read"]
    keys = unlogged_keys(Server.of(connection), read)
    parents = {table: {key.parent for key in family(table, keys)} - {table} for table in read}
    schemas = {
        one: read_schema(connection, one, config.tables.of(one).choices) for one in set().union(*parents.values())
    }
    return {table: [schemas[one] for one in sorted(found)] for table, found in parents.items()}


def _published(config: Config, target: Target, schema: TableSchema) -> Staged:
    staged = target.inspect(schema.table)
    if staged is None or staged.published is None or staged.progress.position is None:
        raise Retryable(f"{schema.table} is not published yet; run `lakeingest run` first")
    if config.evolves and staged.progress.fingerprint != schema.fingerprint:
        raise Retryable(f"{schema.table}: its definition was changed since the last run; run `lakeingest run` first")
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
    parents: Sequence[TableSchema],
) -> TableVerification:
    began = time.monotonic()
    position = staged.progress.position
    assert position is not None  # noqa: S101 - it is published
    _assert_quiet(config.source, position, schema, parents)
    rows = live(target.read(schema.table, staged.version, spark), schema)
    found = compare(Sides(config, connection, spark, schema, rows))
    _assert_quiet(config.source, position, schema, parents)
    seconds = time.monotonic() - began
    return TableVerification(schema.table, found.source, found.target, found.chunks, found.differences, seconds)


def _assert_quiet(source: Source, position: Position, schema: TableSchema, parents: Sequence[TableSchema]) -> None:
    """SourceMoved when the binlog after the position has a change of these tables, BinlogGone if it is another."""
    watched = {one.table: one for one in (schema, *parents)}
    with connect(source) as connection:
        still_there(source, connection, position)
        stop = written_position(connection)
        server_id = free_server_id(connection, source)
        for table, batch in read_segment(connection, Segment.after(position, stop), watched, server_id):
            if table is not None and batch.num_rows:
                raise SourceMoved(
                    f"{table} was changed after {position.at}, where {schema.table} is published: run `lakeingest run`,"
                    " and verify while nobody writes to it"
                )
