"""Finishes data files in threads of their own, while others write the next files."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock

from lakeingest.files.file import Draft

# A disk or a store makes many files durable in about the time of one. The processors have nothing to do meanwhile
_THREADS = 16
_MOST_DRAFTS = 48  # which are not finished yet: of a store, they take space on the disk of this machine


@contextmanager
def finishing() -> Iterator[Callable[[Draft], None]]:
    """Yield a function that lets another thread finish a draft. All drafts are finished at the end of the block.

    Threads may call the function at the same time. It waits while too many drafts are not finished yet. The function,
    or the end of the block, raises the error of a draft that could not be finished.
    """
    places, lock = BoundedSemaphore(_MOST_DRAFTS), Lock()
    begun: deque[Future[None]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:

        def finish(draft: Draft) -> None:
            places.acquire()
            with lock:
                future = pool.submit(draft.finish)
                future.add_done_callback(lambda _: places.release())
                begun.append(future)
                while begun and begun[0].done():  # no more is written after an error
                    begun.popleft().result()

        yield finish
        for future in begun:
            future.result()
