"""Verify: proves source = target, chunk by chunk, also while others write (`pipeline.proving.table_comparison`)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakeingest.commands.chunk_plan import plan_chunks
from lakeingest.commands.extent import WHOLE, Extent
from lakeingest.commands.verification import TableVerification, Verifications
from lakeingest.config import Config, Source
from lakeingest.core.cascades.cascades import family
from lakeingest.core.proofs.checksum import Checksum
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import (
    CatalogAway,
    LakeIngestError,
    SourceAway,
    SourceReplaced,
    SparkLost,
    StorageAway,
    StorageFailed,
    UsageError,
)
from lakeingest.lake.target import Target
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import named_errors
from lakeingest.pipeline.events import ComparisonBegun, Observer, RangeCompared, unobserved
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.proving.comparison import ChunkPlan, Sides
from lakeingest.pipeline.proving.copy_by_spark import CopyBySpark
from lakeingest.pipeline.proving.copy_files import CopyFiles, names_to_read
from lakeingest.pipeline.proving.published_copy import await_published
from lakeingest.pipeline.proving.table_comparison import TableComparison, always
from lakeingest.pipeline.run.executors import Executors
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.spark.live_rows import live_rows
from lakeingest.spark.session import open_session
from lakeingest.spark.settings import runs_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The errors that are raised at once, because they concern all tables
_CONCERN_ALL_TABLES = SourceAway, SourceReplaced, CatalogAway, StorageAway, StorageFailed, SparkLost, UsageError


def verify(
    config: Config,
    tables: Sequence[str] = (),
    spark: "SparkSession | None" = None,
    extent: Extent = WHOLE,
    plans: Mapping[TableId, ChunkPlan] = MappingProxyType({}),
) -> Verifications:
    """Compare as `compare_tables` does, then raise the most serious error of the tables that could not be compared.

    The `result` of this error has the comparisons of the other tables.
    """
    results = compare_tables(config, tables, spark, extent, plans)
    results.raise_refused()
    return results


def compare_tables(
    config: Config,
    tables: Sequence[str] = (),
    spark: "SparkSession | None" = None,
    extent: Extent = WHOLE,
    plans: Mapping[TableId, ChunkPlan] = MappingProxyType({}),
    observe: Observer = unobserved,
) -> Verifications:
    """Compare the published rows of the given tables with the rows of the source; without names, of all tables.

    `extent` says how much of each table is compared. For tables in `plans`, the chosen chunks of their plans are
    compared instead, whatever time that takes. `observe` is told how far the comparison of each table is. Rows of the
    copy that are marked as deleted are left out. A copy that began empty lacks rows by the user's choice: its result
    says that it was not compared. A table that cannot be compared is in `refused` with its error: for example, a table
    whose current definition is not published. Errors that concern all tables are raised, and UsageError for columns
    that a table does not have.
    """

    def open_spark() -> "SparkSession":
        return spark or open_session(config)

    target = open_target(config, open_spark)
    results, refused = list[TableVerification](), dict[TableId, LakeIngestError]()
    prepared = dict[TableId, TableSchema]()
    runs_without_spark = runs_here(config) and (spark is None or runs_here(config, spark.sparkContext.master))
    # Step 1: find the tables that can be compared. Spark is not needed for this.
    with BinlogSource.open(config.source) as source:
        chosen = config.tables.choose(known_tables(config, source).tables, tables)
        for table in chosen:
            with _collect_refusal(config.source, refused, table):
                schema = source.schema(table, config.tables.of(table).choices)
                extent.compared(schema)  # raises the error of an unknown column
                # raises the reason why the table cannot be compared
                staged = await_published(config, target, schema)
                if staged.progress.began_empty is not None:
                    results.append(_not_compared(table, extent, staged.progress.began_empty))
                    continue
                prepared[table] = schema
        # A change of a parent table can change rows of these tables outside the binlog, so parents are watched, too.
        with_cascades = [table for table in prepared if config.tables.of(table).cascades == "read"]
        # with `are_logged=True`, the result is empty if the server's settings say that such changes are logged
        unlogged = source.unlogged_keys(with_cascades, are_logged=True).keys
    # Step 2: compare each table over its own connection.
    may_begin = extent.timer()
    with Executors(config) as own:
        executors = own if runs_without_spark else None
        for table in extent.in_turn(list(prepared)):
            plan = plans.get(table)
            if plan is None and not may_begin():  # then the table is not even cut into chunks
                results.append(_not_compared(table, extent))
                continue
            with (
                _collect_refusal(config.source, refused, table),
                BinlogSource.open(config.source) as source,
                target.storage_errors(),
            ):
                parents = {key.parent for key in family(table, unlogged)}
                others = sorted(parents - {table})
                parent_schemas = [source.schema(parent, config.tables.of(parent).choices) for parent in others]
                schema, is_own_parent = prepared[table], table in parents
                sides = _BothSides(source, target, executors, schema, extent.compared(schema), observe)
                comparison = TableComparison(
                    config, source, target, schema, sides.opened, parent_schemas, is_own_parent
                )
                results.append(_verified(comparison, extent, plan, may_begin, observe))
    results.sort(key=lambda result: result.table)
    return Verifications.of(results, refused)


def _not_compared(table: TableId, extent: Extent, began_empty: str | None = None) -> TableVerification:
    """The result of a table for which no time was left, or whose copy `began_empty`."""
    return TableVerification(
        table,
        Checksum(),
        Checksum(),
        0,
        (),
        0.0,
        compared_chunks=0,
        all_chunks=0,
        columns=extent.columns,
        seed=extent.seed,
        began_empty=began_empty,
    )


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


@dataclass(frozen=True, slots=True)
class _BothSides:
    """Opens both sides of a table. `executors`: who reads the files of the copy; None: Spark alone can read the copy.

    `compared`: the definition with only the columns that are compared.
    """

    source: BinlogSource
    target: Target
    executors: Executors | None
    schema: TableSchema
    compared: TableSchema
    observe: Observer

    def opened(self, version: int, plan: ChunkPlan) -> Sides:
        """Both sides, with this version of the copy.

        Spark reads single rows. It also reads chunks, unless all are compared at once and the files need no Spark.
        """

        def read() -> "DataFrame":
            """The rows of this version that are not marked as deleted. This call starts Spark if it is needed."""
            return live_rows(self.target.read(self.schema.table, version), self.schema)

        copy = CopyBySpark(self.source, self.compared, read)
        files = self._files(version) if plan.is_whole else None
        # one connection less than allowed, because `source` holds one
        connections = max(1, self.source.settings.max_connections - 1)
        return Sides(self.source, self.compared, copy, files, connections, on_range=self._count)

    def _count(self, rows: int) -> None:
        """Tell `observe` that a range with so many rows was compared."""
        self.observe(RangeCompared(self.schema.table, rows))

    def _files(self, version: int) -> CopyFiles | None:
        """The files of this version of the copy; None if only Spark can read them."""
        if self.executors is None:
            return None
        readers = self.target.batch_readers(self.schema.table, version, names_to_read(self.compared))
        if readers is None:
            return None
        workers = self.executors.for_tasks(small=len(readers) <= 1)
        return CopyFiles(readers, self.compared, self.source.double_widths, workers, self.executors.at_once)


def _verified(
    comparison: TableComparison,
    extent: Extent,
    given: ChunkPlan | None,
    may_begin: Callable[[], bool],
    observe: Observer,
) -> TableVerification:
    """Compare the chosen chunks of the plan `given`, whatever time that takes.

    Without `given`, make a plan, and compare its chosen chunks. No chunk is begun after `may_begin` returns False.
    """
    began, schema = time.monotonic(), comparison.schema
    plan = given or plan_chunks(comparison.source, schema, extent)
    ranges_to_read = plan.ranges if plan.buckets else plan.chosen  # each range has rows of all buckets
    observe(ComparisonBegun(schema.table, len(ranges_to_read)))
    found = comparison.confirmed(plan, always if given else may_begin)
    columns = extent.compared(schema)
    return TableVerification(
        schema.table,
        found.compared.source,
        found.compared.target,
        found.compared.chunks,
        found.differences,
        time.monotonic() - began,
        moved=found.moved,
        compared_chunks=len(found.plan.chosen),
        all_chunks=plan.count,
        columns=None if columns == schema else columns.names,
        seed=extent.seed,
        plan=found.plan,
        quarantined=found.compared.quarantined,
    )
