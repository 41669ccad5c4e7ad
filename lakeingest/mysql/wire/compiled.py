"""Kernels: functions over raw bytes that are compiled to machine code, and their basic loads and stores.

A kernel works on arrays and integers, not on Python objects. A kernel reads a value only after `walk` has proved that
the value lies within its packet or event. Because a kernel loads and stores eight bytes at a time, it may read or write
up to seven bytes after the value, too. So every array of bytes has SLACK unused bytes at its end.

Only `machine_code` imports numba, and only when the first kernel is called: the import takes a fifth of a second, and
many commands and runs call no kernel.
"""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, TypeVar, cast

import numpy as np

SLACK = 16  # unused bytes at the end of an array of bytes

F = TypeVar("F", bound=Callable[..., Any])


class _Compiled:
    """A function that numba compiles at the function's first call, or with a kernel that calls the function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options
        update_wrapper(self, function)

    @cached_property
    def dispatcher(self) -> Any:
        """The same function as an object of numba."""
        from lakeingest.mysql.wire.machine_code import dispatcher

        return dispatcher(self._function, self._options)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        """An attribute that numba looks for in a function that a kernel calls: its type, its options, its source."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)


class _Instruction:
    """A function of `machine_code` with the code of a single machine instruction. Only kernels can call it."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def _numba_type_(self) -> Any:
        """The type of the function: numba asks for it when it compiles a kernel that calls the function."""
        from lakeingest.mysql.wire.machine_code import type_of_instruction

        return type_of_instruction(self._name)


def kernel(function: F) -> F:
    """Compile a function at its first call, for the types of that call. A call runs without Python's global lock.

    The compiled function is stored in `cache.folder`, and loaded from there, if there is such a folder.
    """
    return cast(F, _Compiled(function, {"nogil": True}))


def step(function: F) -> F:
    """Let numba inline a function into each kernel that calls it, before the kernel is compiled."""
    return cast(F, _Compiled(function, {"inline": "always"}))


def compiled_step(function: F) -> F:
    """Compile a function, and let LLVM inline it: for a step that calls other steps. `step` would make it slow."""
    return cast(F, _Compiled(function, {"forceinline": True}))


# load64(data, at): the eight bytes from `at` as a signed number, least byte first
load64: Callable[[np.ndarray, int], int] = cast(Any, _Instruction("load64"))
# number(data, at, size): the unsigned number of 1 to 7 bytes, or the signed one of 8 bytes, least byte first
number: Callable[[np.ndarray, int, int], int] = cast(Any, _Instruction("number"))
# store64(data, at, value): write a number to the eight bytes from `at`, least byte first
store64: Callable[[np.ndarray, int, int], None] = cast(Any, _Instruction("store64"))
# int64(value): the value as the type of number with which kernels compute
int64: Callable[[Any], int] = cast(Any, np.int64)


@step
def big_number(data: np.ndarray, at: int, size: int) -> int:
    """The unsigned number of `size` bytes, greatest byte first; a number of 8 bytes is signed."""
    value = int64(0)
    for i in range(size):
        value = value << 8 | int64(data[at + i])
    return value


@step
def copy(target: np.ndarray, to: int, source: np.ndarray, at: int, size: int) -> None:
    """Copy `size` bytes, eight at a time. Up to seven bytes after them are read, and overwritten in `target`."""
    for i in range(0, size, 8):
        store64(target, to + i, load64(source, at + i))
