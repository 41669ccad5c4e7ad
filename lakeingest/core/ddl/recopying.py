"""Whether a run copies a table once more, after DDL that the table's copy cannot follow."""

import enum
from dataclasses import dataclass

TRIES_MAX = 5  # how often a table is copied again because of DDL until its next publish; then the table stays stopped


class Recopy(enum.Enum):
    """The decision for a table."""

    NO = "it stays stopped"
    SHOWN = "readers see the rows that the run was to bring: the next run handles the DDL"
    YES = "its rows are read again"


@dataclass(frozen=True, slots=True)
class Altered:
    """A table that has stopped and has a copy.

    `by_ddl`: it stopped at DDL in the binlog.
    `by_definition`: it stopped because its definition differs from that of the copy.
    `complete`: readers see the copy, and the copy is not being started over.
    `restarted`: the copy is being started over.
    `paused`: somebody has paused the table.
    `recopies`: how often the table was copied again because of DDL since its last publish.
    `shown`: readers see the table as of the place that the run is to reach, or later.
    `began_empty`: the copy began empty, so that it lacks rows by the user's choice.
    """

    by_ddl: bool
    by_definition: bool
    complete: bool
    restarted: bool
    paused: bool
    recopies: int
    shown: bool
    began_empty: bool = False

    @property
    def is_altered(self) -> bool:
        """Whether the table certainly stopped because of DDL.

        It stopped at DDL in the binlog, or its definition differs from that of a copy that is not `complete`. For a
        complete copy, another definition is no proof: `tables.options` may have changed.
        """
        return self.by_ddl or (self.by_definition and not self.complete)


def recopy(table: Altered, *, follows: bool, asks: bool) -> Recopy:
    """The decision for a table. `follows`: pipeline.yml lets runs follow DDL. `asks`: a person has to approve DDL.

    SHOWN: readers see the table as of the place that this run is to reach, or later. So this run does not read the
    rows again, and can end even if DDL comes again and again. A copy that began empty is not read again: it would get
    all rows of the source, for which only a person may ask.
    """
    if not table.is_altered or not follows or table.paused or table.began_empty or table.recopies >= TRIES_MAX:
        return Recopy.NO
    if asks and table.restarted:
        return Recopy.NO  # a person decides about more DDL that came while the copy was being started over
    return Recopy.SHOWN if table.shown else Recopy.YES
