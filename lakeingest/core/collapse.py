"""Collapse: of many change rows the last of each key. `spool.collapse` has the form for volume, held equal."""

from collections.abc import Iterable

from lakeingest.core.change import ChangeRow
from lakeingest.core.keys import Key


def collapse(changes: Iterable[ChangeRow]) -> dict[Key, ChangeRow]:
    """Per key the last row in the order of the binlog: an upsert, or a delete where its kind says so."""
    last: dict[Key, ChangeRow] = {}
    for change in changes:
        seen = last.get(change.key)
        if seen is None or seen.order < change.order:
            last[change.key] = change
    return last
