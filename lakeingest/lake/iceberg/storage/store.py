"""Object stores: a check that a run can write to one, which leaves nothing behind, and calls that wait for answers."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyiceberg.utils.concurrent import ExecutorFactory

from lakeingest import config
from lakeingest.lake.iceberg.storage.durable import DurableFileIO

Item = TypeVar("Item")
Result = TypeVar("Result")


def unwritable(settings: config.Target) -> str | None:
    """The reason why no object can be written and deleted in the warehouse; None if one was written and deleted."""
    io = DurableFileIO(settings.pyiceberg_properties())
    probe = f"{settings.warehouse.uri}/.lakeingest-{uuid.uuid4().hex}"
    try:
        with io.new_output(probe).create() as out:
            out.write(b"an object can be written")
        io.delete(probe)
    except OSError as error:
        fix = "correct target.storage, the credentials or the rights"
        return f"the warehouse {settings.warehouse} cannot be written: {' '.join(str(error).split())}; {fix}"
    return None


def in_threads(location: str, call: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of `call` for each item, in order. `location` is a file or folder that the calls read or write.

    The calls are made in threads if `location` is in a store. On a disk threads take longer, because nothing waits for
    an answer: there each call is made when its result is asked for.
    """
    if location.startswith("file:"):
        return map(call, items)
    return ExecutorFactory.get_or_create().map(call, items)
