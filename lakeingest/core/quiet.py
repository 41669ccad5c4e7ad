"""Quiet tables: readers see the source's table at a later position, too, because nothing changed in between.

Such a table needs no commit: the pipeline's state notes the later position, for the very commit that readers see. If
the state is lost, only the commits are known. So a quiet table gets a commit before the source drops the binlog after
its last one.
"""

import zlib
from dataclasses import dataclass

from lakeingest.core.position import Position
from lakeingest.core.schema import TableId

RETENTION_SECONDS = 30 * 86_400  # MySQL's default; used if the source drops no binlog by itself


@dataclass(frozen=True, slots=True)
class Quiet:
    """The commit `version`, which readers see, is the source's table as of `position`.

    `since` is the second (since 1970) in which a run first noted a position for this version.
    """

    version: int
    position: Position
    since: int

    def needs_commit(self, table: TableId, now: int, retention: int | None) -> bool:
        """Whether the position is to be committed now: between a quarter and a half of the retention after `since`.

        `retention` is how long the source keeps its binlog, in seconds; None: it drops none. The exact time depends on
        the table's name, so that many tables are not committed at once. If `since` is in the future, it is from a clock
        that was ahead, and its age is unknown: then the position is committed at once.
        """
        share = (1 + zlib.crc32(str(table).encode()) / 2**32) / 4
        return now < self.since or now - self.since >= share * (retention or RETENTION_SECONDS)
