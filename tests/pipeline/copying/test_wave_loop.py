"""The loop of waves, without a server: what is read is a list of numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ChunkTooLarge, ChunkTooSlow
from lakeingest.pipeline.copying.planner import Planner
from lakeingest.pipeline.copying.wave_loop import Wave, WaveLoop
from lakeingest.spark.background_job import BackgroundJob

END = 9
Reads = Callable[[int, int], list[int]]


@dataclass
class Sizes:
    """What a loop asks of a planner: how long waves are, and whether they can be shorter."""

    length: int

    @property
    def can_shrink(self) -> bool:
        """A wave of one number cannot be shorter."""
        return self.length > 1

    def shrink(self) -> None:
        """One number less."""
        self.length -= 1


@dataclass
class Numbers(WaveLoop[Wave[int], int]):
    """The numbers from 0 up to `END`, in waves; `reads` reads those from one up to another."""

    sizes: Sizes
    reads: Reads
    begun: list[tuple[int, int]] = field(default_factory=list)
    learned: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin the first wave."""
        super().__init__(TableId("shop", "numbers"), cast("Planner", self.sizes))
        self.wave = self._begin(None)

    def _begin(self, lower: Key | None) -> Wave[int]:
        first = 0 if lower is None else cast("int", lower[0])
        last = min(first + self.sizes.length, END)
        self.begun.append((first, last))
        keys = KeyRange(lower, None if last == END else (last,))
        job = BackgroundJob[list[int]](None, lambda: self.reads(first, last))
        return Wave(keys, last == END, job, 0.0)

    def _learn(self, wave: Wave[int], parts: Sequence[int]) -> None:  # noqa: ARG002 - any wave
        self.learned += parts


def all_of(first: int, last: int) -> list[int]:
    """Every number."""
    return list(range(first, last))


def at_most(count: int, error: type[Exception]) -> Reads:
    """Reads that are given up where they have more numbers."""

    def read(first: int, last: int) -> list[int]:
        if last - first > count:
            raise error("more numbers")
        return all_of(first, last)

    return read


def test_the_next_wave_is_read_while_one_is_committed() -> None:
    """Each number is taken once, in order, and after the last wave none is begun."""
    loop, taken = Numbers(Sizes(4), all_of), list[int]()
    while loop.wave is not None:
        before = len(loop.begun)
        found = loop.take()
        assert found is not None
        wave, parts = found
        assert len(loop.begun) == before + (not wave.is_last)
        taken += parts
    assert taken == loop.learned == list(range(END))
    assert loop.begun == [(0, 4), (4, 8), (8, 9)]


@pytest.mark.parametrize("error", [ChunkTooSlow, ChunkTooLarge])
def test_a_wave_that_was_given_up_is_read_again_in_smaller_chunks(error: type[Exception]) -> None:
    """From the same key on; nothing is learned of it, and nothing of it is taken."""
    loop = Numbers(Sizes(5), at_most(3, error))
    assert loop.take() is None
    assert loop.take() is None
    found = loop.take()
    assert found is not None
    assert found[1] == loop.learned == [0, 1, 2]
    assert loop.begun == [(0, 5), (0, 4), (0, 3), (3, 6)]


def test_the_next_wave_waits_while_it_may_not_be_read() -> None:
    """The read wave is taken all the same; a wave that was given up goes on, because it was allowed before."""
    loop = Numbers(Sizes(4), at_most(3, ChunkTooLarge))
    assert loop.take(may_read=lambda: False) is None
    assert loop.begun == [(0, 4), (0, 3)]
    found = loop.take(may_read=lambda: False)
    assert found is not None
    assert found[1] == [0, 1, 2]
    assert loop.wave is None
    assert loop.begun == [(0, 4), (0, 3)]


@pytest.mark.parametrize("error", [ChunkTooSlow, ChunkTooLarge])
def test_chunks_that_cannot_be_smaller_are_an_error_of_the_table(error: type[Exception]) -> None:
    """It names the table, and no wave is begun."""
    loop = Numbers(Sizes(1), at_most(0, error))
    with pytest.raises(ChunkTooSlow, match=r"shop\.numbers: more numbers"):
        loop.take()
    assert loop.begun == [(0, 1)]


@pytest.mark.parametrize("most", [1, 4])
def test_a_loop_that_does_not_go_on_begins_nothing(most: int) -> None:
    """Neither the next wave, nor the one that was given up."""
    loop = Numbers(Sizes(4), at_most(most, ChunkTooSlow))
    assert (loop.take(lambda: False) is None) == (most < 4)
    assert (loop.wave, loop.begun) == (None, [(0, 4)])
    with pytest.raises(RuntimeError, match="no wave is read"):
        loop.take()


def test_a_wave_that_fails_otherwise_can_be_cancelled() -> None:
    """The error is raised as it is, and the wave is still there for whoever ends the loop."""

    def fails(first: int, last: int) -> list[int]:
        raise KeyboardInterrupt(first, last)

    loop: Any = Numbers(Sizes(4), fails)
    with pytest.raises(KeyboardInterrupt):
        loop.take()
    assert loop.wave is not None
    loop.cancel()
    assert loop.wave is None
