"""Retention: how long the source will keep the binlog that the next run needs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lakeingest.config import Config
from lakeingest.core.clocks import spoken
from lakeingest.core.position import Position, files_after, is_in_one_of
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.mysql.source import Source
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Retention:
    """A server's binlog `files`, and the age in `seconds` at which it deletes them. `now` is its clock, since 1970.

    `seconds` is None if it keeps them for good, or does not say.
    """

    server_uuid: str
    files: Sequence[str]
    seconds: int | None
    now: int

    @classmethod
    def asked(cls, source: Source, files: Sequence[str]) -> "Retention":
        """The retention of this source, whose binlog has these files."""
        return cls(source.uuid(), files, source.shown_retention_seconds(), source.clock())

    def lacks(self, position: Position) -> bool:
        """Whether the server has dropped the binlog after a position; False for a position of another server."""
        return position.server_uuid == self.server_uuid and not is_in_one_of(position.at, self.files)

    def left(self, config: Config, position: Position) -> int | None:
        """The seconds for which the source will keep the binlog after a position: 0 if it is deleted.

        A file's age counts from its end, which is the start of the next file. None if the binlog is kept for good, if
        the retention is not known, or if the position is of another server.
        """
        from lakeingest.mysql.continuity import file_began  # numba: it takes a second to import

        if position.server_uuid != self.server_uuid:
            return None
        if self.lacks(position):
            return 0
        if self.seconds is None:
            return None
        later = files_after(position.at, self.files)
        ended = file_began(config.source, later[0]) if later else self.now
        return max(0, ended + self.seconds - self.now)

    def warning(self, seconds_left: Collection[int]) -> str | None:
        """A warning if less than half of the retention is left for one of the tables; otherwise None."""
        if not seconds_left or self.seconds is None or min(seconds_left) * 2 >= self.seconds:
            return None
        return (
            f"the binlog that the next run needs will be deleted in {spoken(min(seconds_left))} (the source keeps it"
            f" for {spoken(self.seconds)}); run before that, or raise the retention"
        )


def gone(tables: Iterable[TableId]) -> str:
    """The message for tables whose binlog the source has deleted before a run has read it."""
    return (
        f"the source no longer has the binlog that the next run needs of {', '.join(map(str, tables))}: changes"
        " are lost; `lakeingest explain BinlogGone` says what to do"
    )


def unread(spool: Spool | None, progress: Progress) -> Position | None:
    """The position after which the binlog is still unread for a table; None if its copy has no position yet.

    This is the spool's end if the spool has the table's changes up to there, otherwise the position of the copy.
    """
    if spool is None or (spool.position.server_uuid, spool.position.epoch) != (progress.server_uuid, progress.epoch):
        return progress.position
    is_spooled = spool.watched_from(progress.table) <= progress.needed_from <= spool.position.place
    return spool.position if is_spooled else progress.position
