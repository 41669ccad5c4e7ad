"""How a run continues the copies that it finds: with the stored or a new spool, and which copies cannot be continued.

All copies were made from the source's server, in its current epoch. For each answer, the source has to read its binlog.
So the decision asks a question only when it needs the answer. The same question must always have the same answer.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from lakeingest.core.position import Place, Position
from lakeingest.core.progress import Progress
from lakeingest.core.schema import TableId
from lakeingest.errors import BinlogGone, LakeIngestError


class Answers(Protocol):
    """The source's answers about its binlog. Each answer is an error, or None if there is no error."""

    def binlog_gone(self, position: Position) -> LakeIngestError | None:
        """The error if the source no longer has the binlog after the position, or has another history."""

    def contradicts(self, position: Position) -> LakeIngestError | None:
        """The error if the binlog has another history at the position. This is asked if the spool cannot confirm it."""

    def unreadable(self, table: TableId, since: Position) -> LakeIngestError | None:
        """The error if a change of the table between `since` and the end of the spool cannot be replayed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored spool, from its first position `opened` to its `position`.

    `covers`: the tables whose copies have the spool's history, and for which the spool has every change that the next
    merge needs. `doubts`: the tables of `covers` whose position the spool cannot confirm.
    """

    opened: Position
    position: Position
    covers: Collection[TableId]
    doubts: Collection[TableId]


@dataclass(frozen=True, slots=True)
class Continued:
    """How the copies are continued.

    `keeps_spool`: if True, the stored spool goes on; if False, a new spool begins at the position `begins`, or, if
    `begins` is None, at the current position. `again`: tables whose incomplete copies cannot be continued, so the
    tables are copied again. `failed`: tables whose complete copies cannot be continued, each with its error; the other
    tables go on without them.
    """

    keeps_spool: bool
    begins: Position | None
    again: tuple[TableId, ...]
    failed: Mapping[TableId, LakeIngestError]


def resume(
    copied: Mapping[TableId, Progress],
    spool: Stored | None,
    answers: Answers,
    asked: Collection[TableId] = (),
    *,
    unknown: bool = False,
) -> Continued:
    """How these copies are continued.

    `asked`: tables that a person wants to have read again; their copies are started over if they cannot be continued.
    `unknown`: other tables have copies that cannot be loaded, and may need the stored spool.

    Raises:
        LakeIngestError: no copy can be continued, and none of them is in `asked`. The error is the reason of one copy.

    """
    is_asked = not copied.keys().isdisjoint(asked)
    lost_copies = _lost_copies(copied, answers)
    positions = {
        table: progress.position
        for table, progress in copied.items()
        if table not in lost_copies and progress.position is not None
    }
    # a copy without a chunk does not need the stored spool
    needs_spool = unknown or any(progress.splits.all for progress in copied.values())
    # the spool is of use if it covers a copy; if all copies are unknown, it may cover one of them
    if spool is not None and needs_spool and (spool.covers or not copied):
        lost = answers.binlog_gone(spool.position)
        if lost is None:
            return _with_spool(copied, spool, answers, asked)
        # maybe the source has lost only transactions after a copy's position: then a new spool begins at that position
        if not is_asked and all(position.place >= spool.position.place for position in positions.values()):
            raise lost
    failed = _errors_of_lost(positions, answers) | _lost_rereads(copied, None, answers)
    if failed and failed.keys() == positions.keys() and not is_asked:
        raise next(iter(failed.values()))
    continued = [position for table, position in positions.items() if table not in failed]
    return Continued(keeps_spool=False, begins=_first(continued), again=lost_copies, failed=failed)


