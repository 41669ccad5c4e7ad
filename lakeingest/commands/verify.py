"""Verify: proves source = target, chunk by chunk, by checksums that each side computes itself, also beside writers.

The copy has the rows as of its published position. The source is read later, so some of its rows may be newer:

1. The checksums are compared. The result are keys whose rows differ.
2. After that, the binlog from the published position to its present end is read. The row of a key that it does not
   change has been the same all the time, so a difference of such a key is one.
3. For a changed key, the binlog has the row as of the position, and this row is compared with the row of the copy.
4. Differences are found a second time, by all these steps, before they are reported.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeingest.commands.comparison import ChunkPlan, Compared, Sides, compare, plan_chunks
from lakeingest.commands.copy_files import CopyFiles, names_to_read
from lakeingest.commands.extent import WHOLE, Extent
from lakeingest.commands.published_copy import await_published
from lakeingest.commands.rows_before import RowsBefore, rows_before
from lakeingest.commands.verification import TableVerification, Verifications
from lakeingest.config import Config, Source
from lakeingest.core.cascades import family
from lakeingest.core.checksum import ONLY_IN_SOURCE, Checksum
from lakeingest.core.keys import Key, quote
from lakeingest.core.position import Position
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import (
    CatalogAway,
    LakeIngestError,
    SourceAway,
    SourceMoved,
    SourceReplaced,
    SparkLost,
    StorageAway,
    StorageFailed,
    UsageError,
)
from lakeingest.lake.target import Target
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.mysql.connection import named_errors
from lakeingest.mysql.key_values import key_table, values_of, values_of_texts
from lakeingest.pipeline.opening.absent_tables import known_tables
from lakeingest.pipeline.rereads.differences import differences
from lakeingest.pipeline.run.executors import Executors
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.rows import table_schema
from lakeingest.spark.checksum import with_keys
from lakeingest.spark.collected import collected
from lakeingest.spark.live_rows import live_rows
from lakeingest.spark.session import open_session
from lakeingest.spark.settings import runs_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPARISONS = 4  # the most of a table; two are enough if the same key differs in both
COMMIT_SECONDS = 11.0  # longer than replicas usually delay a commit on a semi-synchronous source (10 seconds)

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
) -> Verifications:
    """Compare the published rows of the given tables with the rows of the source; without names, of all tables.

    `extent` says how much of each table is compared. For tables in `plans`, the chosen chunks of their plans are
    compared instead, whatever time that takes. Rows of the copy that are marked as deleted are left out. A table that
    cannot be compared is in `refused` with its error: for example, a table whose current definition is not published.
    Errors that concern all tables are raised, and UsageError for columns that a table does not have.
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
                await_published(config, target, schema)  # raises the reason why the table cannot be compared
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
                comparison = _Comparison(
                    config, source, target, executors, prepared[table], parent_schemas, table in parents, extent
                )
                results.append(comparison.result(plan, may_begin))
    results.sort(key=lambda result: result.table)
    return Verifications.of(results, refused)


def _not_compared(table: TableId, extent: Extent) -> TableVerification:
    """The result of a table for which no time was left."""
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
    )


