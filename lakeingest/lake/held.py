"""The port for audits, which each lake format implements: what a commit holds is read back before readers see it.

The commit says which files it has, and how many rows are in each; everything else is read from the files. On Hudi the
commit is made after the audit, so the audit takes these names and numbers from the list that will become the commit.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np


class HeldFile(Protocol):
    """A data file of a commit. What reads the file raises StateUnreadable if the file is missing or damaged.

    It raises ForeignWrite if the file is of another format. `count`, `keys` and `first_rows` read the file, and `rows`
    may; `may_have` does not.
    """

    @property
    def name(self) -> str:
        """The file's name or path."""

    @property
    def is_new(self) -> bool:
        """Whether readers do not see the file yet."""

    @property
    def rows(self) -> int:
        """The number of rows that the commit states for the file, deleted rows included."""

    def count(self) -> int:
        """The number of rows that the file itself states, deleted rows included."""

    def may_have(self, keys: pa.Table) -> "np.ndarray":
        """For each key, whether the commit says that the file may have a row with this key."""

    def keys(self, names: Sequence[str]) -> pa.Table:
        """The columns `names` of the rows that are not deleted, in the order of the file."""

    def first_rows(self, names: Sequence[str], most: int) -> pa.Table:
        """The columns `names` of the rows that are not deleted, among about the first `most` rows of the file."""


class Held(Protocol):
    """A commit that readers do not see yet."""

    @property
    def files(self) -> Sequence[HeldFile]:
        """All files of rows; those of deletes are not among them."""

    def faulty_deletes(self) -> Sequence[str]:
        """The faults of new files of deletes, such as a position beyond the end of a file; empty if there are none.

        Raises as HeldFile if a file of deletes is missing or damaged.
        """


Auditing = Callable[[Held], None]  # raises AuditFailed if readers must not see the commit


def unaudited(_: Held) -> None:
    """The audit of a publish whose caller wants none."""
