"""The state of a copy that readers see. Each publish notes it for the command `status`."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from lakeingest.core.binlog.position import Position
from lakeingest.core.figures.freshness import committed_at
from lakeingest.errors import DAMAGED, StateUnreadable

SHOWN = "lakeingest.shown"  # the table property in which a publish stores a `Shown`


def iso_time(seconds: float | None) -> str | None:
    """A time in seconds since 1970 as ISO 8601, in UTC; None for None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Shown:
    """The state of a copy that readers see: its position, its number of rows, and when it was published (ISO 8601).

    A position or a time that is unknown is None.
    """

    position: Position | None
    rows: int
    published_at: str | None = None

    @property
    def source_time(self) -> str | None:
        """When the source committed the last transaction up to the position, in ISO 8601; None if it is unknown."""
        return iso_time(committed_at(self.position))

    def to_text(self) -> str:
        """A JSON text that `of_text` reads back."""
        position = None if self.position is None else self.position.to_json()
        return json.dumps({"position": position, "rows": self.rows, "at": self.published_at}, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """The inverse of `to_text`. None for any other text, such as a damaged one."""
        try:
            doc = json.loads(text)
            position = None if doc["position"] is None else Position.from_json(doc["position"])
            return cls(position, int(doc["rows"]), None if doc["at"] is None else str(doc["at"]))
        except (*DAMAGED, StateUnreadable):
            return None
