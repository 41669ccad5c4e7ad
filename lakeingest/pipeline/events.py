"""The events of a run, for its observer: the command line prints them, the demo counts them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeingest.core.figures.following import Followed
from lakeingest.core.figures.freshness import Measure
from lakeingest.core.figures.load import Load
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LakeIngestError

if TYPE_CHECKING:
    from lakeingest.state.signals import SignalDocument  # it imports the clients of object stores


@dataclass(frozen=True, slots=True)
class Opened:
    """A run is ready: preflight passed, and every table is loaded."""

    tables: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ClockWrong:
    """The clock of this machine disagrees with other clocks. `finding` names these, the difference and the fix."""

    finding: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The run begins to copy the table's missing chunks. The server estimates that the table has so many rows."""

    table: TableId
    estimated_rows: int


@dataclass(frozen=True, slots=True)
class Throttled:
    """The next wave of a table waits for this `reason`: a limit of `throttle` is reached."""

    table: TableId
    reason: str


@dataclass(frozen=True, slots=True)
class WaveCommitted:
    """A wave of a copy is on staging. `complete`: no chunk of the table is missing any more."""

    table: TableId
    wave: int
    chunks: int
    rows: int
    seconds: float
    complete: bool
    chunk_seconds: tuple[float, ...] = ()  # for each chunk, how long its read view was open


@dataclass(frozen=True, slots=True)
class ComparisonBegun:
    """`verify` begins to compare the table: the source reads so many ranges of keys, or more if rows differ."""

    table: TableId
    ranges: int


@dataclass(frozen=True, slots=True)
class RangeCompared:
    """The source has read the `rows` of one range of a comparison. Ranges are read side by side, in threads."""

    table: TableId
    rows: int


@dataclass(frozen=True, slots=True)
class RowsReread:
    """A wave of rows that were read again is on staging, in so many patches. `is_last`: no more rows are to be read."""

    table: TableId
    patches: int
    rows: int
    seconds: float
    is_last: bool


@dataclass(frozen=True, slots=True)
class Spooled:
    """A batch of the binlog is in the spool, up to `stop`: so many transactions and change rows."""

    stop: str
    transactions: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Merged:
    """A table's changes are merged on staging.

    `read` and `applied` count change rows; `inserted`, `updated` and `deleted` count keys. `repeats`: the copied rows
    may have these changes already, because the source cannot tell which changes came before a row was read.
    """

    table: TableId
    read: int
    applied: int
    inserted: int
    updated: int
    deleted: int
    seconds: float
    repeats: bool = False

    @property
    def dropped(self) -> int:
        """The number of change rows that were not applied: the copy has them, or a missing chunk will contain them."""
        return self.read - self.applied


@dataclass(frozen=True, slots=True)
class GateRun:
    """A gate checked a table's staged rows: the numbers of expectations, of failures, and of warnings."""

    table: TableId
    stage: str
    evaluated: int
    failed: int
    warnings: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Quarantined:
    """So many rows failed the gate before a publish, and left the table. `listed`: the number of keys in quarantine."""

    table: TableId
    rows: int
    listed: int


@dataclass(frozen=True, slots=True)
class Published:
    """Readers see the table as of this position ('' if it is not known), with so many rows."""

    table: TableId
    rows: int
    position: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TookBack:
    """A publish removed these `commits` from a Hudi table: another program had clustered the table.

    Queries that are reading the files of these commits fail.
    """

    table: TableId
    commits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Following:
    """The run has caught up with the source after so many seconds, and follows it from now on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source, the catalog or the storage is away, or Spark or a worker process has ended.

    A run with `--follow` tries again after a pause.
    """

    reason: str
    pause: float


@dataclass(frozen=True, slots=True)
class FailedOver:
    """The source is another server now, with the id `server_uuid`, and so many copies continue on that server."""

    server_uuid: str
    tables: int


