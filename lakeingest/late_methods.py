"""Methods of lakeingest's dataclasses that Python makes late: each when it is first called.

For each dataclass Python writes the source of about six methods, compiles them and executes them, which takes half a
millisecond. lakeingest has hundreds of dataclasses, and a short command calls few of these methods.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

_OURS = "lakeingest."
Method = Callable[..., Any]


def make_methods_late() -> None:
    """Let Python make the methods of lakeingest's dataclasses late: those of modules that are imported from now on.

    Python 3.13 and later make the methods of a class at once, in another way: with them, nothing changes. Until a class
    is used, the signature of its constructor is not known to `inspect`. So only processes that run no code of users
    call this function: the command, and the run's own workers.
    """
    make: Method | None = getattr(dataclasses, "_create_fn", None)
    if make is not None and make.__module__ == dataclasses.__name__:  # else it is ours already
        dataclasses._create_fn = _late_maker(make)  # type: ignore[attr-defined]  # noqa: SLF001


def _late_maker(make: Method) -> Method:
    """A function that returns, for a class of lakeingest, a method that `make` makes when it is first called."""

    def make_late(name: str, *arguments: Any, **options: Any) -> Method:
        module = (options.get("globals") or {}).get("__name__", "")
        make_now: Callable[[], Method] = partial(make, name, *arguments, **options)
        return _late(name, make_now) if module.startswith(_OURS) else make_now()

    return make_late


def _late(name: str, make: Callable[[], Method]) -> Method:
    """A method that makes the real one with its first call, puts it into the class in its own place, and calls it."""
    made: Method | None = None

    def late(self: Any, /, *arguments: Any, **options: Any) -> Any:
        nonlocal made
        if made is None:  # two threads may both make it: then either of the two equal ones stays
            real = make()
            real.__qualname__ = late.__qualname__
            for owner in type(self).__mro__:  # a method that `dataclasses` has wrapped is in no class itself
                if owner.__dict__.get(name) is late:
                    setattr(owner, name, real)
            made = real
        return made(self, *arguments, **options)

    late.__name__ = late.__qualname__ = name
    return late
