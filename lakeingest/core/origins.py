"""Origins: for each column of the current definition, which column of an older definition it comes from.

The DDL between the two definitions tells it, read backwards. A barrier tells it only as far as it could be read; across
an unread one, columns keep their names. A wrong origin costs only time, because the rows of such a copy are compared
with the source, or all read again.
"""

from collections.abc import Mapping, Sequence

from lakeingest.core.alteration import Act, Alteration
from lakeingest.core.schema import TableSchema

Origins = Mapping[str, str | None]  # for each column its name before; None: it was not there


def origins(before: TableSchema, alterations: Sequence[Alteration], now: TableSchema) -> Origins:
    """The origins of the columns of `now` in `before`. `alterations` lie between the two, the oldest first.

    If two columns come from one, some DDL is unknown, and columns are matched by name.
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
