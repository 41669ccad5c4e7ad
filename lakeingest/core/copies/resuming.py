"""How a run continues the copies that it finds: with the stored or a new spool, and which copies cannot be continued.

All copies were made from the source's server, in its current epoch. In this module, a copy is *complete* once its
splits have one common stop; before that it is *incomplete*.

The decision asks the source about its binlog. For each answer, the source has to read the binlog. So a question is
asked only if its answer is needed. The same question must always have the same answer.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.copies.progress import Progress
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import BinlogGone, LakeIngestError


class Answers(Protocol):
    """The source's answers about its binlog. Each answer is an error, or None if there is no error."""

    def binlog_gone(self, position: Position) -> LakeIngestError | None:
        """The error if the source no longer has the binlog after the position, or has another history."""

    def contradicts(self, position: Position) -> LakeIngestError | None:
        """The error if the binlog has another history at the position. Only asked for the tables of `Stored.doubts`."""

    def unreadable(self, table: TableId, since: Position) -> LakeIngestError | None:
        """The error if a change of the table between `since` and the end of the spool cannot be replayed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored spool, from its first position `opened` to its `position`.

    `covers`: the tables whose copies have the spool's history, and for which the spool has every change that the next
    merge needs. `doubts`: those tables of `covers` for which the spool cannot tell whether the history of the copy's
    position is right.
    """

    opened: Position
    position: Position
    covers: Collection[TableId]
    doubts: Collection[TableId]


@dataclass(frozen=True, slots=True)
class Continued:
    """How the copies are continued.

    `keeps_spool`: if True, the stored spool goes on; if False, a new spool begins.
    `begins`: the position at which the new spool begins; None if it begins at the source's current position, or if the
    stored spool goes on.
    `again`: tables whose incomplete copies cannot be continued, so the tables are copied again.
    `failed`: tables whose complete copies, or whose patches, cannot be continued, each with its error. The other tables
    go on without them.
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

    `spool`: None if none is stored.
    `asked`: tables that a person wants to have read again; their copies are started over if they cannot be continued.
    `unknown`: other tables have copies that cannot be loaded, and may need the stored spool.

    Raises:
        LakeIngestError: no copy can be continued, and none of the tables is in `asked`. The error is that of one copy,
            or that of the spool's position.

    """
    has_asked = not copied.keys().isdisjoint(asked)  # then nothing is raised: these copies can be started over
    lost_copies = _lost_copies(copied, answers)
    going_on = {table: progress for table, progress in copied.items() if table not in lost_copies}
    # where a new spool may continue these copies
    positions = {table: progress.position for table, progress in going_on.items() if progress.position is not None}
    # a copy without a chunk does not need the stored spool
    needs_spool = unknown or any(progress.splits.all for progress in copied.values())
    # the spool is of use if it covers a copy; without a loaded copy, it may cover one of the unknown copies
    if spool is not None and needs_spool and (spool.covers or not copied):
        error = answers.binlog_gone(spool.position)
        if error is None:
            return _with_spool(copied, spool, answers, asked)
        # a position before the spool's may still be in the binlog: then a new spool can begin at that position
        has_earlier = any(position.place < spool.position.place for position in positions.values())
        if not has_asked and not has_earlier:
            raise error
    # `proven=None`: it is not known up to which place the binlog is complete
    failed = _errors_of_lost(positions, answers) | _lost_rereads(going_on, proven=None, answers=answers)
    has_no_copy_left = bool(failed) and failed.keys() == positions.keys()
    if has_no_copy_left and not has_asked:
        raise next(iter(failed.values()))
    usable = [position for table, position in positions.items() if table not in failed]
    return Continued(keeps_spool=False, begins=_first(usable), again=lost_copies, failed=failed)


