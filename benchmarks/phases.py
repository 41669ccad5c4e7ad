"""How fresh copies were in each phase of a measurement: pure values."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Seen:
    """A change: when the source committed it, and when a reader of its copy saw it, in seconds since 1970."""

    table: str
    committed: float
    seen: float

    @property
    def seconds(self) -> float:
        """How long readers waited for it."""
        return self.seen - self.committed


@dataclass(frozen=True, slots=True)
class Phase:
    """What happened beside the changes between two times."""

    name: str
    began: float
    ended: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many percent of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def by_phase(changes: Iterable[Seen], phases: Sequence[Phase]) -> dict[str, list[float]]:
    """The seconds of the changes by the phase in which they were committed; QUIET comes first, between the phases."""
    seconds: dict[str, list[float]] = {name: [] for name in (QUIET, *(phase.name for phase in phases))}
    for change in changes:
        within = [phase.name for phase in phases if phase.began <= change.committed <= phase.ended]
        seconds[within[-1] if within else QUIET].append(change.seconds)
    return seconds


def table(seconds: Mapping[str, Sequence[float]]) -> str:
    """A line for each phase: the number of its changes, and the percentiles of their seconds."""
    lines = [f"{'':28}{'changes':>10}{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}"]
    for name, values in seconds.items():
        cells = [f"{percentile(values, percent):.2f}" for percent in (50, 95, 99, 100)] if values else ["-"] * 4
        lines.append(f"{name:28}{len(values):>10,}" + "".join(f"{cell:>8}" for cell in cells))
    return "\n".join(lines)