@dataclass(frozen=True, slots=True)
class WentBack:
    """Files of a table's last commits are lost. The copy continues from an older commit, and merges changes again."""

    table: TableId
    reason: str


@dataclass(frozen=True, slots=True)
class TableStopped:
    """A table has stopped at its last commit, with this error; the other tables go on.

    `again`: this run reads the table's rows again, because the copy cannot follow DDL or someone asks for it.
    """

    table: TableId
    error: LakeIngestError
    again: bool = False


@dataclass(frozen=True, slots=True)
class LeftAsItIs:
    """A copy that this pipeline has made is not updated: the table is gone, or no longer included."""

    table: TableId
    reason: str


@dataclass(frozen=True, slots=True)
class StartedOver:
    """All rows of a table are read again for staging. Readers see the old rows until all rows are read.

    `compared`: if True, rows of the copy that are still right stay; if False, the copy begins without rows.
    """

    table: TableId
    compared: bool


@dataclass(frozen=True, slots=True)
class TookOver:
    """The table of another tool became the copy of a table. All of its `rows` are compared with the source now.

    Readers see what the other tool has written until all rows are compared. `stopped`: the tool, as the user names it.
    """

    table: TableId
    stopped: str
    rows: int


@dataclass(frozen=True, slots=True)
class Lifted:
    """The rows of a table are on staging with the definition that DDL gave the table. `position`: the DDL's end."""

    table: TableId
    position: str


@dataclass(frozen=True, slots=True)
class RowsDiffer:
    """Rows of a table differ from the source's, and the table goes on. `finding` says which, and what follows."""

    table: TableId
    finding: str


@dataclass(frozen=True, slots=True)
class Unusual:
    """What was written into a table is not like what earlier runs have written. `finding` has the numbers."""

    table: TableId
    finding: str


@dataclass(frozen=True, slots=True)
class Measured:
    """How far the tables are, at the end of a round.

    `load`: the last measured load of the source. `binlog_seconds`: how long the source will still keep the binlog after
    the spool; None if for ever, if unknown, or if no metrics are asked for. `followed`: what following the source has
    cost since it began; None if this was not counted in this round.
    """

    tables: tuple[Measure, ...]
    load: Load
    binlog_seconds: int | None
    followed: Followed | None = None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Metrics, a notification or a report could not be delivered; the run goes on.

    `what`: the key in pipeline.yml, or the folder of the reports.
    """

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class PointMade:
    """A point was made: versions of so many `tables` are kept as of `position`. `left_out`: how many have none."""

    name: str
    position: str
    tables: int
    left_out: int


@dataclass(frozen=True, slots=True)
class ShownApart:
    """So many tables were to be published at once, as of one place, and are not. `reason`: why, and what follows."""

    tables: int
    reason: str


@dataclass(frozen=True, slots=True)
class SignalMoved:
    """A signal has begun, or ended."""

    document: "SignalDocument"


OfTable = (
    Planned
    | Throttled
    | WaveCommitted
    | ComparisonBegun
    | RangeCompared
    | RowsReread
    | Merged
    | GateRun
    | Published
    | Quarantined
    | WentBack
    | TableStopped
    | LeftAsItIs
    | StartedOver
    | Lifted
    | TookOver
    | TookBack
    | RowsDiffer
    | Unusual
)
Event = (
    Opened
    | ClockWrong
    | Spooled
    | Following
    | SourceLost
    | FailedOver
    | Measured
    | Undelivered
    | PointMade
    | ShownApart
    | SignalMoved
    | OfTable
)
Observer = Callable[[Event], None]


def unobserved(_: Event) -> None:
    """The observer of a run that nobody observes."""


def in_turn(observe: Observer) -> Observer:
    """An observer that passes each event on to `observe`: one at a time, even if several threads send events."""
    lock = threading.Lock()

    def observe_alone(event: Event) -> None:
        with lock:
            observe(event)

    return observe_alone
