"""A place in the source's history at which copies begin empty: `tables.startup` with a position or with GTIDs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from lakeingest.core.position import FilePosition, GtidSet
from lakeingest.errors import NotBuiltYet, StateUnreadable


@dataclass(frozen=True, slots=True)
class StartAt:
    """The place at which copies begin empty.

    `position`: the end of a transaction; None if `gtids` says it. `gtids`: all transactions up to the place.
    """

    position: FilePosition | None
    gtids: GtidSet = field(default_factory=GtidSet)

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> Self:
        """The place that these keys name. Raises ValueError for a mistake, and NotBuiltYet for `time`."""
        if keys.keys() == {"time"}:
            raise NotBuiltYet("tables.startup.time is not built yet; this version has position and gtid")
        if keys.keys() not in ({"position"}, {"gtid"}):
            raise ValueError("startup: it needs either position or gtid, and nothing else")
        [(key, value)] = keys.items()
        text = str(value)
        try:
            if key == "position":
                return cls(FilePosition.parse(text))
            if gtids := GtidSet.parse(text):
                return cls(None, gtids)
        except StateUnreadable:
            pass  # no such text
        form = "FILE:BYTE, as SHOW BINARY LOG STATUS has it" if key == "position" else "a GTID set of MySQL"
        raise ValueError(f"startup.{key}: {text!r} is not {form}")
