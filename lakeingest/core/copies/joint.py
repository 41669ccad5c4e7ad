"""Joint publishes: which tables are shown in one commit of the catalog, and how many tables a catalog takes at once."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from lakeingest.core.tables.schema import TableId

MOST = 200  # tables in one commit: the metadata of all of them are in memory until the commit
LEAST = 2  # fewer are not several
REFUSALS = 3  # in a row, until a commit has half as many tables


@dataclass(frozen=True, slots=True)
class Limit:
    """How many tables are shown in one commit. `refusals`: how many commits of several tables were refused in a row.

    A refusal counts only if nobody else has changed a table of the commit since the commit was prepared. Without such a
    change, the server may refuse the request for its size, or it may refuse all requests of this kind.
    """

    most: int = MOST
    refusals: int = 0

    @property
    def ends_joint(self) -> bool:
        """Whether there are no joint publishes any more: from now on, each table is published by itself."""
        return self.most < LEAST

    def taken(self) -> "Limit":
        """The limit after a commit that took effect."""
        return Limit(self.most)

    def refused(self, tables: int, *, for_good: bool) -> "Limit":
        """The limit after a refused commit of `tables` tables. `for_good`: the server does not know such requests."""
        if for_good:
            return Limit(0)  # fewer than LEAST: no joint publishes
        if self.refusals + 1 < REFUSALS:
            return Limit(self.most, self.refusals + 1)
        return Limit(tables // 2)


def first_batch(
    tables: Sequence[TableId], parents_of: Callable[[TableId], Collection[TableId]], most: int
) -> list[TableId]:
    """The tables of the first commit, at most `most`, in their order. `tables` has parents before their children.

    Tables that are connected by foreign keys, directly or through other tables in `tables`, are a family. A family of
    up to `most` tables is in the batch as a whole, or not at all. A larger family is divided if it comes first.
    """
    batch = set[TableId]()
    for family in _families(tables, parents_of):
        if len(batch) + len(family) <= most:
            batch.update(family)
        elif not batch:  # a larger family: its first tables
            batch.update(family[:most])
    return [table for table in tables if table in batch]


def generations(tables: Sequence[TableId], parents_of: Callable[[TableId], Collection[TableId]]) -> list[list[TableId]]:
    """The tables, in the same order, divided into groups so that no table is in the group of one of its parents.

    `tables` has parents before their children.
    """
    groups = list[list[TableId]]()
    for table in tables:
        if groups and set(parents_of(table)).isdisjoint(groups[-1]):
            groups[-1].append(table)
        else:
            groups.append([table])
    return groups


def _families(tables: Sequence[TableId], parents_of: Callable[[TableId], Collection[TableId]]) -> list[list[TableId]]:
    """The families of the tables, in the order of their first tables. In each family, the order is that of `tables`."""
    relatives: dict[TableId, set[TableId]] = {table: set() for table in tables}
    for child in tables:
        for parent in parents_of(child):
            if parent in relatives:
                relatives[child].add(parent)
                relatives[parent].add(child)
    families, placed = list[list[TableId]](), set[TableId]()
    for table in tables:
        if table in placed:
            continue
        family, waiting = {table}, [table]
        while waiting:
            found = relatives[waiting.pop()] - family
            family |= found
            waiting += found
        placed |= family
        families.append([each for each in tables if each in family])
    return families
