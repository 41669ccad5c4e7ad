"""The port for foreign tables, which other tools made, and which become copies (`tables.startup: adopt`).

A foreign table is taken over in one commit on staging, which readers do not see. From then on it is a copy with a gap:
all its rows are compared with the source before the first publish (`core.copies.startup`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableSchema
from lakeingest.lake.target import Staged


@dataclass(frozen=True, slots=True)
class Foreign:
    """A foreign table that can be taken over.

    `version`: its last commit, which readers see. `rows`: the rows in its files, deleted ones included.
    `equality_deletes`: the number of its files that delete rows by values. `dropped`: its columns that the copy does
    not have. `added`: the columns of the copy that it lacks. `widened`: its columns that get another type, which can
    hold each of their values. `stopped`: the tool that the user has named as stopped. `changed`: when the last commit
    was made, in seconds since 1970 by the tool's clock. `is_begun`: a run has taken the table over before, and someone
    has removed the table's branch since then.
    """

    name: str
    version: int
    rows: int
    equality_deletes: int
    dropped: tuple[str, ...]
    added: tuple[str, ...]
    widened: tuple[str, ...]
    stopped: str
    changed: float
    is_begun: bool = False

    @property
    def notes(self) -> Iterator[str]:
        """What becomes of the table's columns and deletes, in words."""
        if self.dropped:
            yield f"its columns {', '.join(self.dropped)} are dropped"
        if self.added:  # the comparison writes each row that has a value there in the source
            yield f"it lacks {', '.join(self.added)}, so most rows are written"
        if self.widened:
            yield f"{', '.join(self.widened)} get a wider type"
        if self.equality_deletes:
            yield f"{self.equality_deletes:,} files of deletes by values become deletes by position"


class ForeignTables(Protocol):
    """Finds foreign tables, and takes them over."""

    def find(self, schema: TableSchema) -> Foreign | None:
        """The foreign table that has the name of the copy; None if there is no such table, or if it is a copy of ours.

        Nothing is changed. Raises NotOurTable if the table cannot be taken over, or if the user does not want that.
        """

    def take_over(self, schema: TableSchema, progress: Callable[[int], Progress]) -> Staged:
        """Take over the table in one commit on staging. `progress` gets the number of rows, and returns the progress.

        Readers see the rows and columns of the other tool until the first publish.

        Raises:
            NotOurTable: as `find` does.
            ForeignWrite: the other tool commits during the call.
            StaleWriter: another run takes the table over first, or it is gone.

        """
