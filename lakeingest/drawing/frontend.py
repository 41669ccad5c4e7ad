"""The front end of a notebook: whether there is one, and a display in it that is drawn again while a cell works."""

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DRAW_SECONDS = 0.5  # between two drawings: a browser shows no more


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML below its cells."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def drawn_again(shown: object) -> Iterator[Callable[[], None]]:
    """Display `shown` below the cell. Within the block, draw it again soon after each call of the yielded function.

    A thread draws, so that the work of the cell does not wait for it. At the end of the block `shown` is drawn once
    more. `shown` must be safe to draw while another thread changes it.
    """
    from IPython.display import display

    handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]
    has_changed, is_over = threading.Event(), threading.Event()

    def draw() -> None:
        while not is_over.wait(DRAW_SECONDS):
            if has_changed.is_set():
                has_changed.clear()
                handle.update(shown)

    # in the context of the cell, so that the front end takes the drawing for the cell's
    thread = threading.Thread(target=contextvars.copy_context().run, args=(draw,), daemon=True)
    thread.start()
    try:
        yield has_changed.set
    finally:
        is_over.set()
        thread.join()
        handle.update(shown)
