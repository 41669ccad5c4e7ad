"""Calls a function for several items at the same time, in threads: most of the time they wait for a store's answers."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(call: Callable[[Item], Result], items: Iterable[Item], at_once: int) -> list[Result]:
    """The results of the calls, in the order of the items. At most `at_once` calls run at the same time.

    If calls raise errors, the first of them in the order of the items is raised. After an error, and when Ctrl-C or
    SIGTERM interrupts this function, no further call begins, and this function waits for the calls that have begun.
    With an `at_once` of 1, all calls run in the caller's thread.
    """
    all_items = list(items)
    if at_once == 1 or len(all_items) <= 1:
        return [call(item) for item in all_items]
    with ThreadPoolExecutor(min(at_once, len(all_items)), thread_name_prefix="side-by-side") as pool:
        futures = [pool.submit(call, item) for item in all_items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # the end of the block waits for the calls that have begun
    return [future.result() for future in futures]  # calls begin in order, so an error is before what was cancelled
