"""A value that the tasks of a wave share. It is pickled once for all of them, and unpickled once in each process."""

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_KEPT = 2  # values that a process keeps: the one that its tasks share, and the one of the wave before


class PickledOnce(Generic[T]):
    """Holds a value that nobody changes after the first task with it was pickled."""

    __slots__ = ("_contents", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self._contents: bytes | None = None

    def __reduce__(self) -> tuple[Callable[[bytes], "PickledOnce[Any]"], tuple[bytes]]:
        """Pickle the value at the first call. Each task gets the same bytes, by which `_unpickled` finds the value."""
        if self._contents is None:
            self._contents = pickle.dumps(self.value)
        return _unpickled, (self._contents,)


@lru_cache(maxsize=_KEPT)
def _unpickled(contents: bytes) -> PickledOnce[Any]:
    return PickledOnce(pickle.loads(contents))  # noqa: S301 - a part of a task of the run
