"""Clocks that disagree: that of this machine, that of the source, and those that the copies were changed by.

Times in a copy never go back, and what is removed for its age alone is removed by no clock that is ahead. So a wrong
clock loses nothing; but it is named, because readers who ask for a time find rows of another time.
"""

from collections.abc import Mapping
from datetime import timedelta

from lakeingest.core.schema import TableId

NEAR = timedelta(minutes=1)  # that two clocks may differ; Iceberg's readers tolerate the same
_UNITS = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))


def spoken(seconds: float) -> str:
    """A time in the largest unit that fits."""
    size, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    return f"{seconds / size:,.1f} {unit}"


def lead(now: float, source: float) -> timedelta:
    """By how much a clock is ahead of the source's; zero where they are near each other. Both in seconds since 1970."""
    found = timedelta(seconds=now - source)
    return found if found > NEAR else timedelta(0)


def disagreement(now: float, source: float, changed: Mapping[TableId, float]) -> str | None:
    """What is wrong with this machine's clock, and its fix; None if it agrees with the others.

    `changed` says for each copy when it was changed last, by the clock of who did. All in seconds since 1970.
    """
    table = max(changed, key=lambda one: changed[one], default=None)
    found = []
    if table is not None and changed[table] - now > NEAR.total_seconds():
        late = spoken(changed[table] - now)
        found.append(f"{late} behind the last commit of {table}, so that commits get the time of that one")
    if abs(now - source) > NEAR.total_seconds():
        found.append(f"{spoken(abs(now - source))} {'ahead of' if now > source else 'behind'} the clock of the source")
    return f"this machine's clock is {', and '.join(found)}; set the clock that is wrong" if found else None
