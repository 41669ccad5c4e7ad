"""Moments, and how much time has certainly passed between two of them, even if someone sets a clock in between."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by two clocks, in seconds.

    `wall` counts from 1970, by a clock that people set. `since_boot` counts from the start of the machine that `boot`
    names, by a clock that nobody sets. An object store has only one clock, whose time is in both fields.
    """

    wall: float
    boot: str
    since_boot: float

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(float(doc["wall"]), str(doc["boot"]), float(doc["since_boot"]))

    def to_json(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)

    def is_ahead_of(self, now: "Moment") -> bool:
        """Whether this moment, which came before `now`, has a later `wall`. If it has, its age is unknown.

        False if the machine was not restarted in between, because `since_boot` tells the age.
        """
        return self.boot != now.boot and self.wall > now.wall

    def seconds_since(self, earlier: "Moment") -> float:
        """How many seconds have passed, at least, since an earlier moment; never less than 0.

        The number is exact if the machine was not restarted in between. After a restart, or on another machine, the
        number is the difference of the wall clocks, but at most the time since this machine's start, because a wall
        clock may have been wrong before somebody set it.
        """
        if self.boot == earlier.boot:
            return max(0.0, self.since_boot - earlier.since_boot)
        return max(0.0, min(self.wall - earlier.wall, self.since_boot))
