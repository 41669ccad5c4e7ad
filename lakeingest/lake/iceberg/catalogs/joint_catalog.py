"""Catalogs that can commit several tables at once.

So no reader finds the commit of one of these tables without the commits of all others. A catalog in a database commits
the tables in one transaction. A REST catalog sends the request `transactions/commit`, if its server offers it. In this
case, it depends on the server whether readers may see a part of the commit for a moment.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit of one table: what it asserts and what it changes. `table` is the table on which it was prepared."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


class NotOffered(CommitFailedException):
    """The server does not have commits of several tables."""


class JointCatalog(ABC):
    """A catalog that may be able to commit several tables at once."""

    @property
    @abstractmethod
    def commits_together(self) -> bool:
        """Whether the catalog can commit several tables at once."""

    @abstractmethod
    def commit_tables(self, commits: Sequence[TableCommit]) -> None:
        """Commit all of these tables, or none of them. The tables exist, and no table is there twice.

        Raises NotOffered if the catalog cannot commit several tables; CommitFailedException if a requirement of one
        commit does not hold, or if someone else has committed. An error of another kind may come although the commits
        took effect.
        """
