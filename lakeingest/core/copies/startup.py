"""How copies begin (`tables.startup`): which tables are copied only once, copies that begin empty, foreign tables.

A copy that begins empty at a place has no row there. It is defined as the copy of a table whose only chunk, of all
keys, was read at that place without a row. So all later steps are those of any copy: a merge applies each change after
the place, an update inserts its row if the copy has none, and the delete of an absent row changes nothing.

A foreign table is one that another tool made. Nobody knows as of which position its rows are. So it is defined as a
copy that goes on over a gap: its rows get the present position, and all of them are compared with the source before
readers see the first commit of ours.
"""

from collections.abc import Iterable
from dataclasses import replace

from lakeingest.core.binlog.position import Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.copies.signals import OPEN, Action, Signal
from lakeingest.core.tables.keys import EVERY_KEY
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.splits import Split
from lakeingest.core.waves.wave import MergePlan

_NEED_RUN = frozenset({Action.RESNAPSHOT, Action.MAINTAIN})  # only a run can carry them out, on a table of its own


def is_done(table: TableId, signals: Iterable[Signal], *, visible: bool) -> bool:
    """Whether the copy of a table that is copied only once is finished. Later runs then need no binlog for the table.

    `visible`: readers see the newest commit of the copy. This is False while a copy is incomplete or started over.
    A copy is not finished while a signal asks for a re-snapshot or for maintenance of it.
    """
    is_asked = any(signal.action in _NEED_RUN and signal.state in OPEN and signal.concerns(table) for signal in signals)
    return visible and not is_asked


def begun_empty(new: Progress, position: Position) -> Progress:
    """The first progress of a copy that begins empty at this position: it is level there, and has no row.

    `new`: the progress before the copy is created. Raises ValueError if its `covered_from` is after the position.
    """
    place = position.place
    read = new.created().wave_committed((Split(EVERY_KEY, low=place, high=place),), rows=0)
    nothing_to_merge = MergePlan(read.splits, ((EVERY_KEY, place),), place)  # it begins and ends at the place
    level = read.merged(nothing_to_merge, position, inserted=0, deleted=0)
    return replace(level, began_empty=str(position.at))


def taken_over(new: Progress, position: Position, rows: int) -> Progress:
    """The first progress of a copy that takes over a foreign table with `rows` rows. It has a gap up to `position`.

    `new`: as in `begun_empty`. Raises ValueError as `begun_empty` does.
    """
    level = replace(begun_empty(new, position), rows=rows, began_empty=None)
    return level.over_gap(position, new.fingerprint, new.covered_from, cascades=new.cascades)
