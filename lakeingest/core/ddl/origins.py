"""Origins: for each column of the current definition, which column of an older definition it comes from.

The DDL between the two definitions, read backwards, tells the origins. A barrier may rename columns in ways that could
not be read, so a column without a known change is taken to keep its name. A wrong origin costs only time, because the
rows of such a copy are compared with the source, or all rows are read again.
"""

from collections.abc import Mapping, Sequence

from lakeingest.core.ddl.alteration import Act, Alteration
from lakeingest.core.tables.schema import TableSchema

Origins = Mapping[str, str | None]  # for each column its name in the older definition; None: the column is new


def origins(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> Origins:
    """The origins of the columns of `now` in `before`. `alterations`: from `before` to `now`, the oldest first.

    If two columns seem to come from one column, some DDL is unknown: then all columns are matched by name.
    """
    old_names = {column.source_name.casefold(): column.name for column in before.columns}
    names_before = {  # at the source; '' finds no old column
        column.name: _name_before(column.source_name, alterations) or "" for column in now.columns
    }
    by_ddl = {name: old_names.get(name_before.casefold()) for name, name_before in names_before.items()}
    used = [old_name for old_name in by_ddl.values() if old_name is not None]
    if len(set(used)) < len(used):
        return {column.name: old_names.get(column.source_name.casefold()) for column in now.columns}
    return by_ddl


def _name_before(name: str, alterations: Sequence[Alteration]) -> str | None:
    """The name of a column before all these alterations; None if one of them has added it."""
    for alteration in reversed(alterations):
        # a dropped column of this name was another one
        kept = [change for change in alteration.changes if change.act is not Act.DROP]
        of_column = [change for change in kept if change.to.casefold() == name.casefold()]
        if any(change.act is Act.ADD for change in of_column):
            return None
        # a new definition may give the column a new name, too
        renames = [change for change in of_column if change.act is Act.RENAME or change.name != change.to]
        if renames:
            name = renames[0].name
    return name
