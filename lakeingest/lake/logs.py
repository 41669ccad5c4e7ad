"""Logs: tables of the lake to which rows are only added, such as a changelog as a table."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Protocol

from lakeingest.core.copies.progress import Progress
from lakeingest.core.ddl.lift import Lift
from lakeingest.lake.target import Staged, Writer, Written


class Logs(Protocol):
    """Adds rows to published tables of a `Target`, and lets readers see them in the same commit.

    Each method raises StaleWriter, MainMoved and ForeignWrite as `Target.publish` does.
    """

    def writer(self, staged: Staged, lift: Lift | None) -> Writer:
        """A writer of rows for the next `append`: with the columns after the lift or, without a lift, of `staged`."""

    def append(
        self,
        staged: Staged,
        files: Sequence[Written],
        progress: Progress,
        properties: Mapping[str, str],
        lift: Lift | None,
    ) -> Staged:
        """Add these files, give the table the columns after the lift, and let readers see both, all in one commit.

        The commit carries this progress, and the table gets these properties. A lift may give older rows NULL in new
        columns, and nothing else.
        """

    def remove_before(self, staged: Staged, name: str, day: date, progress_of: Callable[[int], Progress]) -> Staged:
        """Remove each file whose rows all have a time before this day (UTC) in the column `name`; no file is read.

        A file without statistics of the column stays. Readers see the removal at once. `progress_of` returns the new
        progress for the number of removed rows. Returns `staged` if there is nothing to do.
        """

    def combine(self, staged: Staged) -> Staged:
        """If there are many small files, put their rows into fewer files, within each partition.

        A reader of the rows that were added since a commit does not get the combined rows again. Returns `staged` if
        there is nothing to do.
        """