def _with_spool(
    copied: Mapping[TableId, Progress], spool: Stored, answers: Answers, asked: Collection[TableId]
) -> Continued:
    """How the copies are continued if the source has the binlog after the spool's position.

    If the spool does not cover a table, the table had stopped, and the spool has forgotten its changes. If such a table
    can be continued, a new spool begins at the first position that a copy needs.
    """
    # Step 1: the tables that the spool covers
    covered = {table: progress for table, progress in copied.items() if table in spool.covers}
    failed: dict[TableId, LakeIngestError] = {}
    for table, progress in covered.items():
        position = progress.position
        if table in spool.doubts and position is not None and (error := answers.contradicts(position)) is not None:
            failed[table] = error
    failed |= _lost_rereads(copied, spool.position.place, answers)
    again = _lost_chunks(covered, spool.position.place, answers)
    # Step 2: the tables that the spool does not cover, because they had stopped before
    behind: dict[TableId, Position] = {}
    for table in copied.keys() - covered.keys():
        position = copied[table].position
        if copied[table].splits.stop is None or position is None:
            again.append(table)
        else:
            behind[table] = position
    failed |= _errors_of_lost(behind, answers)
    for table in behind.keys() - failed.keys():
        if (error := answers.unreadable(table, behind[table])) is not None:
            failed[table] = error
    if failed and failed.keys() == copied.keys() and failed.keys().isdisjoint(asked):
        raise next(iter(failed.values()))
    # Step 3: the spool goes on if none of the tables that it does not cover can be continued
    if behind.keys() <= failed.keys():
        return Continued(keeps_spool=True, begins=None, again=tuple(again), failed=failed)
    needed = [progress.position or spool.opened for table, progress in copied.items() if table not in {*failed, *again}]
    if any(progress.splits.stop is None for progress in covered.values()):
        needed.append(spool.opened)  # an incomplete copy needs the changes from its start on
    return Continued(keeps_spool=False, begins=_first(needed), again=tuple(again), failed=failed)


def _first(positions: Iterable[Position]) -> Position | None:
    return min(positions, key=attrgetter("place"), default=None)


def _errors_of_lost(positions: Mapping[TableId, Position], answers: Answers) -> dict[TableId, LakeIngestError]:
    """The tables whose position the source's binlog no longer has, each with its error."""
    errors = {table: answers.binlog_gone(position) for table, position in positions.items()}
    return {table: error for table, error in errors.items() if error is not None}


def _lost_chunks(copied: Mapping[TableId, Progress], end: Place, answers: Answers) -> list[TableId]:
    """The incomplete copies with a chunk that saw a lost part of the binlog after the spool's `end`."""
    copying = {table: progress for table, progress in copied.items() if progress.splits.stop is None}
    return list(_errors_of_lost(_read_after(copying, end), answers))


def _lost_copies(copied: Mapping[TableId, Progress], answers: Answers) -> tuple[TableId, ...]:
    """The incomplete copies that cannot go on with a new spool.

    A copy can go on if its position is still the place from which on the spool watched it, and if the source has the
    binlog after that place, with all transactions that the chunks saw.
    """
    incomplete = {table: progress for table, progress in copied.items() if progress.splits.stop is None}
    starts = {
        table: progress.position
        for table, progress in incomplete.items()
        if progress.position is not None and progress.position.place == progress.covered_from
    }
    highs = _read_after({table: copied[table] for table in starts}, None)
    lost = {*_errors_of_lost(starts, answers), *_errors_of_lost(highs, answers)}
    return tuple(table for table in incomplete if table not in starts or table in lost)


def _lost_rereads(
    copied: Mapping[TableId, Progress], proven: Place | None, answers: Answers
) -> dict[TableId, LakeIngestError]:
    """The tables with patches that saw a lost part of the binlog, each with an error.

    The merge that takes in a patch needs the changes up to the patch's high watermark. `proven`: the binlog up to this
    place is not lost; None: not known for any place.
    """
    waiting = {table: progress for table, progress in copied.items() if progress.patches}
    return {
        table: BinlogGone(f"rows of {table} were read again in a lost part of the binlog: {error}")
        for table, error in _errors_of_lost(_read_after(waiting, proven), answers).items()
    }


def _read_after(copied: Mapping[TableId, Progress], proven: Place | None) -> dict[TableId, Position]:
    """The greatest high watermark of each table that has noted one, if it is after the `proven` place."""
    highs = {table: progress.read_to for table, progress in copied.items() if progress.read_to is not None}
    return {table: high for table, high in highs.items() if proven is None or high.place > proven}
