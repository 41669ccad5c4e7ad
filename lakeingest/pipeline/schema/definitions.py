"""Definitions: the one that the rows of a copy have, compared with the current one on the server."""

from lakeingest.config import Config
from lakeingest.core.schema import TableSchema
from lakeingest.errors import SchemaChanged
from lakeingest.files.file import state_of
from lakeingest.lake.target import Publishing, Staged
from lakeingest.pipeline.publishing.publish import DEFINITION
from lakeingest.state.definition import definition_of, restore_definition


def restore_from_lake(config: Config, target: Publishing, staged: Staged) -> None:
    """If the state folder was lost, restore the definition of the rows from the last publish."""
    table, fingerprint = staged.progress.table, staged.progress.fingerprint
    if staged.published is not None and definition_of(state_of(config), table, fingerprint) is None:
        restore_definition(state_of(config), table, fingerprint, target.properties(table).get(DEFINITION, ""))


def as_copied(config: Config, staged: Staged, schema: TableSchema) -> TableSchema:
    """The definition by which the rows of the copy are read; `schema` is the current one.

    It is the stored definition of the copy. If only the layout has changed since, the stored layout counts: by it, rows
    in the binlog are read that name no columns and come before the DDL. An incomplete copy that may be read again has
    the current definition. Raises SchemaChanged if the copy cannot follow to the current one.
    """
    if staged.progress.fingerprint == schema.fingerprint:
        stored = definition_of(state_of(config), schema.table, schema.fingerprint)
        if stored is None:
            return schema.laid_out()
        return schema.laid_out(stored) if stored.reads_as(schema) else stored
    if config.evolves and not config.asks and not staged.progress.splits.complete:
        return schema  # its rows were being read again, and are once more
    stored = definition_of(state_of(config), schema.table, staged.progress.fingerprint)
    is_ddl = stored is not None and stored.choices == schema.choices
    if stored is None or not is_ddl or not config.evolves or not staged.progress.splits.complete:
        assert_unchanged(staged, schema)
        raise RuntimeError(f"{schema.table}: its definition is unchanged, and is not")
    return stored


def has_other_rows(staged: Staged, schema: TableSchema) -> bool:
    """Whether the rows of the copy have another definition than this one."""
    return staged.progress.fingerprint != schema.fingerprint


def assert_unchanged(staged: Staged, schema: TableSchema) -> None:
    """Raise SchemaChanged unless the table still has the definition of its copy."""
    if has_other_rows(staged, schema):
        raise SchemaChanged(
            f"{schema.table}: DDL or tables.options changed its definition since it was copied; it must be copied again"
        )
