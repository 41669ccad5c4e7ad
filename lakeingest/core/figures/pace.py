"""The pace `auto` of a run that follows: how long it pauses after a round, so that it computes half of the time."""

from dataclasses import dataclass
from typing import Self

MOST_SECONDS = 5.0  # the longest pause
SHARE = 0.5  # of a processor's time: what rounds compute at most
LEAST = 1 / 3  # of the round: the shortest pause, because also rounds that only wait cost requests
WEIGHT = 1 / 8  # of the last round in the usual one
TIMES = 2  # the pause after a round is at most so many times what that round alone asks for


@dataclass(frozen=True, slots=True)
class Round:
    """The seconds that a round took, and the seconds for which the run computed in it; or the means of several."""

    wall: float
    cpu: float

    @property
    def pause(self) -> float:
        """The seconds to pause after this round.

        The CPU seconds are the share SHARE of the round and its pause together. So a round that only computes is
        followed by a pause of its own length, and a round that mostly waits is followed by a shorter pause. The pause
        is at least LEAST of the round, but never longer than MOST_SECONDS.
        """
        return min(max(self.cpu / SHARE - self.wall, self.wall * LEAST), MOST_SECONDS)

    def then(self, last: Self) -> Self:
        """The new usual round: `last` counts in it with the weight WEIGHT. `self` is the old usual round."""
        return type(self)(self.wall + WEIGHT * (last.wall - self.wall), self.cpu + WEIGHT * (last.cpu - self.cpu))


def pause(usual: Round, last: Round) -> float:
    """The seconds to pause after the round `last`, which `usual` includes: at most TIMES the pause of `last` alone.

    A round that combines files takes several times as long as the usual round. Its pause is limited to the usual
    pause: otherwise readers would wait for the long round, and then for a long pause. The pauses after the next rounds
    are longer instead, because the long round is part of `usual`.
    """
    return min(usual.pause, TIMES * last.pause)
