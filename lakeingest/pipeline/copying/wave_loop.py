"""The loop that reads chunks, for copies and for re-snapshots: a wave is read while the wave before it is committed.

    begin (plan chunks, let executors read them) -> is_read -> take -> begin the next wave
                                                               '--> begin the same wave in smaller chunks

Subclasses of the loop say how a wave is begun. Their callers commit the wave that `take` returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import ChunkTooLarge, ChunkTooSlow
from lakeingest.pipeline.copying.planner import Planner
from lakeingest.spark.background_job import BackgroundJob

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wave(Generic[T]):
    """Chunks that are read in the background.

    `keys`: the range of all these chunks. `is_last`: no chunk is missing after this wave. `began`: the time of the
    monotonic clock at which the read began.
    """

    keys: KeyRange
    is_last: bool
    job: BackgroundJob[list[T]]
    began: float


W = TypeVar("W", bound=Wave[Any])


class WaveLoop(ABC, Generic[W, T]):
    """Reads a table wave by wave. `wave`: the wave that is being read; None after the last wave, and after `cancel`."""

    def __init__(self, table: TableId, planner: Planner | None) -> None:
        self._table_id, self._planner = table, planner
        self.wave: W | None = None

    @property
    def is_read(self) -> bool:
        """Whether `take` would return at once."""
        return self.wave is not None and self.wave.job.is_done

    def take(
        self, goes_on: Callable[[], bool] = lambda: True, may_read: Callable[[], bool] = lambda: True
    ) -> tuple[W, list[T]] | None:
        """Wait for the wave, begin the next wave if both functions say so, and return the read wave with its parts.

        Returns None if a chunk was given up: then the same wave is begun once more, in smaller chunks, if `goes_on`
        says so. `may_read` is asked only before the next wave, not before the same one. Raises ChunkTooSlow if a chunk
        was given up and chunks cannot be smaller.
        """
        wave = self.wave
        if wave is None:
            raise RuntimeError(f"{self._table_id}: no wave is read, and a stage asks for it")
        parts = self.result_of(wave)  # `self.wave` stays until it is read, so that an interruption can cancel it
        self.wave = None
        if parts is None:
            if goes_on():
                self.wave = self._begin(wave.keys.lower)  # the same wave
            return None
        self._learn(wave, parts)
        if not wave.is_last and goes_on() and may_read():
            self.wave = self._begin(wave.keys.upper)
        return wave, parts

    def cancel(self) -> None:
        """Give up the wave that is being read."""
        if self.wave is not None:
            self.wave.job.cancel()
            self.wave = None

    @abstractmethod
    def _begin(self, lower: Key | None) -> W:
        """Begin to read the next wave, from the key `lower` on."""

    @abstractmethod
    def _learn(self, wave: W, parts: Sequence[T]) -> None:
        """Take in the costs of this wave, before the next wave is planned."""

    def result_of(self, wave: W) -> list[T] | None:
        """Wait for a wave, and return its parts. If a chunk was given up, let chunks be smaller, and return None.

        After None, the wave must be read once more. Raises ChunkTooSlow if chunks cannot be smaller.
        """
        try:
            return wave.job.result()
        except (ChunkTooSlow, ChunkTooLarge) as error:
            if self._planner is None or not self._planner.can_shrink:
                raise ChunkTooSlow(f"{self._table_id}: {error}") from error
            self._planner.shrink()
            return None
