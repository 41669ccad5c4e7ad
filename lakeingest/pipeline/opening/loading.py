"""Loading: the lake says of each table where its copy stands, and how its rows are defined."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pymysql

from lakeingest.config import Config
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, NotOurCopy, SchemaChanged
from lakeingest.lake.target import Staged, Target
from lakeingest.mysql.connection import named_errors
from lakeingest.pipeline.joining.over_gap import is_worth_comparing
from lakeingest.pipeline.schema.definitions import as_copied, has_other_rows, restore_from_lake

Answer = TypeVar("Answer")


def load_tables(
    config: Config,
    connection: pymysql.Connection,
    target: Target,
    schemas: dict[TableId, TableSchema],
    altered: dict[TableId, TableSchema],
) -> tuple[dict[TableId, Staged | None], dict[TableId, LakeIngestError]]:
    """The staged state of each table, None for a new table; and for other tables why they cannot be loaded.

    Where DDL has changed the definition of a table since the copy, `schemas` gets the one that its rows have, and
    `altered` the new one: the binlog tells how one becomes the other. Where that one is not known, the table is removed
    from `schemas`: it can only be copied again. So is one of another pipeline, which needs no change of it from here.
    """
    loaded: dict[TableId, Staged | None] = {}
    failed: dict[TableId, LakeIngestError] = {}
    for table, schema in list(schemas.items()):
        try:
            staged = target.recover(table)
            if staged and _is_begun_in_vain(config, connection, staged, schema):
                target.discard(table)
                staged = None
            if staged:
                restore_from_lake(config, target, staged)
                known = schemas[table] = as_copied(config, staged, schema)
                if not known.reads_as(schema):
                    altered[table] = schema
            loaded[table] = staged
        except LakeIngestError as error:
            if not error.of_table:
                raise
            failed[table] = error
            if isinstance(error, SchemaChanged | NotOurCopy):
                del schemas[table]
    return loaded, failed


def is_kept(config: Config, connection: pymysql.Connection, staged: Staged | None, schema: TableSchema) -> bool:
    """Whether a copy that cannot be continued is more than a few chunks that nobody has seen."""
    return staged is not None and (staged.published is not None or _is_worth(config, connection, staged, schema))


def _is_worth(config: Config, connection: pymysql.Connection, staged: Staged, schema: TableSchema) -> bool:
    return unless_away(config, True, partial(is_worth_comparing, connection, staged, schema))


def unless_away(config: Config, unknown: Answer, ask: Callable[[], Answer]) -> Answer:
    """The source's answer to a question about one table; `unknown` if other sessions lock it, or DDL has dropped it.

    The table then stops when the run reads its rows.
    """
    try:
        with named_errors(config.source):
            return ask()
    except LakeIngestError as error:
        if not error.of_table:
            raise
        return unknown


def _is_begun_in_vain(config: Config, connection: pymysql.Connection, staged: Staged, schema: TableSchema) -> bool:
    """Whether DDL came into a first copy, of which too little is there to be compared."""
    is_partial = staged.published is None and not staged.progress.splits.complete
    if not (is_partial and config.evolves and has_other_rows(staged, schema)):
        return False
    return config.asks or not _is_worth(config, connection, staged, schema)
