"""Quiet tables: what readers see is also the source's table at a later position, because nothing has changed since.

Such a table needs no commit: the state folder notes the later position, for the commit that readers see. But if the
state folder is lost, only the positions in commits are known. So a quiet table gets a commit before the source drops
the binlog after the position of the table's last commit.
"""

import zlib
from dataclasses import dataclass

from lakeingest.core.binlog.position import Position
from lakeingest.core.tables.schema import TableId

RETENTION_SECONDS = 30 * 86_400  # MySQL's default; used if the source drops no binlog by itself


@dataclass(frozen=True, slots=True)
class Quiet:
    """A note: the commit `version`, which readers see, has the rows of the source's table as of `position`.

    `since` is the second (since 1970) in which a run first noted a position for this version.
    """

    version: int
    position: Position
    since: int

    def needs_commit(self, table: TableId, now: int, retention: int | None) -> bool:
        """Whether the position is to be committed now, because a quarter to a half of the retention has passed.

        `now` is in seconds since 1970. `retention`: the number of seconds for which the source keeps its binlog; None
        if the source never drops it. The time counts from `since`; True if `since` is later than `now`. The exact share
        of the retention depends on the table's name, so that many tables are not committed at once.
        """
        if now < self.since:
            return True  # the clock was ahead, so the age of the note is unknown
        share = (1 + zlib.crc32(str(table).encode()) / 2**32) / 4  # from 1/4 to 1/2
        return now - self.since >= share * (retention or RETENTION_SECONDS)
