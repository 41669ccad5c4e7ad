"""When reads of the source wait: `throttle` of pipeline.yml."""

import re
from dataclasses import dataclass
from datetime import datetime, time, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from lakeingest.config.duration import Duration
from lakeingest.config.frozen import Frozen
from lakeingest.core.figures.load import Load

_WINDOW = re.compile(r"(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)( (?P<zone>[A-Za-z0-9_+/-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TimesOfDay:
    """The times of day from `start` up to, but not including, `end`, in a time zone. They may go over midnight."""

    start: time
    end: time
    zone: str = "UTC"

    @property
    def _rules(self) -> tzinfo:
        """The time zone of this name, with its changes to and from summer time."""
        return ZoneInfo(self.zone)

    def contain(self, moment: datetime) -> bool:
        """Whether this moment, which has a time zone, is at one of these times of day."""
        now = moment.astimezone(self._rules).time()
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end  # over midnight

    def __str__(self) -> str:
        """The same text as in pipeline.yml."""
        return f"{self.start:%H:%M}-{self.end:%H:%M} {self.zone}"


def _parse_window(value: Any) -> TimesOfDay:
    """The times in a text such as `22:00-06:00` or `22:00-06:00 Europe/Rome`. Raises ValueError for any other value."""
    if isinstance(value, TimesOfDay):
        return value
    match = _WINDOW.fullmatch(str(value))
    if match is None:
        raise ValueError("a window is two times of day, and maybe a time zone: 22:00-06:00 or 22:00-06:00 Europe/Rome")
    zone = match["zone"] or "UTC"
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as error:  # KeyError: also if the machine has no time zones at all
        raise ValueError(f"this machine does not know the time zone {zone}") from error
    start, end = time.fromisoformat(match["start"]), time.fromisoformat(match["end"])  # raises ValueError
    if start == end:
        raise ValueError("a window needs two different times; leave it out if reads may begin at any time")
    return TimesOfDay(start, end, zone)


Window = Annotated[
    TimesOfDay,
    BeforeValidator(_parse_window),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "format": "window"}),
]


class Throttle(Frozen):
    """The limits at which reads of tables wait, in first copies and re-snapshots. Reads of the binlog never wait.

    `threads_running`, `history_list_length`: limits for the server that rows are read from. `replica_lag`: the limit
    for `source.replica`. `mb_per_second`: megabytes of rows, as Arrow holds them. `window`: when reads may begin.
    """

    threads_running: int | None = Field(default=None, ge=1)
    history_list_length: int | None = Field(default=None, ge=1)
    replica_lag: Duration | None = None
    mb_per_second: float | None = Field(default=None, gt=0)
    window: Window | None = None

    @property
    def load(self) -> Load:
        """The greatest load at which reads do not wait."""
        lag = None if self.replica_lag is None else self.replica_lag.total_seconds()
        return Load(self.threads_running, self.history_list_length, lag)
