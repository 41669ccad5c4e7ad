"""Which copies are due: for a merge and a publish, or for a new position."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.core.schema import TableId

QUIET_SECONDS = 180.0  # a table without changes lags this much


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a complete copy stands, and how long ago the run worked on it.

    `unseen`: nobody sees it yet as it was copied. `behind`: the spool goes on after its position. `has_changes`: there
    is something of the table to merge, or to lift its rows over; it is not asked of an unseen copy. `needs_commit`: a
    new position of the quiet table is to be committed, and not only noted in the state.
    """

    table: TableId
    unseen: bool
    behind: bool
    has_changes: bool
    idle_seconds: float
    needs_commit: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether only its position is due."""
        return self.behind and not (self.unseen or self.has_changes) and self.idle_seconds > QUIET_SECONDS


def due(copies: Sequence[Standing]) -> list[TableId]:
    """The tables to work on, in this order: unseen copies, those with changes, quiet tables.

    Of the quiet tables that need a commit only the one that has waited longest, so that a round stays short.
    """
    unseen = [one.table for one in copies if one.unseen]
    busy = [one.table for one in copies if one.behind and one.has_changes and not one.unseen]
    quiet = [one for one in copies if one.is_quiet]
    noted = [one.table for one in quiet if not one.needs_commit]
    committed = sorted((one for one in quiet if one.needs_commit), key=lambda one: -one.idle_seconds)
    return [*unseen, *busy, *noted, *(one.table for one in committed[:1])]
