"""Points: places in the binlog. A version of each copy as of a point is kept, so readers can see all tables as of it.

A point needs no quiet moment. Each table is published as of the end of the spool before the run spools further: then
each copy has every change up to that place, and none after it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from lakeingest.core.binlog.position import Position
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable, UsageError

BY_ITSELF = "auto-"  # how the names of points begin that runs make by themselves
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED = {"main"}  # Iceberg's branch that readers see


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A version of a copy that is kept, and the name by which engines read it: a tag of Iceberg, an instant of Hudi."""

    version: int
    read_as: str


@dataclass(frozen=True, slots=True)
class Point:
    """A point. `tables`: the version of each copy. `left_out`: tables without a version, each with the reason.

    `position`: every version has all changes up to it. `is_complete`: each version is kept; until then the point is
    still being made, and readers do not use it.
    """

    name: str
    position: Position
    made_at: datetime
    tables: Mapping[TableId, KeptVersion]
    left_out: Mapping[TableId, str] = field(default_factory=dict)
    is_complete: bool = False

    @property
    def is_by_itself(self) -> bool:
        """Whether a run made the point by itself, as `points.every` says."""
        return self.name.startswith(BY_ITSELF)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that `from_json` reads back."""
        return {
            "name": self.name,
            "position": self.position.to_json(),
            "made_at": self.made_at.isoformat(),
            "tables": {str(table): [kept.version, kept.read_as] for table, kept in self.tables.items()},
            "left_out": {str(table): reason for table, reason in self.left_out.items()},
            "complete": self.is_complete,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`. Raises StateUnreadable for anything else."""
        try:
            return cls(
                name=str(doc["name"]),
                position=Position.from_json(doc["position"]),
                made_at=datetime.fromisoformat(doc["made_at"]),
                tables={
                    TableId.parse(table): KeptVersion(int(version), str(read_as))
                    for table, (version, read_as) in doc["tables"].items()
                },
                left_out={TableId.parse(table): str(reason) for table, reason in doc["left_out"].items()},
                is_complete=doc["complete"] is True,
            )
        except DAMAGED as error:
            raise StateUnreadable(f"not a point: {doc!r}") from error


@dataclass(frozen=True, slots=True)
class Standing:
    """A table of the pipeline when a point is made.

    `version`: the version that readers see; None if there is none. `hindrance`: why the table does not go on; '' if it
    does. `is_current`: readers see all changes of the table up to the point's place.
    """

    table: TableId
    version: int | None
    is_current: bool
    hindrance: str = ""


def checked_name(name: str) -> str:
    """The name of a point that a person chose. Raises UsageError if no tag or file can have it, or it is reserved."""
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED or name.startswith(BY_ITSELF):
        raise UsageError(
            f"{name!r} is no name of a point: it has up to 64 letters, digits and the signs _ . -, begins with a letter"
            f" or a digit, and is neither main nor begins with {BY_ITSELF}"
        )
    return name


def name_at(moment: datetime) -> str:
    """The name of a point that a run makes by itself at this moment, which is in UTC."""
    return f"{BY_ITSELF}{moment:%Y%m%dT%H%M%SZ}"


def waits_for(standings: Iterable[Standing]) -> list[TableId]:
    """The tables that go on, and that readers do not see as of the point's place yet."""
    return [one.table for one in standings if not one.hindrance and not (one.is_current and one.version is not None)]


def left_out(standings: Iterable[Standing]) -> dict[TableId, str]:
    """The tables that do not go on, each with the reason: the point is made without a version of them."""
    return {one.table: one.hindrance for one in standings if one.hindrance}


def is_due(points: Iterable[Point], every: timedelta, now: datetime) -> bool:
    """Whether it is time for the next point that runs make by themselves, `every` or more after the last complete one.

    A point of a future time does not count.
    """
    of_runs = [point for point in points if point.is_by_itself and point.is_complete]
    return not any(now - every < point.made_at <= now for point in of_runs)


def expired(points: Sequence[Point], keep: timedelta, now: datetime) -> list[Point]:
    """The points that runs made by themselves and that are older than `keep`, or that a dead run left incomplete.

    The caller makes no point at the same time: each incomplete one counts as left by a dead run. The newest complete
    point of runs is never among them, however old it is.
    """
    by_itself = sorted((point for point in points if point.is_by_itself), key=lambda point: point.made_at)
    complete = [point for point in by_itself if point.is_complete]
    left_behind = [point for point in by_itself if not point.is_complete]
    return [*left_behind, *(point for point in complete[:-1] if point.made_at < now - keep)]
