"""What a run tells whoever watches it; the command line draws it, the demo counts it."""

from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.core.schema import TableId
from lakeingest.errors import LakeIngestError
from lakeingest.state.signals import SignalDocument


@dataclass(frozen=True, slots=True)
class Opened:
    """A run is ready: preflight passed, Spark is up, every table was looked at."""

    tables: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A table is about to be copied: its estimated rows."""

    table: TableId
    estimated_rows: int


@dataclass(frozen=True, slots=True)
class WaveCommitted:
    """A wave is on staging."""

    table: TableId
    wave: int
    chunks: int
    rows: int
    seconds: float
    complete: bool
    chunk_seconds: tuple[float, ...] = ()  # of each chunk, how long its read view was open


@dataclass(frozen=True, slots=True)
class Spooled:
    """A batch of the binlog is in the spool: its change rows per table."""

    stop: str
    transactions: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Merged:
    """A table's changes are on staging: read from the spool, left by the filter, and what they did to the keys."""

    table: TableId
    read: int
    applied: int
    inserted: int
    updated: int
    deleted: int
    seconds: float

    @property
    def dropped(self) -> int:
        """Change rows that the filter dropped: their split has them already, or its chunk will."""
        return self.read - self.applied


@dataclass(frozen=True, slots=True)
class GateRun:
    """A gate looked at a table's staged rows: expectations asked, those that failed, those that are mere warnings."""

    table: TableId
    stage: str
    evaluated: int
    failed: int
    warnings: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Published:
    """Readers see the table as of this position."""

    table: TableId
    rows: int
    position: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Following:
    """The run has caught up with the source, after so many seconds, and goes on from there."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source is away, or Spark's JVM ended; a run that follows tries again after a pause."""

    reason: str
    pause: float


@dataclass(frozen=True, slots=True)
class WentBack:
    """Files of a table's last commits are lost: it goes on from an older one, and merges again what came after."""

    table: TableId
    reason: str


@dataclass(frozen=True, slots=True)
class TableStopped:
    """A table stays where it is, with this error; the other tables go on."""

    table: TableId
    error: LakeIngestError


@dataclass(frozen=True, slots=True)
class SignalMoved:
    """A signal has begun, or ended."""

    document: SignalDocument


OfTable = Planned | WaveCommitted | Merged | GateRun | Published | WentBack | TableStopped
Event = Opened | Spooled | Following | SourceLost | SignalMoved | OfTable
Observer = Callable[[Event], None]


def unobserved(_: Event) -> None:
    """For a run that nobody watches."""
