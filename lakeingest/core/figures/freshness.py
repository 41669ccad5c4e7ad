"""Freshness: how old the newest state of the source is that readers of a copy see completely.

The age counts from a moment up to which readers see every change. Two facts give such a moment: the commit time of the
last transaction before the position that readers see, and the time at which a run saw the end of the binlog, if readers
see everything before that end. If neither is known, the freshness is unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.tables.schema import TableId


@dataclass(frozen=True, slots=True)
class Fresh:
    """A note: readers who see a copy as of `place`, or as of a later place, see every change from before `as_of`.

    `as_of` is in seconds since 1970. `complete_to`: they also see every change up to this position; None if that is
    known only of the position of the copy.
    """

    place: Place
    as_of: float
    complete_to: Position | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """How far a copy is, as a run has measured it. A value that is not known is None.

    `rows`, `position`: those that readers see. `as_of`: readers see every change from before this time (seconds since
    1970). `lag_bytes`: how much of the binlog comes after what readers see, up to what the source has written.
    `lag_seconds`: the time from the commit of the last change that readers see to the commit of the last spooled one.
    `error`: the name of the error that has stopped the table; '' if the table goes on. `max_staleness`: the objective
    for the age, in seconds; None without one.
    `quarantined`: how many keys have no row in the copy because their rows failed a gate. `proven_since`: every row was
    last found equal to the source's at this time (seconds since 1970) or later. `companions`: for each companion of the
    copy, by its key of pipeline.yml, the name of the error for which it does not go on; '' if it goes on.
    """

    table: TableId
    rows: int | None
    position: str | None
    as_of: float | None
    lag_bytes: int | None
    lag_seconds: float | None
    error: str
    paused: bool
    max_staleness: float | None
    quarantined: int | None = None
    proven_since: float | None = None
    companions: Mapping[str, str] = field(default_factory=dict)


def committed_at(position: Position | None) -> float | None:
    """When the source committed the last transaction before a position, in seconds since 1970; None if unknown."""
    history = None if position is None else position.history
    last = None if history is None else history.last
    return None if last is None else last.committed_at / 1_000_000


def fresh_as_of(shown: Position | None, noted: Fresh | None) -> float | None:
    """Readers who see the position `shown` see every change from before this time (seconds since 1970).

    `noted` counts only if `shown` is its place or a later one: readers may see an older commit again after a rollback.
    None if no such time is known.
    """
    moments = (committed_at(shown), noted.as_of if _counts(noted, shown) else None)
    return max((moment for moment in moments if moment is not None), default=None)


def complete_to(shown: Position | None, noted: Fresh | None) -> Position | None:
    """Readers who see the position `shown` see every change up to this position; None if they see nothing."""
    noted_to = noted.complete_to if _counts(noted, shown) else None
    known = [position for position in (shown, noted_to) if position is not None]
    return max(known, key=lambda position: position.place, default=None)


def _counts(noted: Fresh | None, shown: Position | None) -> TypeGuard[Fresh]:
    """Whether readers who see the position `shown` see at least what the note says."""
    return noted is not None and shown is not None and shown.place >= noted.place


def noted_again(
    noted: Fresh | None, shown: Position | None, *moments: float | None, complete: Position | None = None
) -> Fresh | None:
    """The note for readers who see the position `shown`; None if nothing is known for them.

    `noted` is the last note. `moments`: times up to which these readers see every change; None if unknown. `complete`:
    a position up to which they see every change; None if only `shown` and the position of `noted` are known.
    """
    known = [moment for moment in (fresh_as_of(shown, noted), *moments) if moment is not None]
    if complete is None and _counts(noted, shown):
        complete = noted.complete_to
    return Fresh(shown.place, max(known), complete) if shown is not None and known else None


def lag_seconds(shown: Position | None, end: Position, *, current: bool) -> float | None:
    """How much later the last transaction before `end` was committed than the last one before `shown`.

    0 if `current`: readers see every change of the table up to `end`. None if a commit time is unknown.
    """
    if current:
        return 0.0
    shown_at, end_at = committed_at(shown), committed_at(end)
    return None if shown_at is None or end_at is None else max(0.0, end_at - shown_at)


def age(as_of: float | None, now: float) -> float | None:
    """The seconds from `as_of` to `now`; None if `as_of` is unknown.

    Never negative, although the clock of the source may be ahead of ours.
    """
    return None if as_of is None else max(0.0, now - as_of)
