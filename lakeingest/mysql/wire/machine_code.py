"""Makes machine code of kernels with numba. Only `compiled` uses this module: whoever imports it imports numba."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import numba
from llvmlite import ir
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.extending import intrinsic

from lakeingest.mysql.wire import cache

_WORD = ir.IntType(64)


def dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Numba's object for a function. With the option `nogil`, the function is a kernel; otherwise a step of kernels."""
    options = options | {"error_model": "numpy", "no_cfunc_wrapper": True}  # an entry for C is slow to compile
    if "nogil" not in options:  # only kernels call a step
        options["no_cpython_wrapper"] = True
        options["_nrt"] = False  # do not count references to arrays; an option without a public name
    compiled: Any = numba.njit(**options)(function)
    if "nogil" in options and cache.folder() is not None:
        compiled._cache = _Cache(function)  # noqa: SLF001 - `cache=True` allows no other cache, nor a read-only folder
    return compiled


def type_of_instruction(name: str) -> Any:
    """The numba type of the instruction with this name."""
    context = cpu_target.typing_context
    context.refresh()  # numba looks for new instructions only before it compiles a kernel
    return context.resolve_value_type(_INSTRUCTIONS[name])


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

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load a stored kernel without numba's compiler, because the compiler's import takes a third of a second.

        Returns None if the kernel is not stored.
        """
        rtsys.initialize(context)  # this part of the compiler's preparation counts references to arrays
        with self._guard_against_spurious_io_errors():
            stored = self._load_overload(signature, context)
        # if it is not stored, the compiler is needed: numba's own method prepares it
        return super().load_overload(signature, context) if stored is None else stored

    def save_overload(self, signature: Any, compiled: Any) -> None:
        with suppress(OSError):  # if the folder is read-only or full, the next process compiles the kernel, too
            super().save_overload(signature, compiled)


def _load64(_typing: Any, data: Any, at: Any) -> Any:
    """The types of `compiled.load64`, and the function that generates its code; the next two functions are alike."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature, arguments), align=1)

    return types.int64(data, at), generate


def _number(_typing: Any, data: Any, at: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_address(context, builder, signature, arguments), align=1)
        bits = builder.mul(context.cast(builder, arguments[2], signature.args[2], types.int64), _WORD(8))
        # the lowest `bits` bits: the mask is all ones, shifted to the right by the other bits
        return builder.and_(loaded, builder.lshr(_WORD(-1), builder.sub(_WORD(64), bits)))

    return types.int64(data, at, size), generate


def _store64(_typing: Any, data: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = context.cast(builder, arguments[2], signature.args[2], types.int64)
        builder.store(wide, _address(context, builder, signature, arguments), align=1)
        return context.get_dummy_value()

    return types.void(data, at, value), generate


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The pointer to a word of eight bytes: in the array `arguments[0]`, at the index `arguments[1]`."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    index = context.cast(builder, arguments[1], signature.args[1], types.intp)
    return builder.bitcast(builder.gep(array.data, [index]), _WORD.as_pointer())


# `intrinsic` takes a function that generates the code of an instruction.
_INSTRUCTIONS = {"load64": intrinsic(_load64), "number": intrinsic(_number), "store64": intrinsic(_store64)}
