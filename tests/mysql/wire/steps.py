"""How tests call what kernels are made of: a step has no entry of its own from Python."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from lakeingest.mysql.wire.compiled import SLACK

F = TypeVar("F", bound=Callable[..., Any])


def entry(step: F) -> F:
    """The step, compiled by itself with an entry."""
    compiled: Any = numba.njit(error_model="numpy")(cast(Any, step).py_func)
    return cast(F, compiled)


def array(data: bytes) -> np.ndarray:
    """Bytes as kernels take them, with anything after them."""
    return np.frombuffer(bytearray(data + b"\xa5" * SLACK), np.uint8)
