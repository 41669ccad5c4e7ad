"""Threads that are at work beside a test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Work = Callable[[int, Callable[[], bool]], None]


@contextmanager
def beside(work: Work, count: int) -> Iterator[None]:
    """Do `work` on so many threads, each with its number, while the block runs; its second argument says when to end.

    They have ended at the end, and what one of them raised is raised.
    """
    stop, failures = threading.Event(), list[BaseException]()

    def watched(number: int) -> None:
        try:
            work(number, stop.is_set)
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    threads = [threading.Thread(target=watched, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
