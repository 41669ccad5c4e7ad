"""Quiet tables: what readers see is also the source's table at a later position, because nothing has changed since.

Such a table needs no commit: the pipeline's state notes the later position, for the commit that readers see. But if the
state is lost, only the positions in commits are known. So a quiet table gets a commit before the source drops the
binlog after its last commit.
"""

import zlib
from dataclasses import dataclass

from lakeingest.core.position import Position
from lakeingest.core.schema import TableId

RETENTION_SECONDS = 30 * 86_400  # MySQL's default; used if the source drops no binlog by itself


@dataclass(frozen=True, slots=True)
class Quiet:
    """A note: the commit `version`, which readers see, is the source's table as of `position`.

    `since` is the second (since 1970) in which a run first noted a position for this version.
    """

    version: int
    position: Position
    since: int

    def needs_commit(self, table: TableId, now: int, retention: int | None) -> bool:
        """Whether the position is to be committed now, because a quarter to a half of the retention has passed.

        `retention`: how long the source keeps its binlog, in seconds; None if it keeps all of it. The time counts from
        `since`, and the exact share depends on the table's name, so that many tables are not committed at once. If
        `since` is in the future, the clock was ahead, and the age of the note is unknown: then the position is
        committed now.
        """
        share = (1 + zlib.crc32(str(table).encode()) / 2**32) / 4
        return now < self.since or now - self.since >= share * (retention or RETENTION_SECONDS)
