"""Whether a new column may be one that the user leaves out, hides or renames in the copy, under another name."""

from collections.abc import Sequence

from lakeingest.core.ddl.new_names import revealed, unnamed
from lakeingest.core.tables.schema import TableSchema
from lakeingest.errors import SchemaChanged
from lakeingest.pipeline.run.table_run import TableRun


def assert_names_known(table: TableRun, current: TableSchema) -> None:
    """Raise SchemaChanged if a new column of the source may be a column that the user does not want copied as it is.

    The user leaves out, hides or renames that column in the copy, and it may have got another name at the source. Only
    a person can tell this, so no run copies the new column before a person has. `current`: the source's definition.
    """
    if names := revealed(table.schema, current):
        raise _may_be_hidden(table, names)
    if names := unnamed(table.schema, current):
        raise _may_lose_name(table, names)


def _may_be_hidden(table: TableRun, names: Sequence[str]) -> SchemaChanged:
    """The error for a table whose new columns may have values that the user leaves out or hides."""
    columns = ", ".join(names)
    return SchemaChanged(
        f"{table.id}: a column that tables.options leaves out or hides is gone, and {columns} may be that column under"
        f" another name; name {columns} in `columns`, too, or let `lakeingest resnapshot {table.id}` copy it as it is"
    )


def _may_lose_name(table: TableRun, names: Sequence[str]) -> SchemaChanged:
    """The error for a table whose new columns may be columns to which the user gave other names in the copy."""
    columns = ", ".join(names)
    renamed = ", ".join(
        f"{column.renamed_from}: {column.name}" for column in table.schema.columns if column.renamed_from
    )
    return SchemaChanged(
        f"{table.id}: a column that tables.options renames ({renamed}) is gone, and {columns} may be that column; name"
        f" the new column in `rename`, or let `lakeingest resnapshot {table.id}` copy {columns} by that name"
    )
