"""New columns that may be renamed old columns, for which the user's choice of columns no longer holds."""

from lakeingest.core.tables.schema import TableSchema


def revealed(before: TableSchema, now: TableSchema) -> tuple[str, ...]:
    """The columns of `now` that may be renamed columns whose old names the user leaves out or hides.

    If the source still has each column of `before` that the user leaves out or hides, the result is empty. Otherwise it
    has all new columns that the user neither hides nor includes by name, because nobody can tell from two definitions
    whether a column was renamed.
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
    """The columns of `now` that may be renamed columns which lose the name that the user gave to them in the copy.

    A column of `before` has lost the name that the user gave to it if it is no longer at the source, and no column has
    this name in the copy now. If no column has lost its name, the result is empty. Otherwise it has all new columns to
    which the user gives no name, because nobody can tell from two definitions whether a column was renamed.
    """
    old, new = (_all_names(schema) for schema in (before, now))
    gone = (column for column in before.columns if column.renamed_from and column.source_name.casefold() not in new)
    if all(column.name in now.names for column in gone):
        return ()
    return tuple(column.name for column in now.columns if not column.renamed_from and column.name.casefold() not in old)


def _all_names(schema: TableSchema) -> set[str]:
    """The names of all columns at the source, also of those that are left out, casefolded."""
    return {name.casefold() for name in (*schema.source_names, *schema.skipped)}
