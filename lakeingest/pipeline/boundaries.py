"""Boundaries: while a run is at work, it is noted where the binlog ends, so that what piles up can be cut there.

The written position is the end of a transaction. A long merge leaves a backlog of one file, which one reader alone
would have to decode.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakeingest.config import Source
from lakeingest.control.lease import Lease
from lakeingest.control.spool import Spool
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import GREETING_SECONDS, connect, written_position

EVERY_SECONDS = 10.0


@contextmanager
def noted(source: Source, lease: Lease, spool: Spool) -> Iterator[None]:
    """Note the written position in the spool every 10 s while the block runs, on a connection of its own each time.

    Nothing depends on it: where it fails, the binlog is cut at fewer places.
    """
    stop = threading.Event()

    def note() -> None:
        with suppress(LakeIngestError):
            while not stop.wait(EVERY_SECONDS):
                with suppress(Retryable):  # the source may be back the next time
                    _note(source, lease, spool)

    thread = threading.Thread(target=note, name="boundaries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(GREETING_SECONDS)


def _note(source: Source, lease: Lease, spool: Spool) -> None:
    with connect(source) as connection:
        if server_state(connection).uuid == spool.position.server_uuid:
            at = written_position(connection)
            lease.assert_held()
            spool.note(at)
