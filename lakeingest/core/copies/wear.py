"""Wear: publishes leave small files and deleted rows in a copy, which make it slower to read.

A worn copy is tidied without being asked: files are written anew. Each commit gives a credit for that, in rows, which
costs a few hundredths of the CPU seconds of a publish. A tidying spends the credit. So a copy that is published
often is tidied often, and none is written anew again and again for its last few changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LOOK_EVERY = 32  # commits: only after so many it is looked whether the copy is worn, because a look takes time, too
ROWS_A_COMMIT = 2_000  # may be written anew for each commit of the copy
ROWS_A_DEAD = 3  # may be written anew for each deleted row that this removes
MOST_ROWS = 1_000_000  # written anew at once: publishes wait for that
DEAD_PART = 0.01  # a file is worth writing anew, without its dead rows, from this share of them on


@dataclass(frozen=True, slots=True)
class Wear:
    """How worn a copy is.

    `commits`: how many commits have given a credit that is not spent. `files`: of rows. `rows`: in these files, also
    dead ones. `dead`: the deleted rows among them.
    """

    commits: int
    files: int
    rows: int
    dead: int

    def needs_look(self, small: int) -> bool:
        """Whether to look now at the files of the copy, one by one. `small`: a file with fewer rows is a small one."""
        is_turn = self.commits > 0 and self.commits % LOOK_EVERY == 0
        return is_turn and (self.dead > 0 or self.rows < small * self.files)

    def chosen(self, groups: Sequence["Group"]) -> list[int]:
        """The numbers of the groups that the credit suffices for, those with the largest share of dead rows first."""
        credit, left, numbers = self.commits * ROWS_A_COMMIT, MOST_ROWS, list[int]()
        for number in sorted(range(len(groups)), key=lambda number: -groups[number].share):
            group = groups[number]
            if group.cost <= credit and group.rows <= left:
                credit, left = credit - group.cost, left - group.rows
                numbers.append(number)
        return numbers

    def left_after(self, groups: Sequence["Group"]) -> int:
        """`commits` after these groups were written anew."""
        cost = sum(group.cost for group in groups)
        return max(0, self.commits - -(-cost // ROWS_A_COMMIT))


@dataclass(frozen=True, slots=True)
class Group:
    """Files that can be written anew as one: their rows, also dead ones, and the dead ones among them."""

    rows: int
    dead: int

    @property
    def share(self) -> float:
        """The share of dead rows."""
        return self.dead / max(1, self.rows)

    @property
    def cost(self) -> int:
        """The credit that it takes, in rows."""
        return max(0, self.rows - ROWS_A_DEAD * self.dead)
