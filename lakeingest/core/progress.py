"""A table's progress as a state machine: a value, and one table of what may follow what.

    NEW -created-> COPYING -wave-> COPYING -last wave-> COPIED -merge-> LEVEL -gates-> AUDITED -publish-> PUBLISHED
                                     ^ partial merge |  ^ partial |     ^ merge |    ^-------- merge --------|

COPYING: some chunks are read. COPIED: all are, splits stand at different marks. LEVEL: all stand at one stop, so the
staged rows are the source's table there. Only an AUDITED table may be shown to readers.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lakeingest.core.position import Place, Position
from lakeingest.core.schema import TableId
from lakeingest.core.splits import Split, Splits
from lakeingest.core.wave import MergePlan
from lakeingest.errors import StateUnreadable

FORMAT = 1  # of the JSON form; a reader refuses a newer one


class Phase(enum.StrEnum):
    """Where a table stands."""

    NEW = "new"
    COPYING = "copying"
    COPIED = "copied"
    LEVEL = "level"
    AUDITED = "audited"
    PUBLISHED = "published"


class Step(enum.StrEnum):
    """What was just committed."""

    CREATED = "created"
    WAVE = "wave"
    LAST_WAVE = "last wave"
    PARTIAL_MERGE = "partial merge"  # splits are missing, or a wave was committed after the merge was planned
    MERGE = "merge"
    GATES = "gates"
    PUBLISH = "publish"


TRANSITIONS: Mapping[tuple[Phase, Step], Phase] = {
    (Phase.NEW, Step.CREATED): Phase.COPYING,
    (Phase.COPYING, Step.WAVE): Phase.COPYING,
    (Phase.COPYING, Step.LAST_WAVE): Phase.COPIED,
    (Phase.COPYING, Step.PARTIAL_MERGE): Phase.COPYING,
    (Phase.COPIED, Step.PARTIAL_MERGE): Phase.COPIED,
    (Phase.COPIED, Step.MERGE): Phase.LEVEL,
    (Phase.LEVEL, Step.MERGE): Phase.LEVEL,
    (Phase.LEVEL, Step.GATES): Phase.AUDITED,
    (Phase.AUDITED, Step.MERGE): Phase.LEVEL,
    (Phase.AUDITED, Step.PUBLISH): Phase.PUBLISHED,
    (Phase.PUBLISHED, Step.MERGE): Phase.LEVEL,
}


class IllegalStep(ValueError):
    """A step that the table's phase does not allow; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """All that a table's next step depends on; stored whole in every staging commit, never as a delta.

    `covered_from` is the place from which on the spool watched this table. `rows` counts the staged rows as the commits
    so far must have left them. `position` is the stop of the last merge. `nulled` counts values that are NULL only
    because the user chose so, of all rows that were copied or changed. `read_to` is the greatest high watermark of the
    chunks, with the history of the binlog that it stands in; None where that was not noted.
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

    def __post_init__(self) -> None:
        if self.phase in {Phase.LEVEL, Phase.AUDITED, Phase.PUBLISHED}:
            if self.position is None or self.splits.stop != self.position.place:
                raise ValueError(f"{self.table} is {self.phase} but its splits do not stand at its position")
        elif self.phase is Phase.COPIED and not self.splits.complete:
            raise ValueError(f"{self.table} is copied but chunks are missing")
        if self.rows < 0 or self.wave < 0:
            raise ValueError(f"{self.table}: negative counts")

    @property
    def needed_from(self) -> Place:
        """The table's next merge needs no change at or before this place: its stop, or where it was first watched."""
        return self.splits.stop or self.covered_from

    def _after(self, step: Step, **changes: Any) -> Self:
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
        """One more wave is on staging: these splits, `rows` rows in all, with so many values made NULL.

        `read_to` is the greatest high watermark of the wave.
        """
        splits = self.splits.finish(wave)
        step = Step.LAST_WAVE if splits.complete else Step.WAVE
        marks = [position for position in (self.read_to, read_to) if position is not None]
        return self._after(
            step,
            splits=splits,
            wave=self.wave + 1,
            rows=self.rows + rows,
            nulled=self.nulled + nulled,
            read_to=max(marks, key=lambda position: position.place, default=None),
        )

    def merged(self, plan: MergePlan, position: Position, inserted: int, deleted: int, nulled: int = 0) -> Self:
        """A merge to `position` is on staging; it inserted and deleted this many keys, and made values NULL."""
        if plan.stop != position.place:
            raise ValueError(f"{self.table}: merged to {plan.stop}, which is not {position.place}")
        splits = self.splits.lift(plan.splits, plan.stop)
        step = Step.PARTIAL_MERGE if splits.stop is None else Step.MERGE
        rows = self.rows + inserted - deleted
        return self._after(step, splits=splits, position=position, rows=rows, nulled=self.nulled + nulled)

    def audited(self) -> Self:
        """Every gate passed on the staged rows."""
        return self._after(Step.GATES)

    def published(self) -> Self:
        """Readers see the audited rows."""
        return self._after(Step.PUBLISH)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        doc = {
            "format": FORMAT,
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
        return doc if self.read_to is None else doc | {"read_to": self.read_to.to_json()}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; StateUnreadable for anything else, and for the form of a newer version."""
        try:
            if doc["format"] != FORMAT:
                raise StateUnreadable(f"progress of format {doc['format']}, this version reads {FORMAT}")
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
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateUnreadable(f"not a table's progress: {error}") from error
