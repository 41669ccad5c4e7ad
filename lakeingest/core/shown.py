"""What readers of a copy see, as each publish says it for `status`."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from lakeingest.core.position import Position
from lakeingest.errors import DAMAGED, StateUnreadable

SHOWN = "lakeingest.shown"  # the property of a publish that has it


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of a copy as of a position, and when they were published, in ISO 8601; None where that is not known."""

    position: Position | None
    rows: int
    published_at: str | None = None

    @property
    def source_time(self) -> str | None:
        """When the last transaction up to the position was committed in the source; None where that is not known."""
        history = None if self.position is None else self.position.history
        last = None if history is None else history.last
        if last is None:
            return None
        return datetime.fromtimestamp(last.committed_at / 1_000_000, UTC).isoformat(timespec="seconds")

    def to_text(self) -> str:
        """A JSON text that `of_text` reads back."""
        position = None if self.position is None else self.position.to_json()
        return json.dumps({"position": position, "rows": self.rows, "at": self.published_at}, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> Self | None:
        """The inverse of `to_text`; None for anything else, as in a publish of an earlier version."""
        try:
            doc = json.loads(text)
            position = None if doc["position"] is None else Position.from_json(doc["position"])
            return cls(position, int(doc["rows"]), None if doc["at"] is None else str(doc["at"]))
        except (*DAMAGED, StateUnreadable):
            return None
