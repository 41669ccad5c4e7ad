"""Every error of lakeingest, and who acts next.

The class says who acts: after `Retryable` the scheduler, after `RestartNeeded` and `OperatorNeeded` a person, after
`UsageError` the person who typed the command. The message is a single line: what failed, for which table, and what to
do. No error damages the stored positions.
"""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The errors of reading a damaged document: it is not JSON, nests too deeply, or has the wrong keys, types or numbers
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class Scope(enum.Enum):
    """The part of a run that an error stops."""

    PIPELINE = "the whole run"
    TABLE = "the table that the run works on; the other tables go on"


class LakeIngestError(Exception):
    """An error that users see as a single line; the command ends with `exit_code`."""

    exit_code = 70
    scope: Scope = Scope.PIPELINE
    tables: frozenset[Any] = frozenset()  # if the error is about an event in the binlog: the event's tables, if known
    result: Any = None  # if the command went on with other tables after the error: the result of the command

    @property
    def runbook(self) -> str:
        """The name of the error's page in `runbooks`, which `lakeingest explain` prints."""
        return type(self).__name__

    @property
    def line(self) -> str:
        """The runbook's name and the message, on one line."""
        return f"{self.runbook}: {' '.join(str(self).split())}"


class UsageError(LakeIngestError):
    """The command line or pipeline.yml has a mistake."""

    exit_code = 2


class ConfigError(UsageError):
    """pipeline.yml is missing, unreadable or wrong; the message names the key."""


class NotBuiltYet(UsageError, ValueError):  # the validation of pipeline.yml collects ValueErrors
    """A command, option or key that this version does not have yet: it is refused, never ignored."""


class CheckFailed(LakeIngestError):
    """A check has failed. If the problem that it found has its own runbook, `cause` is the name of this runbook."""

    exit_code = 1
    cause = ""

    @property
    def runbook(self) -> str:
        """The name of the page in `runbooks`: that of the cause, if it is known."""
        return self.cause or super().runbook


class GateFailed(CheckFailed):
    """A quality gate failed on staging: nothing was published, readers keep the last good commit."""

    scope = Scope.TABLE


class KeyDoubled(GateFailed):
    """Two shards have the same global key: one of them is not published, and readers keep its last good commit."""


class AuditFailed(CheckFailed):
    """The audit before a publish found faults in the files of the commit; readers keep the last published commit."""

    scope = Scope.TABLE


class DecodersDisagree(CheckFailed):
    """A second, independent decoder reads other rows in the binlog than the fast one; none of them was published."""

    scope = Scope.TABLE
    difference: Any = None  # the `core.proofs.witness.Difference`


class VerificationFailed(CheckFailed):
    """`verify`, or a run with `quality.verify`, found rows that differ between source and target."""

    scope = Scope.TABLE


class Retryable(LakeIngestError):
    """The command can be run again later; it continues from the last commit."""

    exit_code = 75


class SourceAway(Retryable):
    """The source or its replica cannot be reached, the connection broke, or the replica lags."""


class SourceReplaced(Retryable):
    """Another server has become the source during a run; the next run finds out whether it can continue."""


class SourceBehind(Retryable):
    """The source is another server now, a replica, which does not have all transactions of the copies yet."""


class SourceMoved(Retryable):
    """After the published position, so much of a table was changed that the copy cannot be compared with the source."""


class StaleWriter(Retryable):
    """Another writer has committed to the staging branch or to main, so the commit of lakeingest was refused."""

    scope = Scope.TABLE


class CommitUnknown(Retryable):
    """The catalog did not answer a commit, so nobody knows whether the commit was made; the next run finds out."""

    scope = Scope.TABLE


class MainMoved(Retryable):
    """A compaction by someone else has replaced the commit that readers see; staging must begin at the new commit."""

    scope = Scope.TABLE


class CatalogAway(Retryable):
    """The server of the catalog cannot be reached, does not answer in time, or fails."""


class StorageAway(Retryable):
    """The object store cannot be reached, does not answer in time, slows us down, or fails."""


class SparkLost(Retryable):
    """A worker of a run or Spark's JVM ended: killed, out of memory or cut off. A run with `follow` starts it again."""


class LeaseHeld(Retryable):
    """Another run of this pipeline is at work; the message names its owner."""


class LeaseLost(Retryable):
    """The process was paused for so long that the lease expired: another run may have taken over."""


class SplitUnstable(Retryable):
    """While rows were read, the table's definition, its parents by foreign keys, or the server changed: read again."""

    scope = Scope.TABLE


class RestartNeeded(LakeIngestError):
    """The stored state cannot be continued; the table has to be copied again."""

    exit_code = 3


