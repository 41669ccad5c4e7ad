"""One table of a run: its definition, its copy, its state. Stages change these only by the methods of `TableRun`."""

import enum
from dataclasses import dataclass, field
from typing import Protocol

from lakeingest.config.tables import TableOptions
from lakeingest.core.binlog.position import Place
from lakeingest.core.copies.needed import needed_by
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId, TableSchema
from lakeingest.errors import LakeIngestError, SpoolGap
from lakeingest.lake.target import Staged
from lakeingest.pipeline.run.watch import Turn, Watch, after
from lakeingest.state.stopped import Stopped


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a table stopped: the error, which the run raises at its end, and the record that `status` prints.

    `at` is the time of the monotonic clock at which the table stopped.
    """

    error: LakeIngestError
    record: Stopped
    at: float


class Trust(enum.Enum):
    """Whether the definition by which a table's rows are read is in force."""

    IN_FORCE = "in force"
    ALTERED_UNSEEN = "altered unseen"  # the source has another definition, and no DDL in the spool so far explains it
    SUSPECT = "suspect"  # rows may have been read by a wrong definition, so all must be read again


class ReadBeside(Protocol):
    """A re-snapshot that reads rows of a table again in the background."""

    @property
    def since(self) -> Place:
        """The place where the spool ended before the first low watermark of the read."""

    def cancel(self) -> None:
        """Give up the read."""


