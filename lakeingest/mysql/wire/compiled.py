"""Kernels: functions over raw bytes that are compiled to machine code, and their basic loads and stores.

A kernel works on arrays and integers, not on Python objects. A kernel reads a value only after `walk` has proved that
the value lies within its packet or event. Because a kernel loads and stores eight bytes at a time, it may read or write
up to seven bytes after the value, too. So every array of bytes has SLACK unused bytes at its end.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import intrinsic

from lakeingest.mysql.wire import cache

_WORD = ir.IntType(64)

SLACK = 16  # unused bytes at the end of an array of bytes

_NO_C_ENTRY = {"no_cfunc_wrapper": True}  # nobody calls kernels from C, and the entry is slow to compile

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function at its first call, for the types of that call. A call runs without Python's global lock.

    The compiled function is stored in `cache.folder`, and loaded from there, if there is such a folder.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy", **_NO_C_ENTRY)(function)
    if cache.folder() is not None:
        compiled._cache = _Cache(function)  # noqa: SLF001 - `cache=True` allows no other cache, nor a read-only folder
    return cast(F, compiled)


def step(function: F) -> F:
    """Let numba inline a function into each kernel that calls it, before the kernel is compiled."""
    return _inlined(function, inline="always")


def compiled_step(function: F) -> F:
    """Compile a function, and let LLVM inline it: for steps that call steps, `step` makes slow code."""
    return _inlined(function, forceinline=True)


def _inlined(function: F, **how: Any) -> F:
    """Compile a function that only kernels call, with the options `how`."""
    how |= _NO_C_ENTRY | {"no_cpython_wrapper": True}
    how["_nrt"] = False  # do not count references to arrays (an option without a public name)
    compiled: Any = numba.njit(error_model="numpy", **how)(function)
    return cast(F, compiled)


class _Locator(_CacheLocator):  # type: ignore[misc] # numba has no types
    """Stores kernels in `cache.folder`. The folder's name has a hash of all sources, so no kernel in it is stale."""

    def __init__(self, line: int) -> None:
        self._line = line

    def get_cache_path(self) -> str:
        return str(cache.folder())

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], _: str) -> Self:
        return cls(function.__code__.co_firstlineno)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl

    def save_overload(self, signature: Any, compiled: Any) -> None:
        with suppress(OSError):  # if the folder is read-only or full, the next process compiles the kernel, too
            super().save_overload(signature, compiled)


def _load64(_typing: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature, arguments), align=1)

    return types.int64(data, at), generate


def _number(_typing: Any, data: Any, at: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_address(context, builder, signature, arguments), align=1)
        bits = builder.mul(context.cast(builder, arguments[2], signature.args[2], types.int64), _WORD(8))
        return builder.and_(loaded, builder.lshr(_WORD(-1), builder.sub(_WORD(64), bits)))

    return types.int64(data, at, size), generate


def _store64(_typing: Any, data: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = context.cast(builder, arguments[2], signature.args[2], types.int64)
        builder.store(wide, _address(context, builder, signature, arguments), align=1)
        return context.get_dummy_value()

    return types.void(data, at, value), generate


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    index = context.cast(builder, arguments[1], signature.args[1], types.intp)
    return builder.bitcast(builder.gep(array.data, [index]), _WORD.as_pointer())


# The next three functions are each a few machine instructions: `intrinsic` takes a function that generates their code.
# load64(data, at): the eight bytes from `at` as a signed number, least byte first
load64: Callable[[np.ndarray, int], int] = cast(Any, intrinsic(_load64))
# number(data, at, size): the unsigned number of 1 to 7 bytes, or the signed one of 8 bytes, least byte first
number: Callable[[np.ndarray, int, int], int] = cast(Any, intrinsic(_number))
# store64(data, at, value): write a number to the eight bytes from `at`, least byte first
store64: Callable[[np.ndarray, int, int], None] = cast(Any, intrinsic(_store64))
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
