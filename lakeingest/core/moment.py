"""Moments, and how much time has certainly passed between two of them, also where someone sets a clock meanwhile."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by two clocks, in seconds: since 1970, which people set, and since a machine started, which nobody sets.

    `boot` names that start of the machine. A store has one clock, which is both.
    """

    wall: float
    boot: str
    since_boot: float

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; KeyError, TypeError or ValueError for anything else."""
        return cls(float(doc["wall"]), str(doc["boot"]), float(doc["since_boot"]))

    def to_json(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)

    def is_ahead_of(self, now: "Moment") -> bool:
        """Whether a clock was ahead at this moment, which was before now: nobody can say how long ago it was."""
        return self.boot != now.boot and self.wall > now.wall

    def seconds_since(self, earlier: "Moment") -> float:
        """The seconds that have passed at least, never less than 0.

        Within one start of a machine this is exact. After a restart, or on another machine, the time between the clocks
        counts, but not more than the time since the start: a clock may have been wrong before it was set.
        """
        if self.boot == earlier.boot:
            return max(0.0, self.since_boot - earlier.since_boot)
        return max(0.0, min(self.wall - earlier.wall, self.since_boot))
