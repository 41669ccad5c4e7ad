"""Definitions: the one that the rows of a copy have, beside the one of its table on the server."""

from lakeingest.config import Config
from lakeingest.core.schema import TableSchema
from lakeingest.errors import SchemaChanged
from lakeingest.files.file import state_of
from lakeingest.lake.target import Publishing, Staged
from lakeingest.pipeline.publishing.publish import DEFINITION
from lakeingest.state.definition import definition_of, restore_definition


def restore_from_lake(config: Config, target: Publishing, staged: Staged) -> None:
    """Where the state folder was lost, the last publish tells how the rows were defined."""
    table, fingerprint = staged.progress.table, staged.progress.fingerprint
    if staged.published is not None and definition_of(state_of(config), table, fingerprint) is None:
        restore_definition(state_of(config), table, fingerprint, target.properties(table).get(DEFINITION, ""))


def as_copied(config: Config, staged: Staged, schema: TableSchema) -> TableSchema:
    """The definition that the rows of the copy have; SchemaChanged where the copy cannot follow to the current one.

    Where the rows are not complete, and can have the current one, it is that one. The same definition has the layout of
    when they were read: without names in the binlog, the rows before DDL that changes only that are read by it.
    """
    if staged.progress.fingerprint == schema.fingerprint:
        known = definition_of(state_of(config), schema.table, schema.fingerprint)
        if known is None:
            return schema.laid_out()
        return schema.laid_out(known) if known.reads_as(schema) else known
    if config.evolves and not config.asks and not staged.progress.splits.complete:
        return schema  # its rows were being read again, and are once more
    known = definition_of(state_of(config), schema.table, staged.progress.fingerprint)
    is_ddl = known is not None and known.choices == schema.choices
    if known is None or not is_ddl or not config.evolves or not staged.progress.splits.complete:
        assert_unchanged(staged, schema)
        raise RuntimeError(f"{schema.table}: its definition is unchanged, and is not")
    return known


def has_other_rows(staged: Staged, schema: TableSchema) -> bool:
    """Whether the rows of the copy have another definition than this one."""
    return staged.progress.fingerprint != schema.fingerprint


def assert_unchanged(staged: Staged, schema: TableSchema) -> None:
    """SchemaChanged unless the table is still defined as its copy was made."""
    if has_other_rows(staged, schema):
        raise SchemaChanged(
            f"{schema.table}: DDL or tables.options changed its definition since it was copied; it must be copied again"
        )
