"""Boundaries: positions at which a backlog of the binlog can be cut, so that several readers decode it in parallel.

From time to time, a run notes the written position, which is always the end of a transaction. During a long merge, the
source may write much into one binlog file. Without boundaries, a single reader would have to decode all of that file.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lakeingest.core.binlog.position import is_within
from lakeingest.errors import LakeIngestError, Retryable
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.spool.spool import Spool

EVERY_SECONDS = 10.0


@contextmanager
def note_boundaries(source: BinlogSource, spool: Callable[[], Spool]) -> Iterator[None]:
    """While the block runs, note the written position in the spool every 10 s, each time on a new connection.

    If a note fails, the binlog is cut at fewer positions; nothing else depends on the notes.
    """
    stop = threading.Event()
    began: dict[str, int] = {}  # by binlog file, the second in which the server began it

    def note() -> None:
        """Note positions until `stop` is set."""
        with suppress(LakeIngestError):  # an error that is not Retryable ends the notes, but not the run
            while not stop.wait(EVERY_SECONDS):
                with suppress(Retryable):  # the source may be back the next time
                    _note(source, spool(), began)

    thread = threading.Thread(target=note, name="boundaries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(BinlogSource.CONNECT_SECONDS)  # the thread may wait for a connection


def _note(source: BinlogSource, spool: Spool, began: dict[str, int]) -> None:
    """Note the written position once, with the second in which its file was begun (`began` remembers it by file).

    If the connection reaches another server, note nothing.
    """
    with source.beside() as connection:
        if connection.state().uuid != spool.position.server_uuid:
            return
        at = connection.written()
    if at.file not in began:
        began[at.file] = source.file_began(at.file)
    spool.note(at, began[at.file])


def check_boundaries(source: BinlogSource, spool: Spool) -> None:
    """Forget the noted boundaries that the source's binlog no longer has: a crash may have cut off the binlog's end.

    After a crash the source writes to a new file. So a boundary is valid if its file is still long enough, and if the
    file was begun in the noted second.
    """
    noted = spool.boundaries  # by boundary, the second in which its file was begun
    if not noted:
        return
    sizes = source.files()
    within_files = {at: second for at, second in noted.items() if is_within(at, sizes)}
    began = {file: source.file_began(file) for file in {at.file for at in within_files}}
    spool.keep_boundaries([at for at, second in within_files.items() if began[at.file] == second])
