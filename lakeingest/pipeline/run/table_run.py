"""One table of a run: its definition, its staged state, and whether it has stopped."""

import enum
from dataclasses import dataclass, field
from typing import Protocol

from lakeingest.config.tables import TableOptions
from lakeingest.core.needed import needed_by
from lakeingest.core.position import Place
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, SpoolGap
from lakeingest.lake.target import Staged
from lakeingest.state.stopped import Stopped


class Watch(enum.Enum):
    """Whether the spool gets the table's changes from the binlog."""

    JOINING = "joining"  # the table has no copy yet: `join` makes an empty copy, and watches the table from then on
    WATCHED = "watched"
    WAITING = "waiting"  # the binlog holds DDL of the table: the changes after it are read once its rows are lifted
    UNWATCHED = "unwatched"  # the table cannot be copied, or the binlog holds something that cannot be replayed


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a table stopped: the error, which the run raises at its end, and the record of it that `status` prints.

    `at` is the time of the monotonic clock at which the table stopped.
    """

    error: LakeIngestError
    record: Stopped
    at: float


class ReadBeside(Protocol):
    """What is read again for a table in the background, by a re-snapshot."""

    @property
    def since(self) -> Place:
        """The place where the spool ended before its first low watermark was read."""

    def cancel(self) -> None:
        """Nobody wants it any more."""


@dataclass(slots=True)
class TableRun:
    """A table within one run. Stages replace its staged state, commit by commit, with `advance`.

    `definition` is None where the table cannot be copied. `requested`: this run is to bring it up to date; it keeps the
    other tables only in the spool. `paused`: someone asked for that; it is watched, and nothing else is done with it.
    `follows`: where the binlog holds DDL of it, its rows are lifted over that, or read again. `altered_unseen`: when
    the run began, or at the end of the spool, the source had another definition of it than its rows have, and no DDL
    was met yet that says why. `suspect`: rows may have been read by a wrong definition, so all are to be read again.
    `begun_again`: how often it was copied again because of DDL since readers saw it. `over_gap`: when it joins, its
    copy's rows stay and are compared with the source, where that can be done. `approved`: the DDL that a person has
    approved, by its names. `sound`: each staged row has passed a gate, or was checked when it was written.
    """

    id: TableId
    options: TableOptions
    definition: TableSchema | None
    requested: bool
    watch: Watch
    stop: Stop | None = None
    paused: bool = False
    follows: bool = False
    altered_unseen: bool = False
    suspect: bool = False
    begun_again: int = 0
    over_gap: bool = False
    approved: frozenset[str] = frozenset()
    copy: Staged | None = field(default=None, init=False)
    reading: ReadBeside | None = field(default=None, init=False)
    sound: bool = field(default=False, init=False)
    foreign_keys: str = field(default="", init=False)  # the signature of those whose changes are read again
    compared: int = field(default=0, init=False)  # how often all rows were, because of them, since readers saw it
    settled: Place | None = field(default=None, init=False)  # a merge to here has all their changes
    _shown: Progress | None = field(default=None, init=False)  # what readers see; None: not known

    @property
    def schema(self) -> TableSchema:
        """The definition of a table that can be copied."""
        if self.definition is None:
            raise RuntimeError(f"{self.id} has no definition, and a stage asks for it")
        return self.definition

    @property
    def staged(self) -> Staged:
        """The staged state of a table that has a copy."""
        if self.copy is None:
            raise RuntimeError(f"{self.id} has no copy, and a stage asks for it")
        return self.copy

    @property
    def progress(self) -> Progress:
        """The progress that the staged state carries."""
        return self.staged.progress

    @property
    def has_missing_chunks(self) -> bool:
        """Whether chunks of the table are still to be read."""
        return not self.progress.splits.complete

    @property
    def is_settled(self) -> bool:
        """Whether the staged rows have all changes by foreign keys up to their position, where that is asked for."""
        known, position = self.progress.cascades, self.progress.position
        if self.options.cascades != "read" or (known is None and not self.foreign_keys):
            return True
        if known is None or position is None:
            return False
        return (known.keys, known.to) == (self.foreign_keys, position.place)

    @property
    def needed_from(self) -> Place | None:
        """The table needs no change at or before this place; None where that is not known.

        Where someone compacts what readers see, staging is built on that commit again. So the spool keeps what the
        published commit needs, which may be more than staging needs; not where the copy was started over, or went on
        over a gap, because the published commit cannot be continued then.
        """
        if self.copy is None:
            return None
        continues = self.copy.published is not None and not self._is_started_over
        if continues and self._shown is None:
            return None
        reads = [] if self.reading is None else [self.reading.since]
        return needed_by(self.progress, self._shown if continues else None, reads)

    @property
    def stands(self) -> set[Place]:
        """Where the copy stands, and what readers see of it."""
        known = [] if self.copy is None else [self.progress, self._shown]
        return {one.position.place for one in known if one is not None and one.position is not None}

    def is_shown_as_of(self, place: Place) -> bool:
        """Whether it is known that readers see the table as of this place or a later one."""
        position = None if self._shown is None else self._shown.position
        return position is not None and position.place >= place

    @property
    def _is_started_over(self) -> bool:
        """Whether it is known that the commit that readers see is not continued."""
        if self._shown is None:
            return self.progress.restarts > 0 and (self.progress.gap or not self.progress.splits.complete)
        return self.progress.restarts > self._shown.restarts

    def cancel_reading(self) -> None:
        """Drop what is read for the table in the background; its files are removed with those of its signal."""
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None

    def reload(self, staged: Staged) -> None:
        """The table was loaded from the lake again, within a run.

        SpoolGap where that is a commit from before the copy was started over, because someone changed what readers see:
        the spool does not have all changes after it.
        """
        if self.copy is not None and staged.progress.restarts < self.progress.restarts:
            raise SpoolGap(
                f"{self.id}: its copy was started over, and someone changed the table meanwhile, so that its rows are"
                f" lost; `lakeingest resnapshot {self.id}` starts it over again"
            )
        self.advance(staged)

    def advance(self, staged: Staged, *, sound: bool = False) -> None:
        """A commit was made, or the table was loaded: this is its staged state now.

        `sound`: the rows that the commit added are sound. The rows before them are as sound as they were. A commit
        that readers see has passed its gate, and someone's compaction of it changes no row.
        """
        unchanged = self.copy is not None and self.copy.version == staged.version
        self.sound = staged.visible or staged.same_rows or ((sound or unchanged) and (self.copy is None or self.sound))
        cascades = staged.progress.cascades
        if cascades is not None and self.settled is not None and cascades.to < self.settled:
            self.settled = None  # older rows were read again
        if staged.visible:
            self._shown, self.begun_again, self.compared = staged.progress, 0, 0
        self.copy = staged
