"""Halts: the DDL of a table in the spool. No merge of the table crosses a halt. The copy's rows are lifted at a halt.

The segments after a halt do not watch the table until they are read again with the table's next definition.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.ddl.alteration import Alteration
from lakeingest.core.ddl.lift import Lift
from lakeingest.core.tables.schema import TableId
from lakeingest.spool.followed import Followed
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Halt:
    """An alteration of a table, with the positions before and after it.

    `ddl` names the statement: its GTID, or its place if it has none.
    """

    before: Position
    after: Position
    alteration: Alteration
    ddl: str

    def __str__(self) -> str:
        place = str(self.before.at)
        return f"DDL {self.ddl}{'' if self.ddl == place else f' at {place}'} ({self.alteration.statement})"


def halts(spool: Spool, table: TableId, after: Place) -> list[Halt]:
    """The alterations of a table after this place, in order."""
    return [
        Halt(start, stop, segment.alterations[table], str(segment.gtids) or str(start.at))
        for _, start, segment, stop in spool.parts()
        if table in segment.alterations and stop.place > after
    ]


def note_followed(spool: Spool, halt: Halt, lift: Lift, fills: Mapping[str, pa.Scalar]) -> None:
    """Store how the copy is lifted at a halt, for readers of the changelog. `fills`: the values of new columns.

    Nothing is stored if the spool does not have the halt any more.
    """
    table = lift.before.table
    for number, start, segment, stop in spool.parts():
        if start.place == halt.before.place and table in segment.alterations:
            ddl_transaction = None if stop.history is None else stop.history.last
            followed = Followed.of(lift, fills, ddl_transaction, spool.folder / segment.transactions)
            spool.follow(number, table, followed)
            return


def unwatched_segments(spool: Spool, table: TableId, after: Place, stop: Place) -> dict[int, Segment]:
    """The segments that have a part between `after` and `stop`, and do not watch the table, by their numbers."""
    return {
        number: Segment.after(start, end.at)
        for number, start, segment, end in spool.parts()
        if table not in segment.tables and end.place > after and start.place < stop
    }


def is_watched_to_halt(spool: Spool, table: TableId, after: Place) -> bool:
    """True if the spool lacks changes of the table after `after`, and the table has a halt before the first of them.

    Then the missing changes are still to be read, with the definition after the halt. False if there is no such halt,
    if the spool lacks no change, or if `after` is not in the spool.
    """
    if not spool.start <= after <= spool.position.place:
        return False
    has_halt = False  # whether this segment or an earlier one alters the table
    for _, _, segment, stop in spool.parts():
        has_halt = has_halt or table in segment.alterations
        lacks_changes = stop.place > after and table not in segment.tables
        if lacks_changes:  # this is the first such segment
            return has_halt
    return False
