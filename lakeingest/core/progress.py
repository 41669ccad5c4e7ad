"""A table's progress: a value with everything that its next step depends on. `phases` says which step may follow."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from lakeingest.core.cascades import CascadesRead
from lakeingest.core.keys import EVERY_KEY, Key
from lakeingest.core.phases import TRANSITIONS, IllegalStep, Phase, Step
from lakeingest.core.position import Place, Position
from lakeingest.core.rereads import Patch, Reread, united
from lakeingest.core.schema import TableId
from lakeingest.core.splits import Split, Splits
from lakeingest.core.wave import MergePlan
from lakeingest.errors import SpoolGap

Read = TypeVar("Read", Split, Patch)


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything that a table's next step depends on; stored whole in every staging commit, never as a delta.

    `covered_from`: the place from which on the spool has the table's changes. Each read view opened since then has all
    changes before it, so a low watermark that is a place is never before it.
    `rows`: how many staged rows the commits so far must have left.
    `position`: the stop of the last merge; before the first merge, the position at `covered_from`; None if unknown.
    `nulled`: how many values are NULL only because the user chose so.
    `read_to`: the greatest high watermark of the chunks, with its history of the binlog; None if it was not noted.

    `patches`: rows that were read again and wait for the next merge.
    `reread_since`: a place that the lows of all rows that were read again contain; None once a merge levels the table.
    `reread`: the re-snapshot that runs.
    `answered`: the signals whose rows are all on staging. They are done once readers see such progress.
    `uncounted`: rows were read again, so `rows` also counts rows that the target had lost or doubled; the gates count
    the rows anew.
    `gap`: the rows lack unknown changes from before `position`. Until a re-snapshot of all rows has closed the gap,
    readers do not see them.
    `restarts`: how often the copy was started over, or went on over a gap.
    `cascades`: up to where the rows have changes by foreign keys that the source does not log; None if nobody looks
    for them.
    """

    table: TableId
    fingerprint: str
    server_uuid: str
    epoch: int
    covered_from: Place
    phase: Phase = Phase.NEW
    wave: int = 0
    rows: int = 0
    splits: Splits = field(default_factory=Splits)
    position: Position | None = None
    nulled: int = 0
    read_to: Position | None = None
    patches: tuple[Patch, ...] = ()
    reread_since: Place | None = None
    reread: Reread | None = None
    answered: tuple[int, ...] = ()
    uncounted: bool = False
    gap: bool = False
    restarts: int = 0
    cascades: CascadesRead | None = None

    def __post_init__(self) -> None:
        if self.phase in {Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED}:
            if self.position is None or self.stop != self.position.place:
                raise ValueError(f"{self.table} is {self.phase} but its splits do not stand at its position")
            if (self.uncounted or self.gap) and self.phase is not Phase.LEVEL:
                raise ValueError(f"{self.table} is {self.phase} but its rows were not counted, or have a gap")
        elif self.phase is Phase.COPIED and not self.splits.complete:
            raise ValueError(f"{self.table} is copied but chunks are missing")
        if self.rows < 0 or self.wave < 0:
            raise ValueError(f"{self.table}: negative counts")

    @property
    def stop(self) -> Place | None:
        """Where all staged rows stand. None if splits stand at several places, or patches wait for a merge."""
        return None if self.patches else self.splits.stop

    @property
    def needed_from(self) -> Place:
        """The place after which the table's next merge needs all changes; it needs no change at or before this place.

        It is the stop; without a stop a place that the lows of all rereads contain; else where the spool began to watch
        the table.
        """
        return self.stop or self.reread_since or self.covered_from

    def _after(self, step: Step, **changes: Any) -> Self:
        following = TRANSITIONS.get((self.phase, step))
        if following is None:
            raise IllegalStep(f"{self.table}: no {step} when {self.phase}")
        return replace(self, phase=following, **changes)

    def created(self) -> Self:
        """The empty target exists."""
        return self._after(Step.CREATED)

    def wave_committed(
        self,
        wave: tuple[Split, ...],
        rows: int,
        nulled: int = 0,
        read_to: Position | None = None,
    ) -> Self:
        """One more wave is on staging: these splits, with `rows` rows in all, of which `nulled` values were made NULL.

        `read_to` is the greatest high watermark of the wave.
        """
        splits = self.splits.finish(_contains(split, self.covered_from) for split in wave)
        step = Step.LAST_WAVE if splits.complete else Step.WAVE
        following = self._after(
            step,
            splits=splits,
            wave=self.wave + 1,
            rows=self.rows + rows,
            nulled=self.nulled + nulled,
            read_to=_later(self.read_to, read_to),
        )
        if not splits.complete:
            return following
        answered = united(self.answered, self.reread.signals if self.reread else (), ())
        return replace(following, reread=None, answered=answered)

    def reread_rows(
        self,
        patches: Collection[Patch],
        since: Place,
        *,
        signals: Collection[int] = (),
        up_to: Key | None = None,
        last: bool = False,
        done: Collection[int] = (),
        nulled: int = 0,
        read_to: Position | None = None,
    ) -> Self:
        """Rows were read again; patches of rows that differ from the staged ones wait for the next merge.

        The files of the patches are durable, and no staged row has changed. Without patches, the copy is level and has
        all those rows. Their views have all changes before `since`, and the spool has the changes after it.
        `signals` are the signals that the re-snapshot answers once its `last` rows are read. `done` are signals
        whose documents say that they are done. `up_to` is the key before which all requested rows are read.
        """
        answers = self._answers(Reread(tuple(signals), up_to), last=last, done=done)
        if not patches:
            return self._after(Step.SAME, **answers)
        return self._patched(patches, since, nulled, read_to, **answers)

    def cascades_read(
        self, patches: Collection[Patch], since: Place, read: CascadesRead, *, nulled: int, read_to: Position
    ) -> Self:
        """The rows that foreign keys may have changed were read again: from now on `cascades` is `read`.

        Their view has every transaction up to the place in `read`. A re-snapshot that runs goes on.
        """
        return self._patched(patches, since, nulled, read_to, cascades=read)

    def _patched(
        self, patches: Collection[Patch], since: Place, nulled: int, read_to: Position | None, **changes: Any
    ) -> Self:
        """The step PATCH: the patches wait for the next merge. Raises SpoolGap if the spool begins after `since`."""
        waiting = (*self.patches, *(_contains(patch, since) for patch in patches))
        names = [patch.name for patch in waiting]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.table}: two patches with one name of {names}")
        if since < self.covered_from:
            raise SpoolGap(f"the spool begins at {self.covered_from}, rows that were read again need it from {since}")
        # None until all splits were merged once: the next merge needs every spooled change then
        needed_since = self.stop or self.reread_since
        # the views may lack later changes by foreign keys, and the patches would undo these
        cascades = self.cascades and replace(self.cascades, to=min(self.cascades.to, since))
        return self._after(
            Step.PATCH,
            patches=waiting,
            nulled=self.nulled + nulled,
            read_to=_later(self.read_to, read_to),
            reread_since=None if needed_since is None else min(needed_since, since),
            uncounted=True,
            **{"cascades": cascades} | changes,
        )

    def _answers(self, reread: Reread, *, last: bool, done: Collection[int]) -> dict[str, Any]:
        """The changed fields: how far the re-snapshot has come, the answered signals, and whether a gap is left."""
        return {
            "reread": reread if (reread.signals or self.gap) and not last else None,
            "answered": united(self.answered, reread.signals if last else (), done),
            "gap": self.gap and not last,
        }

    def started_over(self, new: Self, *, signals: Collection[int] = ()) -> Self:
        """The copy begins again with the `new` progress, because changes are lost, or cannot be applied to it.

        The same commit empties staging. The last wave answers all `signals` that asked to read rows of the table again.
        """
        if new.table != self.table or new.phase is not Phase.NEW:
            raise ValueError(f"{self.table} starts over as it was created, not as {new.table}, {new.phase}")
        return replace(
            new,
            phase=self._after(Step.RESTART).phase,
            reread=Reread(tuple(signals)) if signals else None,
            answered=self.answered,
            restarts=self.restarts + 1,
        )

    def over_gap(
        self,
        position: Position,
        fingerprint: str,
        covered_from: Place,
        *,
        signals: Collection[int] = (),
        cascades: CascadesRead | None = None,
    ) -> Self:
        """Give the rows a later `position`, although the changes in between are not known.

        The spool watches the table from `covered_from` on. All rows must be read again, including rows of missing
        chunks; the last of them answer the `signals`. Raises ValueError if no chunk was read, or patches wait.
        """
        if self.patches or not self.splits.all:
            raise ValueError(f"{self.table}: it has no rows that could be those of one position")
        return self._after(
            Step.GAP,
            fingerprint=fingerprint,
            server_uuid=position.server_uuid,
            epoch=position.epoch,
            covered_from=covered_from,
            splits=Splits((Split(EVERY_KEY, merged_at=position.place),)),
            position=position,
            read_to=None,
            reread_since=None,
            reread=Reread(tuple(signals)) if signals else None,
            uncounted=True,
            gap=True,
            restarts=self.restarts + 1,
            cascades=cascades,
        )

    def merged(self, plan: MergePlan, position: Position, inserted: int, deleted: int, nulled: int = 0) -> Self:
        """A merge to `position` is on staging: it inserted and deleted so many keys, and made `nulled` values NULL."""
        if plan.stop != position.place:
            raise ValueError(f"{self.table}: merged to {plan.stop}, which is not {position.place}")
        splits, merged = self.splits.lift(plan.splits, plan.stop), {patch for patch, _ in plan.patches}
        if not merged <= set(self.patches):
            raise ValueError(f"{self.table}: the merge was planned on other patches")
        patches = tuple(patch for patch in self.patches if patch not in merged)
        step = Step.PARTIAL_MERGE if patches or splits.stop is None else Step.MERGE
        return self._after(
            step,
            splits=splits,
            position=position,
            rows=self.rows + inserted - deleted,
            nulled=self.nulled + nulled,
            patches=patches,
            reread_since=None if step is Step.MERGE else self.reread_since,
        )

    def unchanged(self, position: Position) -> Self:
        """The table had no change up to this later position, not even by foreign keys: its rows are the source's there.

        The next commit will store this progress. Raises ValueError if the position is not later, or of another server.
        """
        later = self._later(Step.QUIET, position, self.fingerprint)
        return replace(later, cascades=self.cascades and replace(self.cascades, to=position.place))

    def lifted(self, position: Position, fingerprint: str) -> Self:
        """The rows have the table's next definition, and `position` is the end of the DDL that made it.

        The table stood at the start of that DDL, because a merge never crosses DDL. Raises ValueError if the position
        is not later, or of another server.
        """
        return self._later(Step.LIFT, position, fingerprint)

    def emptied(self, position: Position, fingerprint: str) -> Self:
        """TRUNCATE, of which `position` is the end, has removed all rows; else as `lifted`."""
        return replace(self.lifted(position, fingerprint), rows=0)

    def moved(self, position: Position) -> Self:
        """The same rows after a failover: `position` is where the new server has the same transactions.

        Patches are dropped, because their watermarks are places of the old server; the signals that they answered are
        served again. Raises ValueError unless all splits stand at the old position.
        """
        if self.position is None or self.splits.stop != self.position.place:
            raise ValueError(f"{self.table}: its splits do not stand at one position")
        reread, answered = (None, ()) if self.patches else (self.reread, self.answered)
        cascades = None
        if self.cascades is not None and self.cascades.to == self.position.place:
            cascades = replace(self.cascades, to=position.place)
        return self._after(
            Step.MOVE,
            server_uuid=position.server_uuid,
            epoch=position.epoch,
            covered_from=position.place,
            splits=self.splits.lift(self.splits, position.place),
            position=position,
            read_to=None,
            patches=(),
            reread_since=None,
            reread=reread,
            answered=answered,
            cascades=cascades,
        )

    def is_proven(self, place: Place) -> bool:
        """Whether the copy is incomplete or not merged, and its chunks saw nothing after this place."""
        is_partial = bool(self.splits.all) and self.splits.stop is None
        return is_partial and self.epoch == place.epoch and all(split.floor <= place for split in self.splits.all)

    def carried(self, opened: Position, reached: Position) -> Self:
        """The chunks of an incomplete copy on another server, which has all transactions that they saw.

        At its position `opened`, that server has the transactions up to `covered_from`, or fewer; at `reached` it has
        all that the chunks saw. So each chunk gets `reached` as its high watermark, and `opened` as its low one.
        Changes that a chunk has seen are applied once more, which gives the same last row of each key. The next merge
        needs all changes after `opened`, which is the copy's position until then.
        """
        low = opened.place if opened.gtids is None else opened.gtids
        return self._after(
            Step.CARRY,
            server_uuid=opened.server_uuid,
            epoch=opened.epoch,
            covered_from=opened.place,
            splits=Splits().finish(Split(split.range, low, reached.place) for split in self.splits.all),
            position=opened,
            read_to=reached,
            patches=(),
            reread_since=None,
            cascades=self.cascades and replace(self.cascades, to=opened.place),
        )

    def _later(self, step: Step, position: Position, fingerprint: str) -> Self:
        """The same rows at a later position. Raises ValueError if it is not later, or of another server."""
        following, old = self._after(step, fingerprint=fingerprint), self.position
        if old is None or (position.server_uuid, position.epoch) != (old.server_uuid, old.epoch):
            raise ValueError(f"{self.table}: {position.at} and {old and old.at} are of two servers")
        if position.place <= old.place:
            raise ValueError(f"{self.table}: {position.place} does not come after {old.place}")
        return replace(following, splits=self.splits.lift(self.splits, position.place), position=position)

    def audited(self, rows: int | None = None) -> Self:
        """Every gate passed on the staged rows. `rows`: a gate's count; None only if they are not `uncounted`."""
        if rows is None:
            return self._after(Step.GATES)
        return self._after(Step.GATES, rows=rows, uncounted=False)

    def published(self) -> Self:
        """Readers see the audited rows."""
        return self._after(Step.PUBLISH)


def _contains(read: Read, place: Place) -> Read:
    """The split or patch, whose view has all changes before `place`: if its low is a place, it is at least that one."""
    return replace(read, low=max(read.low, place)) if isinstance(read.low, Place) else read


def _later(first: Position | None, second: Position | None) -> Position | None:
    """The later position, if there is any."""
    positions = [position for position in (first, second) if position is not None]
    return max(positions, key=lambda position: position.place, default=None)
