"""Quarantine: rows that failed a gate leave the copy, so that the rest of the table can be published.

A key in quarantine has no row in the copy, not even the row that it had before. The list of these keys stands in the
progress of the commit that has removed their rows, so the list is always that of the rows which readers see. A key
leaves the list with the merge that applies a change of the key, because a change has the whole row: a change in the
binlog, or a row that was read again. The gate judges that row anew. TRUNCATE and a copy that is started over empty the
list.

    gate fails -> evidence is stored -> the rows are removed and listed, in one commit -> gate -> publish
    a change of a listed key is merged and the key freed, in one commit -> gate -> publish -> evidence is closed

The stored row is evidence for people only: it is never applied.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakeingest.core.tables.keys import Key
from lakeingest.core.tables.schema import TableId

MOST_CHARACTERS = 65_536  # of the listed keys in a commit: a table keeps dozens of commits with their progress


@dataclass(frozen=True, slots=True)
class Limit:
    """How many keys of a table may be in quarantine: at most `max_rows`, and at most `max_share` of its rows (0 to 1).

    One key is always allowed, however few rows the table has.
    """

    max_rows: int
    max_share: float

    def allows(self, listed: int, rows: int) -> bool:
        """Whether `listed` keys may be in quarantine. `rows`: the rows of the table, with those in quarantine."""
        return listed <= min(self.max_rows, max(1, int(self.max_share * rows)))


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed expectation. `rows`: how many rows fail; None if the expectation does not blame single rows."""

    name: str
    rows: int | None


def refusal(failed: Sequence[Failed], listed: Collection[Key], rows: int, limit: Limit) -> str | None:
    """Why the failing rows must not go into quarantine, as far as their number tells; None if they may.

    `listed`: the keys that are in quarantine already, which have none of the `rows` of the copy.
    """
    for each in failed:
        if each.rows is None:
            return f"{each.name} blames no single rows"
    least = max((each.rows or 0 for each in failed), default=0)  # several expectations may blame the same row
    return _beyond(len(listed) + least, rows + len(listed), limit)


def refusal_of_keys(failing: Collection[Key], listed: Collection[Key], rows: int, limit: Limit) -> str | None:
    """Why the rows of the `failing` keys must not go into quarantine; None if they may. `rows`: the copy's rows."""
    text = json.dumps([*listed, *failing])
    if len(text) > MOST_CHARACTERS:
        return f"the keys in quarantine would take more than {MOST_CHARACTERS:,} characters"
    return _beyond(len(listed) + len(failing), rows + len(listed), limit)


def _beyond(listed: int, rows: int, limit: Limit) -> str | None:
    """Why `listed` keys may not be in quarantine; None if they may be. `rows`: as in `Limit.allows`."""
    if limit.allows(listed, rows):
        return None
    return (
        f"{listed:,} rows would be in quarantine, and quality.quarantine allows {limit.max_rows:,},"
        f" and {limit.max_share:.4%} of the rows"
    )


def note_of_quarantine(table: TableId, count: int) -> str:
    """What `status` says about `count` keys of a table in quarantine."""
    return (
        f"{table}: {count} rows are in quarantine, and readers do not see them; `lakeingest quarantine list {table}`"
        " names them"
    )