@dataclass(slots=True)
class TableRun:
    """A table within one run. Every stage reads its fields, but only this class assigns them (`tests/test_layers.py`).

    `definition`: the definition by which rows are read; None if the table cannot be copied.
    `requested`: this run is to bring the table up to date. Of any other table, the run only keeps changes in the spool.
    `failure`: why the table has stopped; None if it goes on.
    `paused`: someone has paused the table: it is watched, and nothing else is done with it.
    `approved`: the names of the DDL that a person has approved.
    `copy`: the staged state; None if the table has no copy.
    `reading`: the re-snapshot that reads in the background.
    `sound`: each staged row has passed a gate, or was checked when it was written.
    `recopies`: how often the table was copied again because of DDL since its last publish.

    The other fields are about the foreign keys whose changes the source does not log:
    `cascade_keys`: the signature of these foreign keys.
    `compared`: how often all rows were compared because of these foreign keys since the last publish.
    `cascades_read_to`: a merge to this place gets all changes by these foreign keys.
    """

    id: TableId
    options: TableOptions
    definition: TableSchema | None
    requested: bool
    watch: Watch
    failure: Failure | None = field(default=None, init=False)
    trust: Trust = field(default=Trust.IN_FORCE, init=False)
    paused: bool = field(default=False, init=False)
    approved: frozenset[str] = field(default=frozenset(), init=False)
    copy: Staged | None = field(default=None, init=False)
    reading: ReadBeside | None = field(default=None, init=False)
    sound: bool = field(default=False, init=False)
    recopies: int = field(default=0, init=False)
    cascade_keys: str = field(default="", init=False)
    compared: int = field(default=0, init=False)
    cascades_read_to: Place | None = field(default=None, init=False)
    _shown: Progress | None = field(default=None, init=False)  # the progress that readers see; None: not known

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
    def is_joining(self) -> bool:
        """Whether a copy of the table must be begun, or begun again."""
        return self.watch in {Watch.JOINING, Watch.REJOINING}

    @property
    def is_watched(self) -> bool:
        """Whether the spool has the table's changes, or gets them once its rows are lifted."""
        return self.watch in {Watch.WATCHED, Watch.AT_DDL}

    @property
    def has_missing_chunks(self) -> bool:
        """Whether chunks of the table are still to be read."""
        return not self.progress.splits.complete

    @property
    def has_cascades(self) -> bool:
        """True if the staged rows have all changes by foreign keys up to their position, or if none are looked for."""
        cascades, position = self.progress.cascades, self.progress.position
        if self.options.cascades != "read" or (cascades is None and not self.cascade_keys):
            return True  # none are looked for
        if cascades is None or position is None:
            return False
        return (cascades.keys, cascades.to) == (self.cascade_keys, position.place)

    @property
    def needed_from(self) -> Place | None:
        """The place after which the table needs its changes; None if the place is not known.

        If someone compacts the published commit, staging is built again on that commit. So the spool also keeps the
        changes after the published commit, which may begin before the changes that staging needs. But a copy that was
        started over, or went on over a gap, never continues from its published commit: it needs only the changes for
        staging.
        """
        if self.copy is None:
            return None
        may_continue_from_published = self.copy.published is not None and not self._is_started_over
        if may_continue_from_published and self._shown is None:  # the run has not seen what readers see
            return None
        visible = self._shown if may_continue_from_published else None
        reads = [] if self.reading is None else [self.reading.since]
        return needed_by(self.progress, visible, reads)

    @property
    def copy_places(self) -> set[Place]:
        """The positions of the copy, as places: the position of its staged rows, and the position that readers see."""
        states = [] if self.copy is None else [self.progress, self._shown]
        return {state.position.place for state in states if state is not None and state.position is not None}

    @property
    def shown(self) -> Progress | None:
        """The progress that readers see; None if nothing is published, or if this run does not know it."""
        return self._shown

    def is_shown_as_of(self, place: Place) -> bool:
        """True if this run knows that readers see the table as of this place or a later one."""
        position = None if self._shown is None else self._shown.position
        return position is not None and position.place >= place

    @property
    def _is_started_over(self) -> bool:
        """True if this run knows that the copy does not continue from the commit that readers see."""
        if self._shown is None:  # readers never see a copy with a gap or with missing chunks
            return self.progress.restarts > 0 and (self.progress.gap or not self.progress.splits.complete)
        return self.progress.restarts > self._shown.restarts

    # What happens to the table: each method notes the event that its docstring states

    def fail(self, failure: Failure) -> None:
        """The table stops at its last commit, for this reason."""
        self.failure = failure

    def clear_failure(self) -> None:
        """The table goes on, or is copied again."""
        self.failure = None

    def obey(self, *, paused: bool, approved: frozenset[str]) -> None:
        """Take over what people have decided: whether the table is paused, and which DDL is approved."""
        self.paused, self.approved = paused, approved

    def joins_by(self, definition: TableSchema) -> None:
        """The table joins, and its rows are read by this definition, which is in force."""
        self.definition, self.trust = definition, Trust.IN_FORCE

    def joined(self) -> None:
        """The spool watches the table from the start of its copy on."""
        self.watch = after(self.watch, Turn.JOINED)

    def cannot_join(self) -> None:
        """The table could not join, and is not watched."""
        self.watch = after(self.watch, Turn.REFUSED)

    def reached_ddl(self, definition: TableSchema | None = None) -> None:
        """The spool has DDL over which the rows are not lifted yet.

        `definition` is the definition of the rows; None if `self.definition` is that already.
        """
        self.definition = definition or self.definition
        self.watch = after(self.watch, Turn.REACHED_DDL)

    def passed_ddl(self) -> None:
        """The rows are lifted over all DDL in the spool, and the spool has the table's changes up to its end."""
        self.watch = after(self.watch, Turn.PASSED_DDL)

    def lost_change(self) -> None:
        """The binlog holds a change of the table that cannot be replayed."""
        self.watch = after(self.watch, Turn.LOST)

    def recopy(self, definition: TableSchema, *, compares: bool) -> None:
        """All rows must be read again by this definition. With `compares`, rows of the copy that are right stay.

        The table has no failure any more, and joins again.
        """
        self.cancel_reading()
        self.definition, self.trust, self.failure = definition, Trust.IN_FORCE, None
        self.watch = after(self.watch, Turn.COMPARED if compares else Turn.COPIED_AGAIN)

    def drop_copy(self, definition: TableSchema) -> None:
        """The copy was removed from the lake; the table is to be copied by this definition."""
        self.recopy(definition, compares=False)
        self.copy = None

    def note_recopies(self, count: int) -> None:
        """The table was copied again because of DDL, `count` times since its last publish."""
        self.recopies = count

    def know_layout(self, definition: TableSchema) -> None:
        """Use this definition. It differs from the table's definition only in the layout, which the source has told."""
        self.definition = definition

    def found_altered(self) -> None:
        """The source has another definition, and no DDL in the spool explains it."""
        if self.trust is Trust.IN_FORCE:
            self.trust = Trust.ALTERED_UNSEEN

    def doubt_rows(self) -> None:
        """Rows may have been read by a wrong definition, so all rows must be read again."""
        self.trust = Trust.SUSPECT

    def read_beside(self, reading: ReadBeside) -> None:
        """The re-snapshot `reading` reads rows again in the background."""
        self.reading = reading

    def end_reading(self) -> None:
        """The background read has ended."""
        self.reading = None

    def cancel_reading(self) -> None:
        """Give up the background read of the table. The files of the read are removed with those of its signal."""
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None

    def know_cascade_keys(self, keys: str) -> None:
        """The foreign keys whose changes must be read again have this signature; '' if there are none."""
        self.cascade_keys = keys

    def record_cascades(self, to: Place) -> None:
        """A merge to this place gets all changes by the foreign keys of `cascade_keys`."""
        self.cascades_read_to = to

    def count_comparison(self) -> int:
        """All rows are compared once more because of foreign keys. Returns the count since the last publish."""
        self.compared += 1
        return self.compared

    def forget_comparisons(self) -> None:
        """Begin again to count comparisons, from zero."""
        self.compared = 0

    def reload(self, staged: Staged) -> None:
        """The run has loaded the table from the lake again.

        Raises SpoolGap if the loaded commit is from before the copy was started over, because the spool does not have
        all changes after that commit. That happens if someone has changed the published table.
        """
        if self.copy is not None and staged.progress.restarts < self.progress.restarts:
            raise SpoolGap(
                f"{self.id}: its copy was started over, and someone changed the table meanwhile, so that its rows are"
                f" lost; `lakeingest resnapshot {self.id}` starts it over again"
            )
        self.advance(staged)

    def lift(self, staged: Staged, definition: TableSchema) -> None:
        """A commit has brought the rows to this definition."""
        self.definition, self.trust = definition, Trust.IN_FORCE
        self.advance(staged, sound=True)

    def advance(self, staged: Staged, *, sound: bool = False) -> None:
        """A commit was made, or the table was loaded: use this staged state.

        `sound`: the rows that the commit added are sound. All rows are sound if these rows and the older rows are. All
        rows are also sound if readers see them, in this commit or another, because they have passed their gate.
        """
        is_same_commit = self.copy is not None and self.copy.version == staged.version
        are_older_sound = self.copy is None or self.sound  # without a copy there are no older rows
        are_new_sound = sound or is_same_commit  # the same commit has no new rows
        are_published = staged.visible or staged.same_rows
        self.sound = are_published or (are_older_sound and are_new_sound)
        cascades = staged.progress.cascades
        if cascades is not None and self.cascades_read_to is not None and cascades.to < self.cascades_read_to:
            self.cascades_read_to = None  # rows were read again, and may lack changes up to that place
        if staged.visible:
            self._shown, self.recopies, self.compared = staged.progress, 0, 0
        self.copy = staged
