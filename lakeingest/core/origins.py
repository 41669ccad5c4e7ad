"""Origins: which column of an older definition a column of now was, whatever it was called in between.

The statements between the two say it, from the last one back to the first. One that is a barrier says it only where it
could be read: across any other the columns keep their names. A wrong origin costs time alone, because the rows of such
a copy are compared with the source, or are all read again.
"""

from collections.abc import Mapping, Sequence

from lakeingest.core.alteration import Act, Alteration
from lakeingest.core.schema import TableSchema

Origins = Mapping[str, str | None]  # for each column its name before; None: it was not there


def origins(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> Origins:
    """The columns of `now`, through all alterations since `before`, the oldest first.

    By their names alone where the statements lead two columns to one: then some DDL is not known.
    """
    known = {name.casefold(): name for name in before.names}
    found = {name: known.get((_before(name, alterations) or "").casefold()) for name in now.names}
    was = [name for name in found.values() if name is not None]
    if len(set(was)) < len(was):
        return {name: known.get(name.casefold()) for name in now.names}
    return found


def _before(name: str, alterations: Sequence[Alteration]) -> str | None:
    """The name of a column before all these alterations; None if one of them has added it."""
    for alteration in reversed(alterations):
        changes = [one for one in alteration.changes if one.act is not Act.DROP]
        named = [one for one in changes if one.to.casefold() == name.casefold()]
        if any(one.act is Act.ADD for one in named):
            return None
        name = next((one.name for one in named if one.act is Act.RENAME or one.name != one.to), name)
    return name
