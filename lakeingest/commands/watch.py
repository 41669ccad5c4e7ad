"""Watch: how far the copies of a pipeline are, looked at again and again while a run in any process follows its source.

The source, the lake and the state folder are asked; nothing is changed, and no Spark is started.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lakeingest.commands.report import Report
from lakeingest.commands.status import Statuses, status
from lakeingest.config import Config
from lakeingest.core.binlog.position import FilePosition, bytes_between, is_in_one_of
from lakeingest.core.figures.clocks import spoken
from lakeingest.errors import LakeIngestError
from lakeingest.files.file import state_of
from lakeingest.mysql.source import Source
from lakeingest.state.lease import is_held


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has seen, `seconds` after the first one. A value that is not known is None.

    `position`: that of the table that is furthest behind. `lag_bytes`: the length of the binlog after it.
    `bytes_per_second`: how fast `position` has moved since the last look that had one, in the binlog's bytes.
    `freshness`: the greatest age of what readers see, in seconds. `is_at_work`: a run holds the lease. `error`: why
    values are missing.
    """

    seconds: float
    position: FilePosition | None = None
    lag_bytes: int | None = None
    bytes_per_second: float | None = None
    freshness: float | None = None
    is_at_work: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Watched(Report):
    """What the looks have seen, in their order; and the state of each table at the end, None if it was not seen."""

    looks: tuple[Look, ...]
    last: Statuses | None

    headers = ("table", "rows", "state", "position", "lag, bytes", "freshness")

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table, as of the last look."""
        for table in self.last or ():
            position = None if table.position is None else str(table.position.at)
            freshness = "unknown" if table.freshness_seconds is None else spoken(table.freshness_seconds)
            yield str(table.table), table.rows, table.state, position, table.lag_bytes, freshness

    @property
    def notes(self) -> Sequence[str]:
        """How long the watch took, the greatest lag, the greatest throughput, and the last error."""
        seconds = self.looks[-1].seconds if self.looks else 0.0
        lags = [look.lag_bytes for look in self.looks if look.lag_bytes is not None]
        rates = [look.bytes_per_second for look in self.looks if look.bytes_per_second is not None]
        greatest = f"the greatest lag was {max(lags):,} bytes" if lags else "the lag is not known"
        fastest = f", the greatest throughput {max(rates):,.0f} bytes of the binlog a second" if rates else ""
        errors = [look.error for look in self.looks if look.error]
        return [f"watched for {spoken(seconds)}: {greatest}{fastest}", *errors[-1:]]


def watch(
    config: Config,
    tables: Sequence[str] = (),
    *,
    max_seconds: float | None = None,
    every: float = 2.0,
    saw: Callable[[Look], None] = lambda _: None,
) -> Watched:
    """Look at the copies every `every` seconds, and call `saw` with each look.

    The function returns after `max_seconds`, at Ctrl-C, or when the run that it saw at work has ended. An error of the
    first look is raised. A later look that fails has the error (`Look.error`), and the next look follows.
    """
    began = time.monotonic()
    looks, last, was_at_work = list[Look](), None, False
    try:
        while True:
            seconds = time.monotonic() - began
            try:
                last, look = _look(config, tables, seconds, looks)
            except LakeIngestError as error:
                if not looks:
                    raise
                look = Look(seconds, is_at_work=was_at_work, error=error.line)
            looks.append(look)
            saw(look)
            if was_at_work and not look.is_at_work:
                break
            was_at_work |= look.is_at_work
            if max_seconds is not None and seconds + every > max_seconds:  # the next look would be too late
                break
            time.sleep(every)
    except KeyboardInterrupt:  # a person has seen enough
        pass
    return Watched(tuple(looks), last)


def _look(config: Config, tables: Sequence[str], seconds: float, before: Sequence[Look]) -> tuple[Statuses, Look]:
    """The states of the tables, and what a look sees, `seconds` after the first look. `before`: the earlier looks."""
    is_at_work = is_held(state_of(config))
    statuses = status(config, tables)
    measured = [table for table in statuses if table.position is not None and table.lag_bytes is not None]
    slowest = max(measured, key=lambda table: table.lag_bytes or 0, default=None)
    ages = [table.freshness_seconds for table in statuses if table.freshness_seconds is not None]
    # the greatest age is known only if the age of each table is
    freshness = max(ages) if ages and len(ages) == len(statuses) else None
    error = "" if statuses.source_error is None else statuses.source_error.line
    if slowest is None or slowest.position is None:
        return statuses, Look(seconds, freshness=freshness, is_at_work=is_at_work, error=error)
    position = slowest.position.at
    earlier = next((look for look in reversed(before) if look.position is not None), None)
    rate = None if earlier is None else _rate(config, earlier, position, seconds)
    return statuses, Look(seconds, position, slowest.lag_bytes, rate, freshness, is_at_work, error)


def _rate(config: Config, earlier: Look, position: FilePosition, seconds: float) -> float | None:
    """The bytes of the binlog from the position of the `earlier` look to `position`, divided by the seconds in between.

    None if the source lacks the file of one of the positions.
    """
    with Source.open(config.source) as source:
        sizes = source.files()
    start = earlier.position
    if start is None or not is_in_one_of(start, sizes) or not is_in_one_of(position, sizes):
        return None
    # the table that is furthest behind may be another one than before, and its position earlier
    return max(0, bytes_between(start, position, sizes)) / (seconds - earlier.seconds)
