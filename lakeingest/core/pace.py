"""The pace `auto` of a run that follows: how long it pauses after a round, so that it computes half of the time."""

MOST_SECONDS = 5.0  # the longest pause
SHARE = 0.5  # of a processor's time: what rounds compute at most
LEAST = 1 / 3  # of the round: the shortest pause, as waits for a disk or a store cost requests


def pause(wall: float, cpu: float) -> float:
    """The seconds to pause after a round of `wall` seconds, in which the run computed for `cpu` seconds.

    The round and its pause together are so long that `cpu` is the share SHARE of it. A round that only computes is so
    followed by a pause as long as itself; one that waits for much of its time by a shorter one.
    """
    return min(max(cpu / SHARE - wall, wall * LEAST), MOST_SECONDS)
