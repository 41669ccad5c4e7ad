"""Whether a copy that DDL came into, and that cannot follow it, is copied once more by the run that met it."""

import enum
from dataclasses import dataclass

TRIES_MAX = 5  # to copy a table again because of DDL until readers see it; one that is altered more often stops


class Recopy(enum.Enum):
    """What becomes of a table."""

    NO = "it is as it was"
    SHOWN = "readers see what the run was to bring: the DDL is left to the next run"
    YES = "its rows are read again"


@dataclass(frozen=True, slots=True)
class Altered:
    """A table that has stopped, and has a copy.

    `by_ddl`: it stopped at DDL in the binlog. `by_definition`: it stopped because it is not defined as it was copied.
    `complete`: readers see the copy, and it is not being started over. `recopies`: how often it was copied again since
    readers saw it. `shown`: readers see it as of the place that the run is to reach, or later.
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
        """Whether DDL is why it stopped.

        A definition that differs from that of a complete copy is not enough: `tables.options` may have changed it.
        """
        return self.by_ddl or (self.by_definition and not self.complete)


def recopy(table: Altered, *, follows: bool, asks: bool) -> Recopy:
    """What becomes of the table where the configuration `follows` DDL, and `asks` a person to approve it.

    If DDL is to be approved, a person decides about a copy that was being started over when there was more DDL. Without
    SHOWN, DDL that keeps coming would keep a run going.
    """
    if not table.is_altered or not follows or table.paused or table.recopies >= TRIES_MAX:
        return Recopy.NO
    if asks and table.restarted:
        return Recopy.NO
    return Recopy.SHOWN if table.shown else Recopy.YES
