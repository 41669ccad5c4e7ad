"""A goal: the part of the source's history that readers of a copy wait to see."""

from dataclasses import dataclass

from lakeingest.core.binlog.position import FilePosition, GtidSet, Position, is_before


@dataclass(frozen=True, slots=True)
class Written:
    """All that the server `server_uuid` has written up to `at`: these `gtids`, or None without GTIDs."""

    server_uuid: str
    at: FilePosition
    gtids: GtidSet | None


@dataclass(frozen=True, slots=True)
class Before:
    """All that the source committed before `moment`, in seconds since 1970."""

    moment: float


Goal = Written | GtidSet | Before


def is_seen(goal: Goal, complete_to: Position | None, as_of: float | None) -> bool:
    """Whether readers see all that the goal has.

    They see every change up to the position `complete_to`, and every change from before the time `as_of` (seconds since
    1970); None if unknown. For `Written`, byte positions are compared if `complete_to` is of its server, else GTIDs.
    The answer is False if what the goal needs is unknown.
    """
    if isinstance(goal, Before):
        return as_of is not None and as_of >= goal.moment
    if isinstance(goal, GtidSet):
        return _has(complete_to, goal)
    if complete_to is not None and complete_to.server_uuid == goal.server_uuid:
        return not is_before(complete_to.at, goal.at)
    return goal.gtids is not None and _has(complete_to, goal.gtids)


def _has(complete_to: Position | None, gtids: GtidSet) -> bool:
    """Whether every one of these transactions is before the position."""
    return complete_to is not None and complete_to.gtids is not None and gtids <= complete_to.gtids
