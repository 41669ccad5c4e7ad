"""What a run that is at work has committed so far, collected from its events, for `last_run.json` and for errors."""

import time
from dataclasses import dataclass, replace
from typing import Any

from lakeingest.core.figures.following import Followed
from lakeingest.core.figures.shown import iso_time
from lakeingest.pipeline.events import (
    Event,
    Following,
    GateRun,
    Measured,
    Merged,
    Observer,
    Opened,
    Published,
    Spooled,
    Unusual,
    WaveCommitted,
)

_OF_ROUNDS = Spooled | Merged | GateRun | Published


def is_recorded(event: Event) -> bool:
    """Whether a run that follows stores its state when this event comes.

    It does not do so at the events that come in every round: each time, the file would be synced to the disk. Within
    seconds `Measured` follows, at which the state is stored.
    """
    return not isinstance(event, _OF_ROUNDS)


@dataclass(frozen=True, slots=True)
class TableCommits:
    """The commits of a run to one table: the number of waves and of their rows, and the last positions.

    `merged` is the position up to which changes are merged, `published` the position of the last publish.
    """

    table: str
    waves: int = 0
    rows: int = 0
    merged: str | None = None
    published: str | None = None

    def __str__(self) -> str:
        if self.published is not None:
            return f"{self.table}: published as of {self.published}"
        waves = f"{self.waves} wave{'s' if self.waves > 1 else ''}, {self.rows:,} rows" if self.waves else ""
        merged = f"merged up to {self.merged}" if self.merged else ""
        return f"{self.table}: {', '.join(filter(None, (waves, merged)))}"


class Committed:
    """The commits of a run so far, collected from its events."""

    def __init__(self) -> None:
        self._tables: dict[str, TableCommits] = {}
        self._spooled = ""  # the position up to which changes are spooled
        self.began = False  # whether the run has begun to work: then it holds the lease
        self.caught_up = False  # whether the run has caught up with the source at least once
        self.following: Followed | None = None  # what following the source has cost so far
        self.fresh: dict[str, str | None] = {}  # by table, the time up to which readers see every change (ISO 8601)
        self.lag: dict[str, dict[str, float | None]] = {}  # by table, in bytes of the binlog and in seconds
        self.published_at: dict[str, str | None] = {}  # by table, the time of the last publish of this run (ISO 8601)
        self.unusual: dict[str, str] = {}  # by table, what was unusual about it last

    @property
    def so_far(self) -> dict[str, Any]:
        """Entries of `last_run.json` on copies and following: freshness, lag, publishes, unusual tables, costs."""
        return {
            "fresh_as_of": self.fresh,
            "lag": self.lag,
            "published_at": self.published_at,
            "unusual": list(self.unusual.items()),
            "following": None if self.following is None else self.following.to_json(),
        }

    @property
    def tables(self) -> tuple[TableCommits, ...]:
        """The commits of each table that has one."""
        return tuple(self._tables.values())

    def collecting_before(self, observe: Observer) -> Observer:
        """An observer that first collects the commits from each event, then calls `observe` with the event."""

        def collect(event: Event) -> None:
            self._collect(event)
            observe(event)

        return collect

    def _collect(self, event: Event) -> None:
        """Collect what the event tells of the run."""
        if isinstance(event, Spooled):
            self._spooled = event.stop
        self.began |= isinstance(event, Opened)
        self.caught_up |= isinstance(event, Following)
        if isinstance(event, Unusual):
            self.unusual[str(event.table)] = event.finding
        if isinstance(event, Measured):
            self.fresh = {str(table.table): iso_time(table.as_of) for table in event.tables}
            self.lag = {
                str(table.table): {"bytes": table.lag_bytes, "seconds": table.lag_seconds} for table in event.tables
            }
            self.following = event.followed or self.following
        if not isinstance(event, WaveCommitted | Merged | Published):
            return
        name = str(event.table)
        commits = self._tables.get(name, TableCommits(name))
        match event:
            case WaveCommitted():
                commits = replace(commits, waves=commits.waves + 1, rows=commits.rows + event.rows)
            case Merged():
                commits = replace(commits, merged=self._spooled)  # the event itself has no position
            case Published():
                commits = replace(commits, published=event.position)
                self.published_at[name] = iso_time(time.time())
        self._tables[name] = commits

    def __str__(self) -> str:
        if not self._tables:
            return "nothing new was committed"
        return f"committed so far: {', '.join(map(str, self.tables))}"
