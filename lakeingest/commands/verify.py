"""Verify: proves source = target, chunk by chunk, by checksums that each side computes itself.

The table must not change during the comparison. So the binlog after the published position is scanned before the
comparison, and scanned once more after the comparison: a change of the table is an error.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from lakeingest.commands.comparison import Sides, compare
from lakeingest.commands.report import Report
from lakeingest.config import Config, Source
from lakeingest.core.cascades import family
from lakeingest.core.checksum import Checksum, Difference
from lakeingest.core.position import Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.core.segments import Segment
from lakeingest.errors import (
    CatalogAway,
    LakeIngestError,
    Retryable,
    SourceAway,
    SourceMoved,
    SourceReplaced,
    SparkLost,
    StorageAway,
    StorageFailed,
    UsageError,
)
from lakeingest.files.file import state_of
from lakeingest.lake.target import Publishing, Staged, Tables
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import named_errors
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.pipeline.schema.definitions import assert_unchanged
from lakeingest.spark.live_rows import live_rows
from lakeingest.spark.session import open_session
from lakeingest.state.stopped import most_serious, read_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The errors that are raised at once, because they concern all tables
_CONCERN_ALL_TABLES = SourceAway, SourceReplaced, CatalogAway, StorageAway, StorageFailed, SparkLost, UsageError


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The comparison of a table. `repaired` are differences that a repair has removed before this comparison."""

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


