"""Retention: how long the source will keep the binlog that the next run needs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from lakeingest.config import Config
from lakeingest.core.binlog.position import Position, files_after, is_in_one_of
from lakeingest.core.copies.progress import Progress
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.tables.schema import TableId
from lakeingest.mysql.source import Source
from lakeingest.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class Retention:
    """A server's binlog `files`, and the age in `seconds` at which the server deletes a file.

    `seconds` is None if the server keeps files for ever, or does not say. `now` is the time of the server's clock, in
    seconds since 1970.
    """

    server_uuid: str
    files: Sequence[str]
    seconds: int | None
    now: int
    _known: dict[str, int] = field(default_factory=dict, init=False, compare=False)  # by file, when it began

    @classmethod
    def of_source(cls, source: Source, files: Sequence[str]) -> "Retention":
        """Ask this source for its retention. `files` are the files of the source's binlog."""
        return cls(source.uuid(), files, source.shown_retention_seconds(), source.clock())

    def has_deleted(self, position: Position) -> bool:
        """Whether the server has deleted the binlog after a position; False for a position of another server."""
        return position.server_uuid == self.server_uuid and not is_in_one_of(position.at, self.files)

    def seconds_left(self, config: Config, position: Position) -> int | None:
        """For how many seconds the source will still keep the binlog after a position; 0 if it is deleted already.

        None if the binlog is kept for ever, if the retention is unknown, or if the position is of another server. The
        age of a binlog file counts from the end of the file, which is when the next file began.
        """
        if position.server_uuid != self.server_uuid:
            return None
        if self.has_deleted(position):
            return 0
        if self.seconds is None:
            return None
        later_files = files_after(position.at, self.files)
        if not later_files:  # the server still writes the file, which has not ended yet
            return self.seconds
        return max(0, self._began(config, later_files[0]) + self.seconds - self.now)

    def _began(self, config: Config, file: str) -> int:
        """When a file began. The server is asked once for each file, because thousands of tables may need it."""
        from lakeingest.mysql.continuity import file_began  # it takes long to import

        if file not in self._known:
            self._known[file] = file_began(config.source, file)
        return self._known[file]

    def warning(self, seconds_left: Collection[int]) -> str | None:
        """A warning if less than half of the retention is left for one of the tables; otherwise None.

        `seconds_left`: for how many seconds the source will still keep the binlog of each table. Tables for which this
        is unknown or has no limit are left out.
        """
        if not seconds_left or self.seconds is None:
            return None
        least = min(seconds_left)
        if least * 2 >= self.seconds:  # half of the retention is left, or more
            return None
        return (
            f"the binlog that the next run needs will be deleted in {spoken(least)} (the source keeps it"
            f" for {spoken(self.seconds)}); run before that, or raise the retention"
        )


def binlog_gone_message(tables: Iterable[TableId]) -> str:
    """The message for tables of which the source has deleted binlog that no run has read."""
    return (
        f"the source no longer has the binlog that the next run needs of {', '.join(map(str, tables))}: changes"
        " are lost; `lakeingest explain BinlogGone` says what to do"
    )


def unread_from(spool: Spool | None, progress: Progress) -> Position | None:
    """The position after which no run has read the binlog for a table.

    This is the end of the spool if the spool has all changes that the copy still needs. Otherwise it is the position of
    the copy; None if the copy has no position yet.
    """
    if spool is None or (spool.position.server_uuid, spool.position.epoch) != (progress.server_uuid, progress.epoch):
        return progress.position  # a spool of another server or epoch has no changes for this copy
    is_spooled = spool.watched_from(progress.table) <= progress.needed_from <= spool.position.place
    return spool.position if is_spooled else progress.position