class BinlogGone(RestartNeeded):
    """The source no longer has the binlog at the stored position, or the binlog has another history."""


class SourceDiverged(RestartNeeded):
    """The source is another server now, and a copy was made from a history that this server does not have."""

    scope = Scope.TABLE


class SpoolGap(RestartNeeded):
    """The spool lacks changes that a merge needs: it begins after a mark, or a segment did not watch the table."""

    scope = Scope.TABLE


class ChangelogGone(RestartNeeded):
    """A reader of the changelog needs changes that are no longer stored: the reader has to begin anew."""


class SchemaChanged(RestartNeeded):
    """The table's definition has changed since its chunks were read."""

    scope = Scope.TABLE
    by_ddl = False  # True: the binlog has the DDL, so the rows can be read again after it


class StateUnreadable(RestartNeeded):
    """Stored state cannot be read: it is corrupt, truncated, or written by a newer version."""

    scope = Scope.TABLE


class OperatorNeeded(LakeIngestError):
    """A person has to change something on the source, the target or the machine."""

    exit_code = 3


class ServerUnproven(OperatorNeeded):
    """The source does not prove that it is the right server, or asks an unproven connection for a secret."""


class ProtocolBroken(OperatorNeeded):
    """The server at the source's address violates MySQL's documented protocol, or sends an endless answer."""


class ClockBehind(OperatorNeeded):
    """The clock of the machine is behind the last commit of a copy, so the next commit would have an earlier time."""

    scope = Scope.TABLE


class ApprovalNeeded(OperatorNeeded):
    """The table waits until a person approves DDL; `ddl` names it."""

    scope = Scope.TABLE
    ddl = ""


class StorageFailed(OperatorNeeded):
    """The warehouse or the state folder cannot be read or written: no space, no permission, a broken disk."""


class ChunkTooSlow(OperatorNeeded):
    """The server ended the SELECT of a chunk at a time limit; a smaller chunk is read faster."""

    scope = Scope.TABLE


class ChunkTooLarge(OperatorNeeded):
    """A chunk has more bytes than an executor should hold in memory; a chunk of fewer rows has fewer bytes."""

    scope = Scope.TABLE


class PreflightFailed(OperatorNeeded):
    """Preconditions of an exact copy are not met; the message lists all of them."""

    scope = Scope.TABLE


class UnsupportedTable(OperatorNeeded):
    """A key or a column type that this version does not copy exactly."""

    scope = Scope.TABLE


class PartitionsDiffer(OperatorNeeded):
    """A copy has other partitions than pipeline.yml asks for, or DDL took away what its partitions or order need."""

    scope = Scope.TABLE


class UnsupportedValue(OperatorNeeded):
    """A value that the target type cannot hold exactly, such as a zero date."""

    scope = Scope.TABLE


class UnsupportedEvent(OperatorNeeded):
    """The binlog has an event that this version cannot replay exactly; the position stays before it."""

    alterations: Any = None  # if the event is DDL: the `core.ddl.alteration.Alteration` of each table, by table
    ddl: Any = None  # if the event is DDL: a `core.ddl.alteration.Ddl`, which has the DDL's place in the binlog


class ForeignWrite(OperatorNeeded):
    """Someone else wrote to a table that only lakeingest may write."""

    scope = Scope.TABLE


class NotOurTable(OperatorNeeded):
    """A table that lakeingest did not make has the target's name."""

    scope = Scope.TABLE


class NotOurCopy(OperatorNeeded):
    """A copy belongs to another pipeline of lakeingest."""

    scope = Scope.TABLE


class NotOurState(OperatorNeeded):
    """The state folder belongs to another pipeline, or to this pipeline's copies of another server."""


def named(name: str) -> type[LakeIngestError] | None:
    """The error of this name; None if this version has no such error."""
    kind = globals().get(name)
    return kind if isinstance(kind, type) and issubclass(kind, LakeIngestError) else None


@contextmanager
def of_pipeline() -> Iterator[None]:
    """Let every error of the block stop the whole run, because the block works on state that all tables share."""
    try:
        yield
    except LakeIngestError as error:
        error.scope = Scope.PIPELINE
        raise


@contextmanager
def concerning(table: object) -> Iterator[None]:
    """Let every error of the block concern this table alone: the binlog can be read without this table."""
    try:
        yield
    except LakeIngestError as error:
        error.tables = frozenset({table})
        raise


@contextmanager
def of_table() -> Iterator[None]:
    """Let an OperatorNeeded of the block stop only one table. Errors of subclasses have a scope of their own."""
    try:
        yield
    except OperatorNeeded as error:
        if type(error) is OperatorNeeded:
            error.scope = Scope.TABLE
        raise
