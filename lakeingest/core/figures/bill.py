"""The bill of a run: what it took, and what that costs at least at list prices.

The unit costs were measured; they are the only numbers of an estimate that do not come from the user's own source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from lakeingest.core.figures.prices import LOOKED_UP, PRICES

MEMORY_GB = 4.0  # of memory for each processor, as workers of both services have by default
_COUNTS = "requests", "bytes_read", "bytes_written", "files", "bytes_of_files"
_MILLION = 1e6
_HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """CPU seconds of one machine: of a million `rows` copied, of a million `changes` applied, and of a run's `start`.

    Runs of two sizes were measured: 1 and 3 million rows, 200,000 and 1 million changes. The least time of two or three
    runs of each size counts. The line through the two times gives the cost of a million, and the start. Rows of another
    `table` cost more or less.
    `publish`: the CPU seconds of a publish of few changes and of its merge, while a run follows. `publish_files`: the
    files of such a publish. Both are what a whole run took, divided by the number of its publishes (`python -m
    benchmarks.hour --minutes 2 --rate 50 --only-changes`).
    """

    rows: float
    changes: float
    start: float
    publish: float
    publish_files: float
    measured: str
    machine: str
    table: str


UNIT_COSTS = UnitCosts(
    rows=1.1,
    changes=5.2,
    start=4.0,
    publish=0.1,
    publish_files=9.8,
    measured="2026-11-29",
    machine="two x86_64 cores",
    table="12 columns into Iceberg",
)


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run took, as far as that was counted exactly. `cpu_seconds` is None if they were not counted.

    `requests` were sent to object stores by lakeingest's own client. `bytes_read` and `bytes_written` are the bytes of
    the contents of these requests. `files` were written for tables and for the state, on a disk or in a store, and
    `bytes_of_files` are their bytes; a file that is replaced counts each time. `dollars` says by service what the CPU
    seconds cost at least. `not_counted` names what is missing.
    """

    cpu_seconds: float | None
    requests: int
    bytes_read: int
    bytes_written: int
    not_counted: tuple[str, ...] = ()
    files: int = 0
    bytes_of_files: int = 0

    def times(self, factor: float) -> Self:
        """Each number of the bill, multiplied by the factor."""
        cpu = None if self.cpu_seconds is None else self.cpu_seconds * factor
        counts = {name: round(getattr(self, name) * factor) for name in _COUNTS}
        return type(self)(cpu, **counts, not_counted=self.not_counted)

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises an error of `errors.DAMAGED` for another document."""
        cpu = None if document["cpu_seconds"] is None else float(document["cpu_seconds"])
        counts = {name: int(document[name]) for name in _COUNTS}
        return cls(cpu, **counts, not_counted=tuple(map(str, document["not_counted"])))

    def to_json(self) -> dict[str, object]:
        """The values as a JSON document, with the dollars."""
        return {
            "cpu_seconds": self.cpu_seconds,
            **{name: getattr(self, name) for name in _COUNTS},
            "dollars": dict(self.dollars),
            "not_counted": list(self.not_counted),
        }

    @property
    def dollars(self) -> Mapping[str, float]:
        """What the CPU seconds cost at least, by service; empty if they were not counted."""
        return {} if self.cpu_seconds is None else dollars(self.cpu_seconds)

    @property
    def short(self) -> str:
        """The numbers of the bill as a text, without `not_counted`, and without zeros of files and requests."""
        counted = [] if self.cpu_seconds is None else [f"{self.cpu_seconds:,.1f} CPU seconds ({priced(self.dollars)})"]
        if self.files:
            counted.append(f"{self.files:,} files written, {self.bytes_of_files:,} bytes")
        if self.requests:
            moved = f"{self.bytes_read:,} bytes read and {self.bytes_written:,} written"
            counted.append(f"{self.requests:,} requests to object stores, {moved}")
        return "; ".join(counted)

    def __str__(self) -> str:
        missing = [f"not counted: {', '.join(self.not_counted)}"] if self.not_counted else []
        return "; ".join([*filter(None, [self.short]), *missing])


def cpu_of_rows(rows: int) -> float:
    """The CPU seconds of a first copy of `rows` rows, without the run's start."""
    return rows * UNIT_COSTS.rows / _MILLION


def dollars(cpu_seconds: float) -> dict[str, float]:
    """What these CPU seconds cost, by service, if no processor is ever idle: the least that they can cost.

    Each processor comes with MEMORY_GB of memory. A service also bills idle seconds, and a first minute in full.
    """
    hours = cpu_seconds / _HOUR
    return {price.service: hours * (price.vcpu_hour + MEMORY_GB * price.gb_hour) for price in PRICES}


def priced(costs: Mapping[str, float]) -> str:
    """These dollars in words, with the day of the prices."""
    each = (f"${cost:,.4f} on {service}" for service, cost in costs.items())
    return f"at least {', '.join(each)}; prices of {LOOKED_UP}"
