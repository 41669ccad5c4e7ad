"""Collapse: the last change row of each key. `spool.collapse` is the fast form, which tests hold equal to this."""

from collections.abc import Iterable

from lakeingest.core.tables.change import ChangeRow
from lakeingest.core.tables.keys import Key


def collapse(changes: Iterable[ChangeRow]) -> dict[Key, ChangeRow]:
    """The last change row of each key in the order of the binlog. If `kind.is_delete`, the key is deleted."""
    last: dict[Key, ChangeRow] = {}
    for change in changes:
        seen = last.get(change.key)
        if seen is None or seen.order < change.order:
            last[change.key] = change
    return last
