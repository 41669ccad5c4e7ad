"""Definitions: the definition of a copy's rows is compared with the server's current definition of the table."""

from lakeingest.config import Config
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import SchemaChanged
from lakeingest.files.file import state_of
from lakeingest.lake.target import Publishing, Staged
from lakeingest.pipeline.publishing.publish import DEFINITION
from lakeingest.state.definition import definition_of, restore_definition, with_layout


def stored_definition(config: Config, target: Publishing, staged: Staged) -> TableSchema | None:
    """The stored definition of the copy's rows; None if none is stored.

    If the state folder has lost it, it is first restored from the last publish.
    """
    table, fingerprint = staged.progress.table, staged.progress.fingerprint
    stored = definition_of(state_of(config), table, fingerprint)
    if stored is not None or staged.published is None:
        return stored
    restore_definition(state_of(config), table, fingerprint, target.properties(table).get(DEFINITION, ""))
    return definition_of(state_of(config), table, fingerprint)


def definition_to_read_by(
    config: Config, staged: Staged, schema: TableSchema, stored: TableSchema | None
) -> TableSchema:
    """The definition by which the rows of a copy are read.

    `schema` is the server's current definition of the table, `stored` the `stored_definition` of the copy.

    - The fingerprints of the copy and of `schema` are equal, so at most the layout has changed: `schema` with the
      stored layout, because rows in the binlog from before the DDL have this layout, and may not name their columns.
      If these rows cannot be read by `schema`: the stored definition. If none is stored: `schema` with an unknown
      layout.
    - DDL has changed the table, the copy is incomplete, and DDL is followed without an approval: `schema`. All rows are
      read again.
    - DDL has changed the table, the copy is complete, and DDL is followed, at once or after an approval: the stored
      definition. The copy is lifted later.

    In all other cases, SchemaChanged is raised: for example if the user's choices have changed, or if the user gives a
    column another name in the copy.
    """
    if staged.progress.fingerprint == schema.fingerprint:
        if stored is None:
            return schema.laid_out()  # nobody knows the layout of older rows
        return with_layout(schema, stored) if stored.reads_as(schema) else stored
    is_complete = staged.progress.splits.complete
    if not is_complete and config.evolves and not config.asks:
        return schema
    if stored is not None:
        _assert_same_names(stored, schema)
        is_changed_by_ddl_alone = stored.choices == schema.choices
        if is_complete and config.evolves and is_changed_by_ddl_alone:
            return stored
    assert_unchanged(staged, schema)  # raises SchemaChanged, because the fingerprints differ
    raise RuntimeError(f"{schema.table}: its definition has changed, and `assert_unchanged` did not find that")


def _assert_same_names(stored: TableSchema, schema: TableSchema) -> None:
    """Raise SchemaChanged if the user gives a column of the copy another name than the copy has."""
    name_in_copy = {column.source_name: column.name for column in stored.columns}
    changed = [
        f"{column.source_name} is {name} in the copy, and would be {column.name}"
        for column in schema.columns
        if (name := name_in_copy.get(column.source_name, column.name)) != column.name
    ]
    if changed:
        raise SchemaChanged(
            f"{schema.table}: tables.options → columns → rename was changed: {'; '.join(changed)}; undo that, or let"
            f" `lakeingest resnapshot {schema.table}` copy the table again"
        )


def has_other_rows(staged: Staged, schema: TableSchema) -> bool:
    """Whether the rows of the copy have another definition than `schema`."""
    return staged.progress.fingerprint != schema.fingerprint


def assert_unchanged(staged: Staged, schema: TableSchema) -> None:
    """Raise SchemaChanged if the table's definition is no longer that of its copy."""
    if has_other_rows(staged, schema):
        raise SchemaChanged(
            f"{schema.table}: DDL or tables.options changed its definition since it was copied; it must be copied again"
        )
