"""The CPU seconds of parts of a run, which are counted inside of the run itself."""

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any


class PartCosts:
    """The CPU seconds of the parts of a run. A part that is called by another one counts for itself alone."""

    def __init__(self) -> None:
        self.seconds = dict[str, float]()
        self._lock, self._thread = threading.Lock(), threading.local()

    def timed(self, part: str, owner: object, name: str) -> None:
        """Let a method of a class, or a function of a module, count for a part."""
        function: Callable[..., Any] = getattr(owner, name)
        self.seconds.setdefault(part, 0.0)

        @wraps(function)
        def counted(*arguments: Any, **named: Any) -> Any:
            outer, self._thread.inner = getattr(self._thread, "inner", 0.0), 0.0
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                took = time.thread_time() - began
                with self._lock:
                    self.seconds[part] += took - self._thread.inner
                self._thread.inner = outer + took

        setattr(owner, name, counted)