def _always() -> bool:
    return True


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
class _Comparison:
    """A table whose source and copy are compared.

    `executors`: who reads the files of the copy; None if only Spark reads the copy, because its tasks run elsewhere.
    `parents`: other tables whose changes can change its rows by foreign keys, outside the binlog. `is_own_parent`: so
    can changes of the table itself. `extent`: how much of the table is compared.
    """

    config: Config
    source: BinlogSource
    target: Target
    executors: Executors | None
    schema: TableSchema
    parents: Sequence[TableSchema]
    is_own_parent: bool
    extent: Extent

    @property
    def compared_schema(self) -> TableSchema:
        """The definition with only the columns that are compared."""
        return self.extent.compared(self.schema)

    def result(self, given: ChunkPlan | None, may_begin: Callable[[], bool]) -> TableVerification:
        """Compare; if there are differences, compare again, and report those that two comparisons have found.

        The chosen chunks of the plan `given` are compared; None: those of a new plan, of which no chunk is begun after
        `may_begin` returns False. Later comparisons are of the same chunks as the first one. If the second comparison
        has found only other differences, a third one is made, and so on. Raises SourceMoved if COMPARISONS have found
        nothing twice, or if the definition is not that of the plan `given`.
        """
        began = time.monotonic()
        if given is not None and given.fingerprint != self.schema.fingerprint:
            raise SourceMoved(f"{self.schema.table}: its definition was changed meanwhile; verify again")
        plan = given or plan_chunks(self.source, self.schema, self.extent)
        all_columns = self.compared_schema == self.schema
        found_before: Collection[Key] | None = None
        for _ in range(COMPARISONS):
            compared, moved, position = self._compare(plan, _always if given else may_begin)
            plan = given = replace(plan, chosen=compared.compared)
            found = {difference.key: difference for difference in compared.differences}
            are_same = compared.source == compared.target or bool(compared.quarantined)
            is_equal = not found and (moved or are_same)
            confirmed = [each for key, each in found.items() if key in (found_before or ())]
            # without keys, the checksums alone must be unequal twice
            is_confirmed = bool(confirmed) or (found_before is not None and not found_before and not found)
            if is_equal or is_confirmed:
                seconds = time.monotonic() - began
                return TableVerification(
                    self.schema.table,
                    compared.source,
                    compared.target,
                    compared.chunks,
                    tuple(confirmed),
                    seconds,
                    moved=moved,
                    compared_chunks=len(plan.chosen),
                    all_chunks=plan.count,
                    columns=None if all_columns else self.compared_schema.names,
                    seed=self.extent.seed,
                    plan=plan,
                    quarantined=compared.quarantined,
                )
            found_before = found.keys()
            if position.gtids is None:  # then a run may copy a transaction before the source has committed it
                time.sleep(COMMIT_SECONDS)
        raise SourceMoved(
            f"{self.schema.table}: each of {COMPARISONS} comparisons has found other differences; verify again"
        )

    def _compare(self, plan: ChunkPlan, may_begin: Callable[[], bool]) -> tuple[Compared, bool, Position]:
        """Compare once, as of the position that is published now; whether the table was changed after it; the position.

        `may_begin`: whether another chunk of the plan may be begun.

        Raises SourceMoved if rows were changed that cannot be compared.
        """
        schema = self.schema
        staged = await_published(self.config, self.target, schema)
        position = staged.progress.position
        assert position is not None  # noqa: S101 - it is published
        files = self._files(staged.version) if plan.is_whole else None

        def read() -> "DataFrame":
            return live_rows(self.target.read(schema.table, staged.version), schema)

        sides = Sides(self.source, self.compared_schema, read, files)
        compared, listed = compare(sides, plan, may_begin), frozenset(staged.progress.quarantine)
        if compared.source == compared.target and not compared.differences:
            return compared, False, position
        keys = _values(schema, [difference.key for difference in compared.differences])
        before = rows_before(self.source, position, schema, key_table(schema, keys), self.parents)
        if not before.has_changes:
            # unless all rows that differ were compared, nobody knows that the others are those in quarantine
            return _without(compared, listed) if compared.complete else compared, False, position
        by_key = {tuple(key.values()): each for key, each in zip(keys, compared.differences, strict=True)}
        changed = _as_tuples(before.changed)
        differing = {key: each for key, each in by_key.items() if key not in changed}
        changed_keys = [each.key for key, each in by_key.items() if key in changed]
        for key, where in self._differences_before(sides, before, changed_keys).items():
            differing[key] = replace(by_key[key], where=where)
        ordered = tuple(sorted(differing.values(), key=lambda each: each.key))
        compared = _without(replace(compared, differences=ordered), listed)
        if not compared.complete and not compared.differences:
            raise SourceMoved(
                f"{schema.table}: too many rows were changed after {position.at}, where it is published: run"
                " `lakeingest run`, and verify again"
            )
        if self.is_own_parent and compared.differences:
            raise SourceMoved(
                f"{schema.table} was changed after {position.at}, where it is published, and foreign keys may have"
                " changed more of its rows, which the source does not log: run `lakeingest run`, and verify while"
                " nobody writes to it"
            )
        return compared, True, position

    def _files(self, version: int) -> CopyFiles | None:
        """The files of a commit of the copy, if they can be read without Spark."""
        if self.executors is None:
            return None
        schema = self.compared_schema
        readers = self.target.batch_readers(schema.table, version, names_to_read(schema))
        if readers is None:
            return None
        workers = self.executors.for_tasks(small=len(readers) <= 1)
        return CopyFiles(readers, schema, self.source.double_widths, workers, self.executors.at_once)

    def _differences_before(
        self, sides: Sides, before: RowsBefore, changed: Sequence[Key]
    ) -> dict[tuple[Any, ...], str]:
        """The changed keys whose row as of the published position is not the row of the copy, and how it differs.

        `sides` have the copy as of this position. `changed`: the keys of `before.changed` in the form of a difference.
        """
        if not changed:
            return {}
        schema = self.compared_schema
        found_rows = collected(with_keys(sides.rows.select(*map(quote, schema.names)), schema, changed))
        # a damaged copy may have NULL where the source cannot have it
        fields = pa.schema([field.with_nullable(True) for field in table_schema(schema)])
        copy = fields.empty_table() if found_rows is None else found_rows.cast(fields)
        rows_before_changes = before.rows.select(schema.names).cast(fields)
        unequal, only_in_copy = differences(rows_before_changes, copy, schema.key)
        in_copy = _as_tuples(copy.select(schema.key))
        found = dict.fromkeys(_as_tuples(only_in_copy), "only in the target")
        for key in _as_tuples(unequal.select(schema.key)):
            found[key] = "differs" if key in in_copy else ONLY_IN_SOURCE
        return found


def _without(compared: Compared, listed: Collection[Key]) -> Compared:
    """The same comparison. Rows of the `listed` keys, which are in quarantine, do not differ if they are not there."""
    missing = {each for each in compared.differences if each.key in listed and each.where == ONLY_IN_SOURCE}
    differences = tuple(each for each in compared.differences if each not in missing)
    return replace(compared, differences=differences, quarantined=tuple(sorted(each.key for each in missing)))


def _values(schema: TableSchema, keys: Sequence[Key]) -> list[dict[str, Any]]:
    """The values of keys that a comparison has found: for each key the values by column, as Arrow gives them back."""
    values = [
        values_of(schema, key) if schema.ordered else values_of_texts(schema, tuple(map(str, key))) for key in keys
    ]
    rows: list[dict[str, Any]] = pa.Table.from_pylist(values, key_table(schema, ()).schema).to_pylist()
    return rows


def _as_tuples(keys: pa.Table) -> set[tuple[Any, ...]]:
    """The keys as tuples of Python's values."""
    return {tuple(key.values()) for key in keys.to_pylist()}
