"""A table's progress: a value with everything that the table's next step depends on. `phases` has the allowed steps."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakeingest.core.binlog.position import Place, Position, later_of
from lakeingest.core.cascades.cascades import CascadesRead
from lakeingest.core.copies.phases import TRANSITIONS, IllegalStep, Phase, Step
from lakeingest.core.tables.keys import EVERY_KEY, Key
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.rereads import Patch, Reread, united, with_low_from
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.core.waves.wave import MergePlan
from lakeingest.errors import SpoolGap


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything that a table's next step depends on. Every staging commit stores the whole value, never a difference.

    Each method that is named after a step, such as `created` or `merged`, returns the progress after that step. It
    raises IllegalStep if the phase forbids the step.

    `covered_from`: the place after which the spool has the table's changes. All read views of the table's chunks
    contain the changes up to this place, so a low watermark that is a place is never before `covered_from`.
    `wave`: the number of waves on staging.
    `rows`: the number of rows that staging must have after its newest commit.
    `position`: the stop of the last merge; before the first merge, the position at `covered_from`; None if unknown.
    `nulled`: the number of values that are NULL only because the user chose so.
    `read_to`: the greatest high watermark of chunks and patches, with the binlog's history; None if it was not noted.

    `patches`: rows that were read again and wait for the next merge.
    `reread_since`: the low watermarks of all rows that were read again contain the changes up to this place. Set
    by the first patch after the table was LEVEL; None again once a merge has made the table LEVEL.
    `reread`: the re-snapshot that runs; None if none runs.
    `answered`: the signals whose rows are all on staging. These signals are done once readers see this progress.
    `uncounted`: `rows` may be wrong, because rows that were read again may have replaced lost or doubled rows of the
    target. So the gates count the rows.
    `gap`: changes from before `position` are missing in the rows, and nobody knows which changes. Readers do not see
    the rows until a re-snapshot of all rows has closed the gap.
    `restarts`: how often the copy was started over, or went on over a gap.
    `cascades`: how far the rows have changes by foreign keys that the source does not log; None: nobody looks for them.
    `quarantine`: the keys whose rows failed a gate; the copy has no rows with them.
    `began_empty`: the binlog position where the copy began without rows; None if it has all rows of the source.
    `read_after`: of a companion (`core.companions.companion`): how far it has read the changelog; None for a copy.
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
    quarantine: tuple[Key, ...] = ()
    began_empty: str | None = None
    read_after: str | None = None

    def __post_init__(self) -> None:
        if self.phase in {Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED}:
            if self.position is None or self.stop != self.position.place:
                raise ValueError(f"{self.table} is {self.phase} but its splits do not stand at its position")
            if self.phase is not Phase.LEVEL and (self.uncounted or self.gap):
                raise ValueError(f"{self.table} is {self.phase} but its rows were not counted, or have a gap")
        elif self.phase is Phase.COPIED and not self.splits.complete:
            raise ValueError(f"{self.table} is copied but chunks are missing")
        if self.rows < 0 or self.wave < 0:
            raise ValueError(f"{self.table}: negative counts")

    @property
    def stop(self) -> Place | None:
        """The place of all staged rows. None if chunks are missing, splits are at different places, or patches wait."""
        return None if self.patches else self.splits.stop

    @property
    def needed_from(self) -> Place:
        """The place after which the table's next merge needs all changes. The merge needs no change up to this place.

        It is the first of these that is not None: `stop`, `reread_since`, `covered_from`.
        """
        return self.stop or self.reread_since or self.covered_from

    @property
    def least_stop(self) -> Place:
        """The place before which no merge can stop, because rows may have changes up to this place."""
        highs = [split.floor for split in self.splits.all] + [patch.high for patch in self.patches]
        return max([self.needed_from, *highs])

    def _after(self, step: Step, **changes: Any) -> Self:
        """The progress after the step, with the changed fields. Raises IllegalStep if the phase forbids the step."""
        following = TRANSITIONS.get((self.phase, step))
        if following is None:
            raise IllegalStep(f"{self.table}: no {step} when {self.phase}")
        return replace(self, phase=following, **changes)

    def created(self) -> Self:
        """The empty target exists."""
        return self._after(Step.CREATED)

    def wave_committed(
        self, wave: tuple[Split, ...], rows: int, nulled: int = 0, read_to: Position | None = None
    ) -> Self:
        """One more wave is on staging. `wave`: its splits.

        `rows`: the number of rows of the wave. `nulled`: the number of values in these rows that were made NULL.
        `read_to`: the greatest high watermark of the wave.
        """
        # a low without GTIDs may be too early: the start of a binlog file that was begun before `covered_from`
        splits = self.splits.finish(with_low_from(split, self.covered_from) for split in wave)
        step = Step.LAST_WAVE if splits.complete else Step.WAVE
        following = self._after(
            step,
            splits=splits,
            wave=self.wave + 1,
            rows=self.rows + rows,
            nulled=self.nulled + nulled,
            read_to=later_of(self.read_to, read_to),
        )
        if not splits.complete:
            return following
        # the last wave of a copy that was started over answers the signals that asked for the new start
        asked = self.reread.signals if self.reread else ()
        return replace(following, reread=None, answered=united(self.answered, asked, done=()))

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
        """Rows were read again. Rows that differ from the staged rows are in patches, which wait for the next merge.

        The files of the patches are durable, and no staged row has changed. Without a patch, no row differed.
        `since`: the read views contain all changes up to this place, and the spool has the changes after this place.
        `signals`: the signals of the re-snapshot. `last`: no requested row is left to read, so that the signals are
        answered. `up_to`: the key before which all requested rows are read. `done`: signals whose documents say that
        they are done. `nulled`, `read_to`: as in `wave_committed`. Raises SpoolGap if patches need an earlier spool.
        """
        fields = self._reread_fields(Reread(tuple(signals), up_to), last=last, done=done)
        if not patches:
            return self._after(Step.SAME, **fields)
        return self._patched(patches, since, nulled, read_to, **fields)

    def cascades_read(
        self, patches: Collection[Patch], since: Place, read: CascadesRead, *, nulled: int, read_to: Position
    ) -> Self:
        """The rows that foreign keys may have changed were read again: from now on `cascades` is `read`.

        The read views contain every transaction up to the place in `read`. A running re-snapshot is not affected. The
        other parameters are as in `reread_rows`.
        """
        return self._patched(patches, since, nulled, read_to, cascades=read)

    def _patched(
        self, patches: Collection[Patch], since: Place, nulled: int, read_to: Position | None, **changes: Any
    ) -> Self:
        """The step PATCH: the patches wait for the next merge. Raises SpoolGap if the spool begins after `since`."""
        waiting = (*self.patches, *(with_low_from(patch, since) for patch in patches))
        names = [patch.name for patch in waiting]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.table}: two patches with one name of {names}")
        if since < self.covered_from:
            raise SpoolGap(f"the spool begins at {self.covered_from}, rows that were read again need it from {since}")
        # the next merge needs the changes after this place; all changes if None, as before the first merge to one stop
        needed_since = self.stop or self.reread_since
        # a read view may lack changes by foreign keys after `since`: then its patch takes them out of the copy again. A
        # caller that has looked for these changes passes another `cascades`, which replaces this one
        cascades = self.cascades and replace(self.cascades, to=min(self.cascades.to, since))
        return self._after(
            Step.PATCH,
            patches=waiting,
            nulled=self.nulled + nulled,
            read_to=later_of(self.read_to, read_to),
            reread_since=None if needed_since is None else min(needed_since, since),
            uncounted=True,
            **{"cascades": cascades} | changes,
        )

    def _reread_fields(self, reread: Reread, *, last: bool, done: Collection[int]) -> dict[str, Any]:
        """The fields that a step of a re-snapshot changes: the re-snapshot itself, the answered signals, and the gap.

        Without a signal and without a gap, the re-snapshot is not noted. `last`: the step is the last one.
        """
        is_noted = bool(reread.signals) or self.gap
        return {
            "reread": reread if is_noted and not last else None,
            "answered": united(self.answered, reread.signals if last else (), done),
            "gap": self.gap and not last,
        }

    def started_over(self, new: Self, *, signals: Collection[int] = ()) -> Self:
        """The copy begins again with the `new` progress, of phase NEW, because changes are lost or cannot be applied.

        The commit with this progress empties staging. The last wave of the new copy answers the `signals`.
        """
        if new.table != self.table or new.phase is not Phase.NEW:
            raise ValueError(f"{self.table} starts over as it was created, not as {new.table}, {new.phase}")
        phase = self._after(Step.RESTART).phase  # raises IllegalStep if the old phase forbids the step
        return replace(
            new,
            phase=phase,
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
        """Give the rows another `position`, although the changes up to that position are unknown: the rows have a gap.

        The spool watches the table from `covered_from` on. All rows must be read again, including the rows of missing
        chunks. When the last rows are read, the `signals` are answered. Raises ValueError if no chunk was read, or if
        patches wait. `cascades`: as in the class.
        """
        if self.patches or not self.splits.all:
            raise ValueError(f"{self.table}: it has no rows that could be those of one position")
        return self._after(
            Step.GAP,
            fingerprint=fingerprint,
            server_uuid=position.server_uuid,
            epoch=position.epoch,
            covered_from=covered_from,
            splits=Splits((Split(EVERY_KEY, merged_at=position.place),)),  # also for the keys of missing chunks
            position=position,
            read_to=None,
            reread_since=None,
            reread=Reread(tuple(signals)) if signals else None,
            uncounted=True,
            gap=True,
            restarts=self.restarts + 1,
            cascades=cascades,
        )

    def merged(
        self,
        plan: MergePlan,
        position: Position,
        inserted: int,
        deleted: int,
        nulled: int = 0,
        freed: Collection[Key] = (),
    ) -> Self:
        """The progress after a merge to `position`, which is on staging.

        The table is level if no patch waits, and all splits are merged to the same stop. `inserted`, `deleted`: the
        numbers of keys that the merge inserted and deleted. `nulled`: the number of values that the merge made NULL.
        `freed`: keys of the quarantine of which the merge applied a change.
        Raises ValueError if the plan has another stop, or splits or patches that are not among those of this progress.
        """
        if plan.stop != position.place:
            raise ValueError(f"{self.table}: merged to {plan.stop}, which is not {position.place}")
        splits = self.splits.merged_to(plan.splits, plan.stop)
        merged_patches = {patch for patch, _ in plan.patches}
        if not merged_patches <= set(self.patches):
            raise ValueError(f"{self.table}: the merge was planned on other patches")
        patches = tuple(patch for patch in self.patches if patch not in merged_patches)
        is_level = not patches and splits.stop is not None
        return self._after(
            Step.MERGE if is_level else Step.PARTIAL_MERGE,
            splits=splits,
            position=position,
            rows=self.rows + inserted - deleted,
            nulled=self.nulled + nulled,
            patches=patches,
            reread_since=None if is_level else self.reread_since,
            quarantine=tuple(key for key in self.quarantine if key not in freed),
        )

    def quarantined(self, keys: Collection[Key], rows: int) -> Self:
        """Rows that failed a gate were removed: those of `keys`, none in quarantine yet. `rows`: how many are left."""
        if len({*self.quarantine, *keys}) < len(self.quarantine) + len(keys):
            raise ValueError(f"{self.table}: a key in quarantine has no row that could be removed")
        return self._after(Step.QUARANTINE, rows=rows, quarantine=tuple(sorted((*self.quarantine, *keys))))

    def unchanged(self, position: Position) -> Self:
        """The table had no change up to this later position, not even by foreign keys.

        The next commit will store this progress. Raises ValueError unless `position` is a later one of the same server.
        """
        later = self._at_later_position(Step.QUIET, position, self.fingerprint)
        return replace(later, cascades=self.cascades and replace(self.cascades, to=position.place))

    def lifted(self, position: Position, fingerprint: str) -> Self:
        """The rows have the table's next definition. `position` is the end of the DDL that made this definition.

        The rows were merged up to the start of that DDL, because a merge never crosses DDL. Raises ValueError unless
        `position` is a later one of the same server.
        """
        return self._at_later_position(Step.LIFT, position, fingerprint)

    def emptied(self, position: Position, fingerprint: str) -> Self:
        """The progress after a TRUNCATE that ends at `position`: no rows, no quarantine, else what `lifted` returns."""
        return replace(self.lifted(position, fingerprint), rows=0, quarantine=())

    def moved(self, position: Position) -> Self:
        """The same rows after a failover. On the new server, `position` has the same transactions as the old position.

        Patches are dropped, because their watermarks are places of the old server. They may have rows for signals: if
        there were patches, no signal counts as answered any more, and open signals are served again. Raises ValueError
        if the old position is None, or if a split is not at the old position.
        """
        if self.position is None or self.splits.stop != self.position.place:
            raise ValueError(f"{self.table}: its splits do not stand at one position")
        cascades = self.cascades
        if cascades is not None:
            # of all places of the old server, only the old position is known on the new server
            cascades = replace(cascades, to=position.place) if cascades.to == self.position.place else None
        return self._after(
            Step.MOVE,
            server_uuid=position.server_uuid,
            epoch=position.epoch,
            covered_from=position.place,
            splits=self.splits.merged_to(self.splits, position.place),
            position=position,
            read_to=None,
            cascades=cascades,
            **self._fields_without_patches(),
        )

    def _fields_without_patches(self) -> dict[str, Any]:
        """The fields that change if the patches are dropped. They may have rows for signals, which are open again."""
        reread, answered = (None, ()) if self.patches else (self.reread, self.answered)
        return {"patches": (), "reread_since": None, "reread": reread, "answered": answered}

    def is_proven(self, place: Place) -> bool:
        """Whether the copy is incomplete, and its chunks saw no transaction after this place: `carried` needs both.

        A copy is incomplete if it has chunks, but is not merged to one stop. False for a place of another epoch.
        """
        is_partial = bool(self.splits.all) and self.splits.stop is None
        return is_partial and self.epoch == place.epoch and all(split.floor <= place for split in self.splits.all)

    def carried(self, opened: Position, reached: Position) -> Self:
        """The progress of an incomplete copy after a failover to a server with all transactions that the chunks saw.

        The position `opened` of that server has the transactions up to `covered_from`, or fewer. The position `reached`
        has all transactions that the chunks saw. So each chunk gets `opened` as its low watermark, and `reached` as its
        high watermark. Changes that a chunk has seen are applied once more, which gives the same last row of each key.
        The next merge needs all changes after `opened`; until that merge, `opened` is the position of the copy. Patches
        are dropped as in `moved`.
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
            cascades=self.cascades and replace(self.cascades, to=opened.place),
            **self._fields_without_patches(),
        )

    def _at_later_position(self, step: Step, position: Position, fingerprint: str) -> Self:
        """The same rows at `position`, after `step`. Raises ValueError unless it is a later one of the same server."""
        following = self._after(step, fingerprint=fingerprint)
        old = self.position
        if old is None or (position.server_uuid, position.epoch) != (old.server_uuid, old.epoch):
            raise ValueError(f"{self.table}: {position.at} and {old and old.at} are of two servers")
        if position.place <= old.place:
            raise ValueError(f"{self.table}: {position.place} does not come after {old.place}")
        return replace(following, splits=self.splits.merged_to(self.splits, position.place), position=position)

    def audited(self, rows: int | None = None) -> Self:
        """The staged rows have passed every gate. `rows`: the number of rows that a gate counted; None if none did."""
        if rows is None:
            return self._after(Step.GATES)
        return self._after(Step.GATES, rows=rows, uncounted=False)

    def published(self) -> Self:
        """Readers see the audited rows."""
        return self._after(Step.PUBLISH)
