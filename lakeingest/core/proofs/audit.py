"""The audit of a commit before readers see it: how much of it is read back, and what must hold for the rows in it.

The changes in the spool are the truth: the last change of a key up to the commit's position is the row that readers
must get. The audit believes nothing that the writers of the commit have counted or returned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

SHARE = 0.1  # the audits of a table take at most about this share of the time of its merges and publishes
LEAST_ROWS = 20_000  # an audit reads at least about so many rows, however short the publish was
MOST_ROWS = 5_000_000  # an audit in full reads about so many rows: their keys take some 300 MB
MOST_CHANGES = 2_000_000  # an audit compares at most about so many changes: their keys take some 300 MB
HOUR, DAY = 3_600.0, 86_400.0  # seconds between audits in full


def is_full_due(seconds_since: float | None, run_seconds: float) -> bool:
    """Whether a table's next audit is one in full: each hour in a run that lasts for hours, else each day.

    `seconds_since`: since the last audit in full, or else since the first publish; None if unknown. `run_seconds`: how
    long the run has lasted.
    """
    return seconds_since is None or seconds_since >= (HOUR if run_seconds >= HOUR else DAY)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a table's audits in this run.

    `rows`, `seconds`: of the last audit. `publish_seconds`: of the last publish, with its audit and the merges before
    it. `merge_seconds`: of the merges since that publish. `owed`: the seconds by which all audits have exceeded their
    share.
    """

    rows: int = 0
    seconds: float = 0.0
    publish_seconds: float = 0.0
    merge_seconds: float = 0.0
    owed: float = 0.0

    @property
    def most_rows(self) -> int:
        """The number of rows that the next audit may read; 0: the next publish has no audit."""
        if self.owed > 0:
            return 0
        if not self.seconds:  # before the first audit
            return LEAST_ROWS
        rows_per_second = self.rows / self.seconds  # of the last audit
        return max(LEAST_ROWS, int(SHARE * self.publish_seconds * rows_per_second))

    def audited(self, rows: int, seconds: float) -> "Cost":
        """The cost after one more audit."""
        return replace(self, rows=rows, seconds=seconds, owed=self.owed + seconds)

    def merged(self, seconds: float) -> "Cost":
        """The cost after one more merge."""
        return replace(self, merge_seconds=self.merge_seconds + seconds)

    def published(self, seconds: float) -> "Cost":
        """The cost after one more publish. `seconds`: of the publish, with its audit if it had one."""
        together = self.merge_seconds + seconds
        return replace(self, publish_seconds=together, merge_seconds=0.0, owed=max(0.0, self.owed - SHARE * together))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file of the commit that could be read. `is_new`: readers do not see it yet. `rows`: its number of rows."""

    is_new: bool
    rows: int


def chosen(files: Sequence[Candidate], most: int) -> list[int]:
    """The numbers of the files to read, with at most `most` rows together, new files first. `files`: in random order.

    The first new file and the first old file are always chosen, however many rows they have.
    """
    numbers: list[int] = []
    remaining = most
    for takes_new in (True, False):
        is_first = True
        for number, file in enumerate(files):
            if file.is_new == takes_new and (is_first or file.rows <= remaining):
                numbers.append(number)
                remaining -= file.rows
                is_first = False
    return numbers


@dataclass(frozen=True, slots=True)
class KeyLook:
    """How often a key that has a change in the spool is in the files that were read.

    `is_gone`: its last change deletes its row. `may_lack`: its last change marks its row as deleted. The files may lack
    this row, because a chunk that was read after the change never had it. `times`: how many living rows have the key.
    `new_times`: how many of these rows are in new files. `is_searched`: every new file that may have the key was read.
    """

    is_gone: bool
    may_lack: bool
    times: int
    new_times: int
    is_searched: bool


def fault_of(look: KeyLook) -> str | None:
    """The fault of a changed key; None if no fault is known.

    Keys that several living rows have are found elsewhere, because that is checked for all keys that were read.
    """
    if look.is_gone:
        return "is still there, although its row was deleted" if look.times else None
    if look.is_searched and not look.new_times:
        missing = None if look.may_lack else "is missing"
        return "has its old row" if look.times else missing
    return None


def miscount(name: str, recorded: int, counted: int) -> str | None:
    """The fault of a file that has `counted` rows although the commit says `recorded`; None if both are equal."""
    return None if counted == recorded else f"{name} has {counted} rows, and the commit says {recorded}"


def differing_columns(expected: Mapping[str, Any], held: Mapping[str, Any]) -> list[str]:
    """The columns in which the row `held` by the copy differs from the row `expected` by the spool.

    Both rows have the same columns. Here NaN equals NaN.
    """
    return [name for name, value in expected.items() if not _is_same(value, held[name])]


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values have the same type and are equal. Here NaN equals NaN."""
    is_nan = value != value and other != other  # noqa: PLR0124 - true of NaN alone
    return bool(type(value) is type(other) and (value == other or is_nan))
