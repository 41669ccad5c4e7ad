"""Whether a run copies a table once more, after it met DDL that the copy cannot follow."""

import enum
from dataclasses import dataclass

TRIES_MAX = 5  # recopies of a table because of DDL until readers see it; a table that is altered more often stops


class Recopy(enum.Enum):
    """The decision for a table."""

    NO = "it stays stopped"
    SHOWN = "readers see the rows that the run was to bring: the next run handles the DDL"
    YES = "its rows are read again"


@dataclass(frozen=True, slots=True)
class Altered:
    """A table that has stopped, and has a copy.

    `by_ddl`: it stopped at DDL in the binlog. `by_definition`: it stopped because its definition differs from that of
    the copy. `complete`: readers see the copy, and it is not being started over. `restarted`: the copy is being started
    over. `paused`: somebody has paused it. `recopies`: how often it was copied again since readers saw it. `shown`:
    readers see it as of the place that the run is to reach, or later.
    """

    by_ddl: bool
    by_definition: bool
    complete: bool
    restarted: bool
    paused: bool
    recopies: int
    shown: bool

    @property
    def is_altered(self) -> bool:
        """Whether it stopped because of DDL.

        If its definition differs from that of a complete copy, that is not certain: `tables.options` may have changed.
        """
        return self.by_ddl or (self.by_definition and not self.complete)


def recopy(table: Altered, *, follows: bool, asks: bool) -> Recopy:
    """The decision for a table. `follows`: the configuration follows DDL; `asks`: a person has to approve DDL.

    With `asks`, a copy that was being started over when more DDL came is left to a person. Without the answer SHOWN,
    DDL that keeps coming would keep a run from ending.
    """
    if not table.is_altered or not follows or table.paused or table.recopies >= TRIES_MAX:
        return Recopy.NO
    if asks and table.restarted:
        return Recopy.NO
    return Recopy.SHOWN if table.shown else Recopy.YES
