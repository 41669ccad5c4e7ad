"""Loading: the lake says of each table where its copy stands, and how its rows are defined."""

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

    `schemas`: by which definition the rows of each table are read, which is that of its copy. A table whose definition
    is missing can only be copied again, or is of another pipeline. `staged`: the staged state of each table, None for a
    new table; it is missing where the copy cannot be loaded or continued. `failed`: why it cannot. `altered`: what the
    source says now of tables that DDL has changed since their copy; the binlog tells how one becomes the other.
    """

    schemas: Mapping[TableId, TableSchema]
    staged: Mapping[TableId, Staged | None]
    failed: Mapping[TableId, LakeIngestError]
    altered: Mapping[TableId, TableSchema]


def load_tables(config: Config, source: BinlogSource, target: Target, defined: Mapping[TableId, TableSchema]) -> Loaded:
    """Ask the lake for the copies of these tables, which are so defined now."""
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
    """Whether a copy that cannot be continued is more than a few chunks that nobody has seen."""
    return staged is not None and (staged.published is not None or _is_worth(source, staged, schema))


def _is_worth(source: BinlogSource, staged: Staged, schema: TableSchema) -> bool:
    return unless_away(source, True, partial(is_worth_comparing, source, staged, schema))


def unless_away(source: BinlogSource, unknown: Answer, ask: Callable[[], Answer]) -> Answer:
    """The source's answer to a question about one table; `unknown` if other sessions lock it, or DDL has dropped it.

    The table then stops when the run reads its rows.
    """
    try:
        with source.named_errors():
            return ask()
    except LakeIngestError as error:
        if error.scope is not Scope.TABLE:
            raise
        return unknown


def _is_begun_in_vain(config: Config, source: BinlogSource, staged: Staged, schema: TableSchema) -> bool:
    """Whether DDL came into a first copy, of which too little is there to be compared."""
    is_partial = staged.published is None and not staged.progress.splits.complete
    if not (is_partial and config.evolves and has_other_rows(staged, schema)):
        return False
    return config.asks or not _is_worth(source, staged, schema)
