"""Tables that are copied only once (`tables.startup: snapshot_only`): whether a run has anything left to do for one."""

from collections.abc import Iterable

from lakeingest.core.schema import TableId
from lakeingest.core.signals import OPEN, Action, Signal

_NEED_RUN = frozenset({Action.RESNAPSHOT, Action.MAINTAIN})  # only a run can carry them out, on a table of its own


def is_done(table: TableId, signals: Iterable[Signal], *, visible: bool) -> bool:
    """Whether no run changes the copy of a table that is copied only once. Then it needs no binlog any more.

    `visible`: readers see the newest commit of its copy. An incomplete copy, and one that is started over, has commits
    that readers do not see. While someone asks for work on the copy, it is brought up to date like any other copy.
    """
    is_asked = any(signal.action in _NEED_RUN and signal.state in OPEN and signal.concerns(table) for signal in signals)
    return visible and not is_asked
