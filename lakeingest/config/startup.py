"""A place in the source's history at which copies begin empty: `tables.startup` with a position, GTIDs or a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.errors import StateUnreadable

_FORMS = {
    "position": "FILE:BYTE, as SHOW BINARY LOG STATUS has it",
    "gtid": "a GTID set of MySQL",
    "time": "a time such as 2026-01-31T12:00:00Z",
}


@dataclass(frozen=True, slots=True)
class StartAt:
    """The place at which copies begin empty.

    `position`: the end of a transaction. `time`: the place is before the first transaction that was committed at
    this time or later. If both are None, `gtids` has all transactions up to the place.
    """

    position: FilePosition | None
    gtids: GtidSet = field(default_factory=GtidSet)
    time: datetime | None = None

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> Self:
        """The place that these keys name. Raises ValueError for a mistake."""
        if len(keys) != 1 or not keys.keys() <= _FORMS.keys():
            raise ValueError("startup: it needs either position, gtid or time, and nothing else")
        [(key, value)] = keys.items()
        text = str(value)
        try:
            if key == "position":
                return cls(FilePosition.parse(text))
            if key == "time":
                moment = datetime.fromisoformat(text)
                return cls(None, time=moment.replace(tzinfo=moment.tzinfo or UTC))
            if gtids := GtidSet.parse(text):  # an empty set is refused
                return cls(None, gtids)
        except (StateUnreadable, ValueError):
            pass  # the error below says which form is wanted
        raise ValueError(f"startup.{key}: {text!r} is not {_FORMS[key]}")
