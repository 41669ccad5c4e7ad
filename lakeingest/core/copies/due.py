"""Which copies are due: for a merge and a publish, or for a new position."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakeingest.core.tables.schema import TableId

QUIET_SECONDS = 180.0  # the position of a table without changes lags this much


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a complete copy is, and how long ago the run worked on it.

    `unseen`: readers do not see the copy yet.
    `behind`: the spool ends after the position of the copy.
    `has_changes`: the spool has changes of the table to merge, or DDL over which to lift its rows; always False for an
    unseen copy.
    `idle_seconds`: how many seconds ago the run last worked on the copy.
    `needs_commit`: if the table is quiet, its new position must be committed; if False, it is only noted.
    """

    table: TableId
    unseen: bool
    behind: bool
    has_changes: bool
    idle_seconds: float
    needs_commit: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether only a new position is due for the copy."""
        return self.behind and not (self.unseen or self.has_changes) and self.idle_seconds > QUIET_SECONDS


def due(copies: Sequence[Standing]) -> list[TableId]:
    """The tables to work on, in this order: unseen copies, copies with changes, quiet tables.

    Of the quiet tables that need a commit, only the table that has waited longest is due, so that a round stays short.
    """
    unseen = [copy.table for copy in copies if copy.unseen]
    busy = [copy.table for copy in copies if copy.behind and copy.has_changes and not copy.unseen]
    quiet = [copy for copy in copies if copy.is_quiet]
    to_note = [copy.table for copy in quiet if not copy.needs_commit]
    to_commit = sorted((copy for copy in quiet if copy.needs_commit), key=lambda copy: -copy.idle_seconds)
    return [*unseen, *busy, *to_note, *(copy.table for copy in to_commit[:1])]
