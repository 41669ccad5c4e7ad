"""Loading: the lake says for each table how far its copy is, and which definition its rows have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lakeingest.config import Config
from lakeingest.core.companions.companion import is_companion
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, NotOurCopy, NotOurTable, SchemaChanged, Scope
from lakeingest.lake.target import Looked, Staged, Target
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.schema.definitions import definition_to_read_by, has_other_rows, stored_definition
from lakeingest.side_by_side import side_by_side

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The copies of a run's tables, as the lake has them.

    `schemas`: the definition by which each table's rows are read, which is the definition of its copy. A table that is
    not in `schemas` can only be copied again, or its copy belongs to another pipeline.
    `staged`: the staged state of each table; None for a new table. A table whose copy cannot be loaded or continued is
    not in `staged`.
    `failed`: for each table whose copy cannot be loaded or continued, the reason.
    `altered`: for each table that DDL has changed since it was copied, its current definition. The binlog tells how the
    definition of the copy becomes the current one.
    """

    schemas: Mapping[TableId, TableSchema]
    staged: Mapping[TableId, Staged | None]
    failed: Mapping[TableId, LakeIngestError]
    altered: Mapping[TableId, TableSchema]


def load_tables(config: Config, source: BinlogSource, target: Target, defined: Mapping[TableId, TableSchema]) -> Loaded:
    """Ask the lake for the copies of these tables; `defined` has their current definitions.

    An incomplete first copy may be dropped because DDL has changed the table (`_is_worthless`).
    """
    schemas, altered = dict(defined), dict[TableId, TableSchema]()
    # Step 1: the copies in the lake. Of `known` copies, notes of an earlier run tell what a look would find
    known = target.unchanged(defined, whole=True)
    staged, failed = _answers(config, defined, partial(_copy, target, known))
    # Step 2: drop worthless copies. The source is asked, which has one connection: so one table after the other
    for table, copy in staged.items():
        try:
            if copy and _is_worthless(config, source, copy, defined[table]):
                target.discard(table)
                staged[table] = None
        except LakeIngestError as error:
            if error.scope is not Scope.TABLE:
                raise
            failed[table] = error

    # Step 3: the definitions by which rows are read
    def definition(table: TableId) -> TableSchema:
        """The definition by which the rows of a table with a copy are read."""
        copy = staged[table]
        assert copy is not None  # noqa: S101 - only tables with copies are asked
        stored = stored_definition(config, target, copy)
        return definition_to_read_by(config, copy, defined[table], stored)

    copied = [table for table, copy in staged.items() if copy is not None and table not in failed]
    definitions, errors = _answers(config, copied, definition)
    failed |= errors
    for table, schema in definitions.items():
        schemas[table] = schema
        if not schema.reads_as(defined[table]):
            altered[table] = defined[table]
    for table, reason in failed.items():
        staged.pop(table, None)
        if isinstance(reason, SchemaChanged | NotOurCopy):  # the spool need not watch the table
            del schemas[table]
    return Loaded(schemas, staged, failed, altered)


def _copy(target: Target, known: Mapping[TableId, Looked], table: TableId) -> Staged | None:
    """The copy of a table. Raises NotOurTable if a companion of another copy has the name."""
    staged = known[table].staged if table in known else target.recover(table)
    if staged is not None and is_companion(staged.progress):
        raise NotOurTable(
            f"{table}: lakeingest writes the lake's table of this name beside another copy; leave this one out by"
            " tables.exclude, or rename one of the two"
        )
    return staged


def _answers(
    config: Config, tables: Iterable[TableId], ask: Callable[[TableId], Answer]
) -> tuple[dict[TableId, Answer], dict[TableId, LakeIngestError]]:
    """The answer for each of the tables, and the errors of the tables whose question failed."""

    def answer_or_error(table: TableId) -> Answer | LakeIngestError:
        """The answer for the table, or an error that concerns only this table."""
        try:
            return ask(table)
        except LakeIngestError as error:
            if error.scope is not Scope.TABLE:
                raise
            return error

    all_tables = list(tables)
    results = side_by_side(answer_or_error, all_tables, config.target.tables_at_once)
    answers, errors = dict[TableId, Answer](), dict[TableId, LakeIngestError]()
    for table, result in zip(all_tables, results, strict=True):
        if isinstance(result, LakeIngestError):
            errors[table] = result
        else:
            answers[table] = result
    return answers, errors


def is_kept(source: BinlogSource, staged: Staged | None, schema: TableSchema) -> bool:
    """Whether a copy that cannot be continued is worth keeping: readers see it, or it has enough rows to compare.

    False if there is no copy. True if the table is locked or dropped, so that nobody can say how many rows it has.
    """
    return staged is not None and (staged.published is not None or _may_be_compared(source, staged, schema))


def _may_be_compared(source: BinlogSource, staged: Staged, schema: TableSchema) -> bool:
    """Whether a first copy has enough rows to be compared; True if the table cannot be asked about now."""
    return unless_table_fails(source, unknown=True, ask=partial(is_worth_comparing, source, staged, schema))


def unless_table_fails(source: BinlogSource, unknown: Answer, ask: Callable[[], Answer]) -> Answer:
    """The source's answer to a question about one table, or `unknown` if the table is locked or dropped.

    A locked or dropped table stops later, when the run reads its rows.
    """
    try:
        with source.named_errors():
            return ask()
    except LakeIngestError as error:
        if error.scope is not Scope.TABLE:
            raise
        return unknown


def _is_worthless(config: Config, source: BinlogSource, staged: Staged, schema: TableSchema) -> bool:
    """Whether an incomplete first copy is to be dropped because DDL has changed the table since the copy began.

    The copy is dropped if a person has to approve DDL, or if so few rows are copied that a comparison costs more than a
    new copy.
    """
    is_incomplete_first = staged.published is None and not staged.progress.splits.complete
    is_altered = config.evolves and has_other_rows(staged, schema)
    return is_incomplete_first and is_altered and (config.asks or not _may_be_compared(source, staged, schema))