class Verifications(Report, tuple[TableVerification, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The comparisons of several tables. `refused` are the tables that could not be compared, each with its error."""

    refused: Mapping[TableId, LakeIngestError] = MappingProxyType({})

    @classmethod
    def of(cls, results: Iterable[TableVerification], refused: Mapping[TableId, LakeIngestError]) -> Self:
        """The comparisons `results`, with the tables that could not be compared."""
        verifications = cls(results)
        verifications.refused = refused
        return verifications

    @property
    def equal(self) -> bool:
        """Whether all tables could be compared, and source = target for each."""
        return not self.refused and all(result.equal for result in self)

    @property
    def notes(self) -> Sequence[str]:
        """A line for each table that could not be compared."""
        return [f"{table}: not compared: {error.line}" for table, error in self.refused.items()]

    def raise_refused(self) -> None:
        """Raise the most serious error of the refused tables, if there are any. The error's `result` is this object."""
        if self.refused:
            error = most_serious(self.refused.values())
            error.result = self
            raise error

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
        """A row for each table. `TableVerification.differences` has the keys that differ."""
        for verified in self:
            rows = verified.source.rows, verified.target.rows
            keys = len(verified.differences), len(verified.repaired)
            checksum = str(verified.source) if verified.equal else f"{verified.source} ≠ {verified.target}"
            result = "source = target" if verified.equal else "source ≠ target"
            yield str(verified.table), result, *rows, *keys, checksum, verified.chunks, verified.seconds


def verify(config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None) -> Verifications:
    """Compare as `compare_tables` does, then raise the most serious error of the tables that could not be compared.

    The `result` of this error has the comparisons of the other tables.
    """
    results = compare_tables(config, tables, spark)
    results.raise_refused()
    return results


def compare_tables(config: Config, tables: Sequence[str] = (), spark: "SparkSession | None" = None) -> Verifications:
    """Compare the published rows of the given tables with the rows of the source; without names, of all tables.

    Rows of the copy that are marked as deleted are left out. A table that cannot be compared is in `refused` with its
    error: for example, a table whose current definition is not published, or a table that has changed since its
    published position. Errors that concern all tables are raised.
    """

    def open_spark() -> "SparkSession":
        return spark or open_session(config)

    target = open_target(config, open_spark)
    results, refused = list[TableVerification](), dict[TableId, LakeIngestError]()
    prepared = dict[TableId, tuple[TableSchema, Staged]]()
    # Step 1: find the tables that can be compared. Spark is not needed for this.
    with BinlogSource.open(config.source) as source:
        chosen = config.tables.choose(known_tables(config, source).tables, tables)
        for table in chosen:
            with _collect_refusal(config.source, refused, table):
                schema = source.schema(table, config.tables.of(table).choices)
                prepared[table] = schema, _published_state(config, target, schema)
        # A change of a parent table can change rows of these tables outside the binlog, so parents are watched, too.
        with_cascades = [table for table in prepared if config.tables.of(table).cascades == "read"]
        # with `are_logged=True`, the result is empty if the server's settings say that such changes are logged
        unlogged = source.unlogged_keys(with_cascades, are_logged=True).keys
    # Step 2: compare each table over its own connection.
    session = open_spark() if prepared else None
    for table, (schema, staged) in prepared.items():
        with (
            _collect_refusal(config.source, refused, table),
            BinlogSource.open(config.source) as source,
            target.storage_errors(),
        ):
            # without the table itself, which may be its own parent
            parents = {key.parent for key in family(table, unlogged)} - {table}
            parent_schemas = [source.schema(parent, config.tables.of(parent).choices) for parent in sorted(parents)]
            assert session is not None  # noqa: S101 - a table is prepared
            results.append(_verify_table(source, target, session, schema, staged, parent_schemas))
    return Verifications.of(results, refused)


@contextmanager
def _collect_refusal(source: Source, refused: dict[TableId, LakeIngestError], table: TableId) -> Iterator[None]:
    """Put an error of the block into `refused`, as the table's error. An error that concerns all tables is raised."""
    try:
        with named_errors(source):
            yield
    except _CONCERN_ALL_TABLES:
        raise
    except LakeIngestError as error:
        refused[table] = error


def _published_state(config: Config, target: Tables, schema: TableSchema) -> Staged:
    """The last commit of a table, if readers see this commit.

    Raises an error if readers do not see the last commit, or if the last commit has another definition than the source.
    """
    staged = target.inspect(schema.table)
    if staged is None or staged.published is None or staged.progress.position is None:
        target.types(schema)  # raises the error of a type that the lake cannot hold: such a table is never published
        if (stopped := read_stopped(state_of(config), schema.table)) is not None:
            raise stopped.as_error()
        raise Retryable(f"{schema.table} is not published yet; run `lakeingest run` first")
    # if copies follow DDL, the next run mends this; otherwise `assert_unchanged` asks for a new copy
    if config.evolves and staged.progress.fingerprint != schema.fingerprint:
        raise Retryable(f"{schema.table}: its definition was changed since the last run; run `lakeingest run` first")
    assert_unchanged(staged, schema)
    if not staged.visible:
        raise Retryable(f"{schema.table}: a run is under way or was interrupted; run `lakeingest run` first")
    return staged


def _verify_table(
    source: BinlogSource,
    target: Publishing,
    spark: "SparkSession",
    schema: TableSchema,
    staged: Staged,
    parents: Sequence[TableSchema],
) -> TableVerification:
    """Compare one table. `parents` are the tables whose changes can change rows of this table by foreign keys."""
    began = time.monotonic()
    position = staged.progress.position
    assert position is not None  # noqa: S101 - it is published
    # The check before the comparison saves the time of a comparison that must fail. The check after the comparison
    # proves that no change came during the comparison.
    _assert_unchanged(source, position, schema, parents)
    rows = live_rows(target.read(schema.table, staged.version), schema)
    result = compare(Sides(source, spark, schema, rows))
    _assert_unchanged(source, position, schema, parents)
    seconds = time.monotonic() - began
    return TableVerification(schema.table, result.source, result.target, result.chunks, result.differences, seconds)


def _assert_unchanged(
    source: BinlogSource, position: Position, schema: TableSchema, parents: Sequence[TableSchema]
) -> None:
    """Raise an error if the binlog cannot prove that the table is unchanged since the position.

    Raises:
        SourceMoved: the binlog after the position has changes of the table, or of one of its `parents`.
        BinlogGone: the source no longer has the binlog after the position.
        SourceReplaced: the source is another server now.

    """
    watched = {watched_schema.table: watched_schema for watched_schema in (schema, *parents)}
    source.assert_there(position)
    for table, batch in source.changes(Segment.after(position, source.written()), watched):
        if table is not None and batch.num_rows:
            raise SourceMoved(
                f"{table} was changed after {position.at}, where {schema.table} is published: run `lakeingest run`,"
                " and verify while nobody writes to it"
            )
