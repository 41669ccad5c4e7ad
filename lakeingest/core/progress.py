"""A table's progress: a value with all that its next step depends on. Which step may follow is in `phases`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakeingest.core.keys import Key
from lakeingest.core.phases import TRANSITIONS, IllegalStep, Phase, Step
from lakeingest.core.position import Place, Position
from lakeingest.core.rereads import Patch, Reread, united
from lakeingest.core.schema import TableId
from lakeingest.core.splits import Split, Splits
from lakeingest.core.wave import MergePlan
from lakeingest.errors import SpoolGap, StateUnreadable

FORMAT = 1  # of the JSON form; a reader refuses a newer one
REREAD_FORMAT = 2  # while a re-snapshot is on staging: versions that know only the first would lose its parts
GAP_FORMAT = 3  # while there is a gap: earlier versions would publish it


@dataclass(frozen=True, slots=True)
class Progress:
    """All that a table's next step depends on; stored whole in every staging commit, never as a delta.

    `covered_from` is the place from which on the spool watched this table. `rows` counts the staged rows as the commits
    so far must have left them. `position` is the stop of the last merge. `nulled` counts values that are NULL only
    because the user chose so, of all rows that were copied or changed. `read_to` is the greatest high watermark of the
    chunks, with the history of the binlog that it stands in; None where that was not noted.

    `patches` wait for the next merge. `reread_since` is a place that the lows of all that was read again contain, until
    a merge levels the table. `reread` is the re-snapshot that runs; `answered` are the signals whose rows are all on
    staging: they are done once readers see such progress. `uncounted`: rows were read again, so that `rows` counts also
    what the target had lost or doubled; the gates count anew. `leftover`: the copy was started over, and the keys that
    are in no finished split still have their old rows, which the wave that reads them takes out. `gap`: the rows lack
    changes from before `position`, and nobody knows which; a re-snapshot of all rows closes it, and until then readers
    see nothing of it. `restarts` counts how often the copy was started over, or went on over a gap.
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
    leftover: bool = False
    gap: bool = False
    restarts: int = 0

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
        """The place that the staged rows stand at as one table, or None: a merge there would have nothing to do."""
        return None if self.patches else self.splits.stop

    @property
    def needed_from(self) -> Place:
        """The table's next merge needs no change at or before this place.

        That is its stop; else a place that all lows of what was read again contain; else where it was first watched.
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
        *,
        removed: int = 0,
    ) -> Self:
        """One more wave is on staging: these splits, `rows` rows in all, with so many values made NULL.

        `read_to` is the greatest high watermark of the wave. Where rows are `leftover` the same commit takes out those
        of the wave's range; it `removed` so many.
        """
        splits = self.splits.finish(wave)
        step = Step.LAST_WAVE if splits.complete else Step.WAVE
        following = self._after(
            step,
            splits=splits,
            wave=self.wave + 1,
            rows=self.rows + rows - removed,
            nulled=self.nulled + nulled,
            read_to=_later(self.read_to, read_to),
        )
        if not splits.complete:
            return following
        answered = united(self.answered, self.reread.signals if self.reread else (), ())
        return replace(following, leftover=False, reread=None, answered=answered)

    def range_replaced(
        self,
        wave: tuple[Split, ...],
        since: Place,
        *,
        removed: int,
        added: int,
        signals: Collection[int] = (),
        last: bool = False,
        settled: Collection[int] = (),
        nulled: int = 0,
        read_to: Position | None = None,
    ) -> Self:
        """One commit on staging took `removed` rows of the range of `wave` out, and put its rows in, `added` in all.

        `since` is where the spool ended before the first low of the wave was read. `signals` are those that the
        re-snapshot answers, and with the `last` wave of its range has answered; the documents of the `settled` say
        that they are done. The merge that was planned before is void: its rows must not be committed, nor recorded.
        """
        splits = self.splits.replace_range(wave)
        return self._reread(
            Step.RANGE,
            since,
            Reread(tuple(signals), wave[-1].range.upper),
            last=last,
            settled=settled,
            splits=splits,
            rows=self.rows + added - removed,
            nulled=self.nulled + nulled,
            read_to=_later(self.read_to, read_to),
        )

    def reread_rows(
        self,
        patches: Collection[Patch],
        since: Place,
        *,
        signals: Collection[int] = (),
        up_to: Key | None = None,
        last: bool = False,
        settled: Collection[int] = (),
        nulled: int = 0,
        read_to: Position | None = None,
    ) -> Self:
        """Rows were read again; patches of those that differ from the staged rows wait for the next merge.

        The files of the patches are durable, and no staged row has changed. Without patches the copy, which has to be
        level, has all those rows. The parameters are those of `range_replaced`; `up_to` is the key before which all
        that was asked for is read.
        """
        names = [patch.name for patch in (*self.patches, *patches)]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.table}: two patches with one name of {names}")
        reread = Reread(tuple(signals), up_to)
        if not patches:
            return self._after(Step.SAME, **self._answers(reread, last=last, settled=settled))
        return self._reread(
            Step.PATCH,
            since,
            reread,
            last=last,
            settled=settled,
            patches=(*self.patches, *patches),
            nulled=self.nulled + nulled,
            read_to=_later(self.read_to, read_to),
        )

    def _reread(
        self, step: Step, since: Place, reread: Reread, *, last: bool, settled: Collection[int], **changes: Any
    ) -> Self:
        if since < self.covered_from:
            raise SpoolGap(f"the spool begins at {self.covered_from}, what was read again needs it from {since}")
        # until the first merge of all splits every change is needed that was spooled
        before = self.stop or self.reread_since
        return self._after(
            step,
            reread_since=None if before is None else min(before, since),
            uncounted=True,
            **self._answers(reread, last=last, settled=settled),
            **changes,
        )

    def _answers(self, reread: Reread, *, last: bool, settled: Collection[int]) -> dict[str, Any]:
        """How far the re-snapshot has come, and which signals are answered. One of all rows closes a gap."""
        return {
            "reread": reread if (reread.signals or self.gap) and not last else None,
            "answered": united(self.answered, reread.signals if last else (), settled),
            "gap": self.gap and not last,
        }

    def started_over(self, new: Self, *, signals: Collection[int] = (), rows: int = 0) -> Self:
        """The copy begins again as `new` progress does, because the changes since are lost or do not tell all.

        `rows` old ones stay on staging until their chunks are read again; 0: the same commit emptied it. All `signals`
        that were to read rows of the table again are answered with the last wave.
        """
        if new.table != self.table or new.phase is not Phase.NEW:
            raise ValueError(f"{self.table} starts over as it was created, not as {new.table}, {new.phase}")
        return replace(
            new,
            phase=self._after(Step.RESTART).phase,
            rows=rows,
            leftover=rows > 0,
            uncounted=rows > 0,
            reread=Reread(tuple(signals)) if signals else None,
            answered=self.answered,
            restarts=self.restarts + 1,
        )

    def over_gap(
        self, position: Position, fingerprint: str, covered_from: Place, *, signals: Collection[int] = ()
    ) -> Self:
        """Give the rows a later `position`, although the changes in between are not known.

        The spool watches the table from `covered_from` on. All rows are to be read again: the `signals` are answered
        with the last of them. ValueError unless all splits stand at one position.
        """
        if self.stop is None:
            raise ValueError(f"{self.table}: its splits do not stand at one position")
        return self._after(
            Step.GAP,
            fingerprint=fingerprint,
            server_uuid=position.server_uuid,
            epoch=position.epoch,
            covered_from=covered_from,
            splits=self.splits.lift(self.splits, position.place),
            position=position,
            read_to=None,
            reread_since=None,
            reread=Reread(tuple(signals)) if signals else None,
            uncounted=True,
            gap=True,
            restarts=self.restarts + 1,
        )

    def merged(self, plan: MergePlan, position: Position, inserted: int, deleted: int, nulled: int = 0) -> Self:
        """A merge to `position` is on staging; it inserted and deleted this many keys, and made values NULL."""
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
        """The table had no change up to this later position, so its rows are the source's there, too.

        No commit has this progress before the next one. ValueError for a position that is not later, or of another
        server.
        """
        return self._later(Step.QUIET, position, self.fingerprint)

    def lifted(self, position: Position, fingerprint: str) -> Self:
        """The rows have the table's next definition, and `position` is the end of the DDL that made it.

        The table stood at the start of that DDL, because a merge never crosses one. ValueError for a position that is
        not later, or of another server.
        """
        return self._later(Step.LIFT, position, fingerprint)

    def moved(self, position: Position) -> Self:
        """The same rows, at the same transactions: `position` is where another server has them.

        Patches are dropped, because their watermarks are places of the other server; the signals that were to be
        answered are served again. ValueError unless all splits stand at the position of before.
        """
        if self.position is None or self.splits.stop != self.position.place:
            raise ValueError(f"{self.table}: its splits do not stand at one position")
        reread, answered = (None, ()) if self.patches else (self.reread, self.answered)
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
        )

    def _later(self, step: Step, position: Position, fingerprint: str) -> Self:
        """The same rows at this position; ValueError if it is not later than the table's, or is of another server."""
        after, before = self._after(step, fingerprint=fingerprint), self.position
        if before is None or (position.server_uuid, position.epoch) != (before.server_uuid, before.epoch):
            raise ValueError(f"{self.table}: {position.at} and {before and before.at} are of two servers")
        if position.place <= before.place:
            raise ValueError(f"{self.table}: {position.place} does not come after {before.place}")
        return replace(after, splits=self.splits.lift(self.splits, position.place), position=position)

    def audited(self, rows: int | None = None) -> Self:
        """Every gate passed on the staged rows, of which a gate counted `rows`; to be counted where `uncounted`."""
        if rows is None:
            return self._after(Step.GATES)
        return self._after(Step.GATES, rows=rows, uncounted=False)

    def published(self) -> Self:
        """Readers see the audited rows."""
        return self._after(Step.PUBLISH)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        format_ = REREAD_FORMAT if self.patches or self.uncounted or self.leftover else FORMAT
        doc = {
            "format": GAP_FORMAT if self.gap else format_,
            "table": str(self.table),
            "fingerprint": self.fingerprint,
            "server_uuid": self.server_uuid,
            "epoch": self.epoch,
            "covered_from": str(self.covered_from),
            "phase": self.phase.value,
            "wave": self.wave,
            "rows": self.rows,
            "nulled": self.nulled,
            "splits": self.splits.to_json(),
            "position": None if self.position is None else self.position.to_json(),
        }
        parts = {
            "read_to": self.read_to and self.read_to.to_json(),
            "patches": [patch.to_json() for patch in self.patches],
            "reread_since": self.reread_since and str(self.reread_since),
            "reread": self.reread and self.reread.to_json(),
            "answered": list(self.answered),
            "uncounted": self.uncounted,
            "leftover": self.leftover,
            "gap": self.gap,
            "restarts": self.restarts,
        }
        return doc | {name: part for name, part in parts.items() if part}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; StateUnreadable for anything else, and for the form of a newer version."""
        try:
            if doc["format"] not in {FORMAT, REREAD_FORMAT, GAP_FORMAT}:
                raise StateUnreadable(f"progress of format {doc['format']}, this version reads {GAP_FORMAT}")
            return cls(
                table=TableId.parse(doc["table"]),
                fingerprint=str(doc["fingerprint"]),
                server_uuid=str(doc["server_uuid"]),
                epoch=int(doc["epoch"]),
                covered_from=Place.parse(doc["covered_from"]),
                phase=Phase(doc["phase"]),
                wave=int(doc["wave"]),
                rows=int(doc["rows"]),
                splits=Splits.from_json(doc["splits"]),
                position=None if doc["position"] is None else Position.from_json(doc["position"]),
                nulled=int(doc.get("nulled", 0)),
                read_to=None if doc.get("read_to") is None else Position.from_json(doc["read_to"]),
                patches=tuple(Patch.from_json(patch) for patch in doc.get("patches", ())),
                reread_since=None if doc.get("reread_since") is None else Place.parse(doc["reread_since"]),
                reread=None if doc.get("reread") is None else Reread.from_json(doc["reread"]),
                answered=tuple(int(number) for number in doc.get("answered", ())),
                uncounted=doc.get("uncounted", False) is True,
                leftover=doc.get("leftover", False) is True,
                gap=doc.get("gap", False) is True,
                restarts=int(doc.get("restarts", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateUnreadable(f"not a table's progress: {error}") from error


def _later(one: Position | None, other: Position | None) -> Position | None:
    marks = [position for position in (one, other) if position is not None]
    return max(marks, key=lambda position: position.place, default=None)