def _with_spool(
    copied: Mapping[TableId, Progress], spool: Stored, answers: Answers, asked: Collection[TableId]
) -> Continued:
    """How the copies are continued if the source has the binlog after the spool's position.

    If the spool does not cover a table, the table had stopped, and the spool has forgotten the table's changes. If such
    a table can be continued, a new spool begins at the first position that a copy needs. Otherwise the stored spool
    goes on. Raises an error as `resume` does.
    """
    # Step 1: the tables that the spool covers
    covered = {table: progress for table, progress in copied.items() if table in spool.covers}
    failed: dict[TableId, LakeIngestError] = {}
    for table, progress in covered.items():
        position = progress.position
        if table in spool.doubts and position is not None and (error := answers.contradicts(position)) is not None:
            failed[table] = error
    again = _with_lost_chunks(covered, spool.position.place, answers)
    going_on = {table: progress for table, progress in copied.items() if table not in again}
    failed |= _lost_rereads(going_on, spool.position.place, answers)
    # Step 2: the tables that the spool does not cover, because they had stopped before
    behind: dict[TableId, Position] = {}  # the complete copies among them, with their positions
    for table in copied.keys() - covered.keys():
        position = copied[table].position
        is_complete = copied[table].splits.stop is not None
        if is_complete and position is not None:
            behind[table] = position
        else:
            again.append(table)
    failed |= _errors_of_lost(behind, answers)
    for table in behind.keys() - failed.keys():
        if (error := answers.unreadable(table, behind[table])) is not None:
            failed[table] = error
    has_no_copy_left = bool(failed) and failed.keys() == copied.keys()
    if has_no_copy_left and copied.keys().isdisjoint(asked):
        raise next(iter(failed.values()))
    # Step 3: the stored spool goes on, unless a table in `behind` can be continued
    if behind.keys() <= failed.keys():
        return Continued(keeps_spool=True, begins=None, again=tuple(again), failed=failed)
    continued = [progress for table, progress in copied.items() if table not in {*failed, *again}]
    # a copy whose position is not known needs the changes from the start of the spool on
    needed = [progress.position or spool.opened for progress in continued]
    if any(progress.splits.stop is None for progress in covered.values()):
        needed.append(spool.opened)  # an incomplete copy needs the changes from its start on
    return Continued(keeps_spool=False, begins=_first(needed), again=tuple(again), failed=failed)


def _first(positions: Iterable[Position]) -> Position | None:
    """The earliest position; None if there is none."""
    return min(positions, key=attrgetter("place"), default=None)


def _errors_of_lost(positions: Mapping[TableId, Position], answers: Answers) -> dict[TableId, LakeIngestError]:
    """The tables whose position the source's binlog no longer has, each with its error."""
    errors = {table: answers.binlog_gone(position) for table, position in positions.items()}
    return {table: error for table, error in errors.items() if error is not None}


def _with_lost_chunks(copied: Mapping[TableId, Progress], end: Place, answers: Answers) -> list[TableId]:
    """The incomplete copies with a chunk that saw a lost part of the binlog after the spool's `end`."""
    incomplete = {table: progress for table, progress in copied.items() if progress.splits.stop is None}
    return list(_errors_of_lost(_highs_after(incomplete, end), answers))


def _lost_copies(copied: Mapping[TableId, Progress], answers: Answers) -> tuple[TableId, ...]:
    """The incomplete copies that cannot go on with a new spool.

    To go on with a new spool, an incomplete copy must meet two conditions:

    1. It was not merged yet, so that its position is still the place from which on the spool watched the table.
    2. The source has the binlog after that place, with all transactions that the chunks saw.
    """
    incomplete = {table: progress for table, progress in copied.items() if progress.splits.stop is None}
    starts = {
        table: progress.position
        for table, progress in incomplete.items()
        if progress.position is not None and progress.position.place == progress.covered_from
    }
    highs = _highs_after({table: copied[table] for table in starts}, None)  # None: all noted watermarks
    lost = {*_errors_of_lost(starts, answers), *_errors_of_lost(highs, answers)}
    return tuple(table for table in incomplete if table not in starts or table in lost)


def _lost_rereads(
    copied: Mapping[TableId, Progress], proven: Place | None, answers: Answers
) -> dict[TableId, LakeIngestError]:
    """The tables with patches that saw a lost part of the binlog, each with an error.

    The merge that takes in a patch needs the changes up to the patch's high watermark. `proven`: up to this place, no
    part of the binlog is lost; None if no such place is known.
    """
    waiting = {table: progress for table, progress in copied.items() if progress.patches}
    return {
        table: BinlogGone(f"rows of {table} were read again in a lost part of the binlog: {error}")
        for table, error in _errors_of_lost(_highs_after(waiting, proven), answers).items()
    }


def _highs_after(copied: Mapping[TableId, Progress], proven: Place | None) -> dict[TableId, Position]:
    """The greatest high watermark of each table that has noted one, if the watermark is after the `proven` place.

    If `proven` is None, each noted watermark counts.
    """
    highs = {table: progress.read_to for table, progress in copied.items() if progress.read_to is not None}
    return {table: high for table, high in highs.items() if proven is None or high.place > proven}
