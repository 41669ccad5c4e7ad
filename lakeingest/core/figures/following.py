"""What following a source costs: the highest cost of a day, and what a run has taken, also for a day at its pace.

The highest cost, the bound, is known before a run follows. It comes from the pace of the publishes
(`target.publish_every`) and from UNIT_COSTS.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from lakeingest.core.figures.bill import UNIT_COSTS, Bill, dollars, priced
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.pace import SHARE

DAY_SECONDS = 86_400.0
LEAST_SECONDS = 60.0  # what a run took in a shorter time says little about a day
NOT_BOUNDED = "CPU seconds of the changes themselves", "requests to object stores", "bytes of files"
_FIVE_MINUTES = 300.0  # in seconds: the example of a pace that a person may choose
NO_FILES = "files of a publish: each changed bucket is a file"


@dataclass(frozen=True, slots=True)
class Bound:
    """The highest cost of a day of following. The costs that `not_counted` names are not part of it.

    `publishes`: the number of publishes of one table that changes all the time, one every `apart` seconds. `rule`: why
    they are not closer to each other. `files`: the number of files of all tables' publishes; None if it is not known.
    `cpu_seconds`: those of all tables' publishes. `dollars`: what they cost, by service. `is_paced`: a duration in
    pipeline.yml sets the pace. Otherwise only tables that change day and night without a break reach the bound.
    """

    publishes: int
    apart: float
    is_paced: bool
    rule: str
    files: int | None
    cpu_seconds: float
    dollars: Mapping[str, float]
    not_counted: tuple[str, ...]

    def __str__(self) -> str:
        cpu, missing = f"{self.cpu_seconds:,.0f} CPU seconds", f"not counted: {', '.join(self.not_counted)}"
        if self.is_paced:
            files = "" if self.files is None else f", {self.files:,} files"
            return (
                f"following costs at most, a day: {self.publishes:,} publishes of a table that changes all the time"
                f" ({self.rule}){files}, {cpu} ({priced(self.dollars)}); {missing}"
            )
        files = "" if self.files is None else f" and {UNIT_COSTS.publish_files:.0f} files"
        return (
            f"following costs at most {cpu} a day ({priced(self.dollars)}): {self.rule}. It costs so much only if all"
            f" tables change day and night; then each is published every {spoken(self.apart)} or less often. A publish"
            f" takes about {UNIT_COSTS.publish} CPU seconds{files}, and a table without changes has none."
            f" publish_every: 5m has at most {DAY_SECONDS / _FIVE_MINUTES:,.0f} publishes of a table a day;"
            f" {missing}"
        )


def bound_of(every: float | None, tables: int, *, knows_files: bool) -> Bound:
    """The bound for this number of `tables`.

    `every`: the seconds between the beginnings of two rounds; None for the pace `auto` (`core.figures.pace`).
    `knows_files`: the number of files of a publish does not depend on the table.
    """
    round_seconds = UNIT_COSTS.publish * max(tables, 1)  # a round is never shorter than what its publishes compute
    if every is None:
        apart, rule = round_seconds / SHARE, "publish_every: auto computes half of the time at most"
    elif every <= round_seconds:
        apart, rule = round_seconds, "no pause: a round is not shorter than the CPU seconds of its publishes"
    else:
        apart, rule = every, f"publish_every: {spoken(every)}"
    publishes = int(DAY_SECONDS / apart)
    cpu = publishes * round_seconds
    files = round(publishes * tables * UNIT_COSTS.publish_files) if knows_files else None
    missing = NOT_BOUNDED if knows_files else (*NOT_BOUNDED, NO_FILES)
    is_paced = every is not None and every > round_seconds
    return Bound(publishes, apart, is_paced, rule, files, cpu, dollars(cpu), missing)


@dataclass(frozen=True, slots=True)
class Followed:
    """What a run has taken since it began to follow its source: `seconds`, `publishes` of all tables, and a `bill`.

    `until`: the time of the count, in seconds since 1970.
    """

    until: float
    seconds: float
    publishes: int
    bill: Bill

    @property
    def a_day(self) -> Self | None:
        """What a day at this pace takes; None before LEAST_SECONDS have passed."""
        if self.seconds < LEAST_SECONDS:
            return None
        times = DAY_SECONDS / self.seconds
        return type(self)(self.until, DAY_SECONDS, round(self.publishes * times), self.bill.times(times))

    def to_json(self) -> dict[str, Any]:
        """The values as a JSON document, with those of a day."""
        return {**_values(self), "a_day": None if self.a_day is None else _values(self.a_day)}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for another document."""
        seconds, until = float(document["seconds"]), float(document["until"])
        return cls(until, seconds, int(document["publishes"]), Bill.of_json(document["bill"]))

    def __str__(self) -> str:
        so_far = f"followed for {spoken(self.seconds)}: {self.publishes:,} publishes, {self.bill}"
        if (a_day := self.a_day) is None:
            return so_far
        return f"{so_far}; a day at this pace: {a_day.publishes:,} publishes, {a_day.bill.short}"


def _values(followed: Followed) -> dict[str, Any]:
    """The fields as a JSON document."""
    values = {"until": followed.until, "seconds": followed.seconds, "publishes": followed.publishes}
    return {**values, "bill": followed.bill.to_json()}
