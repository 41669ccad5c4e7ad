"""New columns that may be old ones under another name, for which the user's choice of columns means something else."""

from lakeingest.core.schema import TableSchema


def revealed(before: TableSchema, now: TableSchema) -> tuple[str, ...]:
    """The columns of `now` that may be columns which the user leaves out or hides by name, under another name.

    They are all new columns that would be copied as they are, if the source has some such column of `before` no more:
    from two definitions nobody can tell a renamed column from a new one. Columns that the user includes by name are no
    such columns.
    """
    choice = now.choices.columns
    old, new = (_all_names(schema) for schema in (before, now))
    if not any(name.casefold() in old - new for name in (*choice.exclude, *choice.hash, *choice.mask)):
        return ()
    included = {name.casefold() for name in choice.include}
    return tuple(
        column.name
        for column in now.columns
        if not column.is_hidden and column.source_name.casefold() not in old | included
    )


def unnamed(before: TableSchema, now: TableSchema) -> tuple[str, ...]:
    """The columns of `now` that may be columns which have another name in the copy, and may lose that name.

    They are all new columns to which the user gives no name, if `before` has such a column that is gone at the source,
    and whose name in the copy no other column has. From two definitions nobody can tell a renamed column from a new
    one.
    """
    old, new = (_all_names(schema) for schema in (before, now))
    gone = (column for column in before.columns if column.renamed_from and column.source_name.casefold() not in new)
    if all(column.name in now.names for column in gone):
        return ()
    return tuple(column.name for column in now.columns if not column.renamed_from and column.name.casefold() not in old)


def _all_names(schema: TableSchema) -> set[str]:
    """The names of all columns at the source, also of those that are left out, as names are compared."""
    return {name.casefold() for name in (*schema.source_names, *schema.skipped)}
