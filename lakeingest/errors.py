"""Every way lakeingest stops, and who acts next.

The class says who: `Retryable` the scheduler, `RestartNeeded` and `OperatorNeeded` a person, `UsageError` whoever typed
the command. The message is one line: what, which table, way out. Positions are intact whenever one of these is raised.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LakeIngestError(Exception):
    """An error that users see as one line; `exit_code` is what the command ends with."""

    exit_code = 70
    of_table = False  # whether, raised while a run works on a table, it stops that table alone and the others go on
    tables: frozenset[Any] = frozenset()  # the copied tables that an event of the binlog concerns, where that is known
    result: Any = None  # what the run came to that went on with other tables, and raised this at its end

    @property
    def runbook(self) -> str:
        """The name of its page in `runbooks`, which `lakeingest explain` prints."""
        return type(self).__name__


class UsageError(LakeIngestError):
    """The command line or pipeline.yml cannot be used as it is."""

    exit_code = 2


class ConfigError(UsageError):
    """pipeline.yml is missing, unreadable or wrong; the message names the key."""


class NotBuiltYet(UsageError, ValueError):  # what validates pipeline.yml collects ValueErrors
    """A command, option or key of the interface that this version refuses rather than ignores."""


class CheckFailed(LakeIngestError):
    """Something was measured and is not right."""

    exit_code = 1


class GateFailed(CheckFailed):
    """A quality gate failed on staging: nothing was published, readers keep the last good commit."""

    of_table = True


class VerificationFailed(CheckFailed):
    """`verify` found rows that differ between source and target."""


class Retryable(LakeIngestError):
    """The same command, later, goes on from the last commit."""

    exit_code = 75


class SourceAway(Retryable):
    """The source cannot be reached, or the connection broke."""


class SourceMoved(Retryable):
    """A comparison needs a quiet source, and this one was written to."""


class StaleWriter(Retryable):
    """Another writer moved the staging branch or main since we looked: our commit was refused."""

    of_table = True


class CommitUnknown(Retryable):
    """The catalog did not answer a commit, and could not say whether it is there; the next run finds out."""

    of_table = True


class MainMoved(Retryable):
    """Someone's compaction rewrote what readers see since we looked: staging has to be built on that."""

    of_table = True


class SparkLost(Retryable):
    """Spark's JVM ended under a run: killed, out of memory, or cut off. A run that follows starts another one."""


class LeaseHeld(Retryable):
    """Another run of this pipeline is at work; the message names its owner."""


class LeaseLost(Retryable):
    """Paused for so long that the lease went void: another run may have taken over."""


class SplitUnstable(Retryable):
    """The table's definition or the server changed while a chunk was read: the chunk must be read again."""

    of_table = True


class RestartNeeded(LakeIngestError):
    """The kept state cannot be continued; the table has to be copied again."""

    exit_code = 3


class BinlogGone(RestartNeeded):
    """The source no longer has, or no longer is, the binlog that our position stands in."""


class SpoolGap(RestartNeeded):
    """The spool does not reach back to a mark that a merge needs."""

    of_table = True


class ChangelogGone(RestartNeeded):
    """A reader of the changelog is behind what is still held of it: the reader has to begin anew."""


class SchemaChanged(RestartNeeded):
    """The table's definition is not the one its splits were read with."""

    of_table = True


class StateUnreadable(RestartNeeded):
    """What we stored cannot be read back: corrupt, truncated, or written by a newer version."""

    of_table = True


class OperatorNeeded(LakeIngestError):
    """A person has to change something on the source, the target or the machine."""

    exit_code = 3


class StorageFailed(OperatorNeeded):
    """The warehouse or the state folder cannot be read or written: no space, no permission, a broken disk."""


class ChunkTooSlow(OperatorNeeded):
    """The server gave up a chunk that took longer than its cap; a smaller chunk is read faster."""

    of_table = True


class ChunkTooLarge(OperatorNeeded):
    """A chunk of several rows has more bytes than an executor should hold at once; a smaller chunk has fewer."""

    of_table = True


class PreflightFailed(OperatorNeeded):
    """A precondition without which the result could be wrong is not met; all of them are listed."""

    of_table = True


class UnsupportedTable(OperatorNeeded):
    """A key or a column type that this version does not copy exactly."""

    of_table = True


class UnsupportedValue(OperatorNeeded):
    """A value that the target type cannot hold exactly, such as a zero date."""

    of_table = True


class UnsupportedEvent(OperatorNeeded):
    """The binlog holds something that this version cannot replay exactly; the position stands before it."""


class ForeignWrite(OperatorNeeded):
    """Someone else wrote to a table that only lakeingest may write."""

    of_table = True


class NotOurTable(OperatorNeeded):
    """The target name is taken by a table that lakeingest did not make."""

    of_table = True


class NotOurState(OperatorNeeded):
    """The state folder is of another pipeline, or of this one's copies of another server."""


@contextmanager
def of_pipeline() -> Iterator[None]:
    """Errors of the block stop the whole run: what is read or kept there is shared by all tables."""
    try:
        yield
    except LakeIngestError as error:
        error.of_table = False
        raise


@contextmanager
def concerning(table: object) -> Iterator[None]:
    """Errors of the block concern this table: the binlog can be read without it."""
    try:
        yield
    except LakeIngestError as error:
        error.tables = frozenset({table})
        raise


@contextmanager
def of_table() -> Iterator[None]:
    """An error of the block that has no closer name stops the table that is worked on, and no other one."""
    try:
        yield
    except OperatorNeeded as error:
        error.of_table |= type(error) is OperatorNeeded
        raise
