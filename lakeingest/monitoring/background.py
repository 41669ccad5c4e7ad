"""Work beside a run, in a thread that ends with the process, so that a server that does not answer holds up nothing."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(work: Callable[[], Result]) -> Future[Result]:
    """Begin the work in a thread of its own. The future gets the result. Whoever waits for it must set a limit."""
    future = Future[Result]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def outcomes(sending: Future[list[Exception | None]], count: int, seconds: float) -> list[Exception | None]:
    """Wait, for `seconds` at most, until `count` documents have arrived. Returns the error of each; None if it arrived.

    If `sending` takes longer, each document gets a TimeoutError. If `sending` raises an error, each gets this error.
    """
    try:
        return sending.result(seconds)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not fail the run
        return [error] * count
