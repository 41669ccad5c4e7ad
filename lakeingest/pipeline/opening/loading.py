"""Loading: the lake says for each table where its copy stands, and which definition its rows have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lakeingest.config import Config
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, NotOurCopy, SchemaChanged, Scope
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.schema.definitions import as_copied, has_other_rows, restore_from_lake

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The copies of a run's tables, as the lake has them.

    `schemas`: the definition by which each table's rows are read, which is the definition of its copy. A table without
    one can only be copied again, or belongs to another pipeline.
    `staged`: the staged state of each table; None for a new table. A table whose copy cannot be loaded or continued is
    not in it.
    `failed`: why a copy cannot be loaded or continued.
    `altered`: the current definition of each table that DDL has changed since its copy; the binlog tells how the
    definition of the copy becomes this one.
    """

    schemas: Mapping[TableId, TableSchema]
    staged: Mapping[TableId, Staged | None]
    failed: Mapping[TableId, LakeIngestError]
    altered: Mapping[TableId, TableSchema]


def load_tables(config: Config, source: BinlogSource, target: Target, defined: Mapping[TableId, TableSchema]) -> Loaded:
    """Ask the lake for the copies of these tables; `defined` has their current definitions."""
    schemas, altered = dict(defined), dict[TableId, TableSchema]()
    staged: dict[TableId, Staged | None] = {}
    failed: dict[TableId, LakeIngestError] = {}
    for table, schema in defined.items():
        try:
            copy = target.recover(table)
            if copy and _is_begun_in_vain(config, source, copy, schema):
                target.discard(table)
                copy = None
            if copy:
                restore_from_lake(config, target, copy)
                schemas[table] = as_copied(config, copy, schema)
                if not schemas[table].reads_as(schema):
                    altered[table] = schema
            staged[table] = copy
        except LakeIngestError as error:
            if error.scope is not Scope.TABLE:
                raise
            failed[table] = error
            if isinstance(error, SchemaChanged | NotOurCopy):
                del schemas[table]
    return Loaded(schemas, staged, failed, altered)


def is_kept(source: BinlogSource, staged: Staged | None, schema: TableSchema) -> bool:
    """Whether a copy that cannot be continued is worth keeping: readers see it, or it has enough rows to compare."""
    return staged is not None and (staged.published is not None or _is_worth(source, staged, schema))


def _is_worth(source: BinlogSource, staged: Staged, schema: TableSchema) -> bool:
    """Whether a first copy has enough rows to be compared; True if the source does not answer."""
    return unless_away(source, True, partial(is_worth_comparing, source, staged, schema))


def unless_away(source: BinlogSource, unknown: Answer, ask: Callable[[], Answer]) -> Answer:
    """The source's answer to a question about one table; `unknown` if the table is locked or dropped.

    Such a table stops when the run reads its rows.
    """
    try:
        with source.named_errors():
            return ask()
    except LakeIngestError as error:
        if error.scope is not Scope.TABLE:
            raise
        return unknown


def _is_begun_in_vain(config: Config, source: BinlogSource, staged: Staged, schema: TableSchema) -> bool:
    """Whether DDL came into an incomplete first copy that has too few rows to be compared."""
    is_partial = staged.published is None and not staged.progress.splits.complete
    if not (is_partial and config.evolves and has_other_rows(staged, schema)):
        return False
    return config.asks or not _is_worth(source, staged, schema)
