"""Boundaries: while a run is at work, it is noted where the binlog ends, so that what piles up can be cut there.

The written position is the end of a transaction. A long merge leaves a backlog of one file, which one reader alone
would have to decode.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pymysql

from lakeingest.config import Source
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.mysql.chunk_reader import server_state
from lakeingest.mysql.connection import GREETING_SECONDS, beside, file_sizes, written_position
from lakeingest.mysql.continuity import file_began
from lakeingest.spool.spool import Spool
from lakeingest.state.lease import Lease

EVERY_SECONDS = 10.0


@contextmanager
def noted(source: Source, lease: Lease, spool: Callable[[], Spool]) -> Iterator[None]:
    """Note the written position in the spool every 10 s while the block runs, on a connection for a moment each time.

    Nothing depends on it: where it fails, the binlog is cut at fewer places.
    """
    stop = threading.Event()
    began: dict[str, int] = {}  # the second in which each binlog file was begun

    def note() -> None:
        with suppress(LakeIngestError):
            while not stop.wait(EVERY_SECONDS):
                with suppress(Retryable):  # the source may be back the next time
                    _note(source, lease, spool(), began)

    thread = threading.Thread(target=note, name="boundaries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(GREETING_SECONDS)


def _note(source: Source, lease: Lease, spool: Spool, began: dict[str, int]) -> None:
    with beside(source) as connection:
        if server_state(connection).uuid != spool.position.server_uuid:
            return
        at = written_position(connection)
    if at.file not in began:
        began[at.file] = file_began(source, at.file)
    lease.assert_held()
    spool.note(at, began[at.file])


def check_boundaries(source: Source, connection: pymysql.Connection, spool: Spool) -> None:
    """Forget the noted boundaries that are of another binlog: a crash may have taken the end of the source's.

    It goes on in a new file then. So a boundary holds in a file that is long enough, and began when it did.
    """
    noted = spool.boundaries
    if not noted:
        return
    sizes = file_sizes(connection)
    there = {at: second for at, second in noted.items() if at.pos <= sizes.get(at.file, -1)}
    began = {file: file_began(source, file) for file in {at.file for at in there}}
    spool.keep_boundaries([at for at, second in there.items() if began[at.file] == second])
