"""mysql-replication, the library behind LAKEINGEST_WIRE=reference, by itself: on that path we refuse JSON.

Run as `python -m benchmarks.reference wire HOST PORT USER FILE...`; it prints one JSON line of what that took.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from benchmarks.clock import report
from lakeingest.core.binlog.position import FILE_START


def from_wire(host: str, port: int, user: str, files: Sequence[str]) -> int:
    """Read binlog files as a replica; how many rows changed."""
    stream = BinLogStreamReader(
        connection_settings={"host": host, "port": port, "user": user, "ssl_disabled": True},
        server_id=1_000_000 + os.getpid(),
        log_file=files[0],
        log_pos=FILE_START,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    count = 0
    for event in stream:
        if stream.log_file not in files:
            break
        count += len(event.rows)
    stream.close()
    return count


if __name__ == "__main__":
    _, host, port, user, *files = sys.argv[1:]
    report(lambda: from_wire(host, int(port), user, [Path(file).name for file in files]))
