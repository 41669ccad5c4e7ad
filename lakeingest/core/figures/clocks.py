"""Clocks that disagree: the clocks of this machine, of the source, and of the machines that changed the copies.

Times in a copy never go back, and nothing is removed as old only because one clock is ahead. So no data is lost through
a wrong clock. A wrong clock is still reported, because readers who ask for rows of a time get rows of another time.
"""

from collections.abc import Mapping
from datetime import timedelta

from lakeingest.core.tables.schema import TableId

NEAR = timedelta(minutes=1)  # two clocks are allowed to differ by that much; Iceberg's readers tolerate the same
_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))


def spoken(seconds: float) -> str:
    """A duration in the largest unit that fits."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:,.1f} {unit}"


def lead(now: float, source: float) -> timedelta:
    """By how much the clock `now` is ahead of the clock `source`; zero if it is not ahead by more than NEAR.

    Both times are in seconds since 1970.
    """
    ahead = timedelta(seconds=now - source)
    return ahead if ahead > NEAR else timedelta(0)


def disagreement(now: float, source: float, changed: Mapping[TableId, float]) -> str | None:
    """A finding about this machine's clock, with its fix; None if the clock agrees with the other clocks.

    `changed` has for each copy the time of the last change, by the clock of the machine that made the change. All times
    are in seconds since 1970.
    """
    findings = []
    last_changed = max(changed, key=lambda table: changed[table], default=None)
    lag = 0.0 if last_changed is None else changed[last_changed] - now
    if lag > NEAR.total_seconds():
        late = spoken(lag)
        findings.append(f"{late} behind the last commit of {last_changed}, so that commits get the time of that one")
    difference = abs(now - source)
    if difference > NEAR.total_seconds():
        direction = "ahead of" if now > source else "behind"
        findings.append(f"{spoken(difference)} {direction} the clock of the source")
    if not findings:
        return None
    return f"this machine's clock is {', and '.join(findings)}; set the clock that is wrong"
