"""Status: the state of each table, from the properties of its copy.

Status needs no Spark. If the source does not answer, status shows what the lake knows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from lakeingest.commands.companion_status import CompanionsInLake, CompanionStatus, without_companions
from lakeingest.commands.copy_state import freshness_of, notes_of_start, notes_of_unread, shown_state, state_of_copy
from lakeingest.commands.proof_status import ProofStatus, proofs_of
from lakeingest.commands.report import Report
from lakeingest.commands.retention import Retention, binlog_gone_message, unread_from
from lakeingest.commands.signal_status import OpenSignal, Paused, Signals
from lakeingest.commands.source_state import SourceState, ask_source
from lakeingest.config import Config
from lakeingest.config.formats import table_name
from lakeingest.core.binlog.position import Position
from lakeingest.core.copies.quarantine import note_of_quarantine
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.following import Followed
from lakeingest.core.figures.shown import SHOWN, Shown
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, LakeIngestError, NotOurTable
from lakeingest.files.file import state_of
from lakeingest.lake.preflight import Copies, copied, copies
from lakeingest.pipeline.opening.absent_tables import copied_once
from lakeingest.pipeline.publishing.publish import GATE
from lakeingest.pipeline.run.quiet_tables import open_target
from lakeingest.quality.reports import tables_with_reports
from lakeingest.spool.spool import Spool
from lakeingest.state.following import read_following
from lakeingest.state.fresh import read_fresh
from lakeingest.state.last_run import failure
from lakeingest.state.stopped import Stopped, StoppedTables
from lakeingest.state.vanished import vanished_run
from lakeingest.state.witness import read_met
from lakeingest.version import VERSION

_HEADERS = (
    "table",
    "state",
    "freshness",
    "rows",
    "lag, bytes",
    "last gate",
    "position",
    "source time",
    "published",
    "made NULL",
    "target",
    "companions",
)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's state.

    `rows`, `position`: those of the published copy. Before the first publish, those of the staged rows; without a copy,
    0 and None.
    `lag_bytes`: the length of the binlog between `position` and the source's written position; None if unknown.
    `gate`: the result of the last gate; None if no gate has run.
    `nulled`: the number of values that are NULL only because the user chose so.
    `stopped`: why the last run failed for this table; None if the run did not fail for this table.
    `in_source`: whether the source has the table; None if nobody asked, or if the source did not answer.
    `cascades`: the number of foreign keys whose changes are missing in the copy because the user chose so.
    `signals`: the signals of the table that have not ended.
    `paused`: the table's pause; None if the table is not paused.
    `keeps_deleted`: `rows` includes rows that are marked as deleted.
    `included`: False for a table that has a copy, but that tables.include and exclude no longer choose.
    `binlog_seconds`: how long the source will still keep the binlog that the next run needs for this table; 0 if the
    source has deleted this binlog (`binlog_gone`), None if the source keeps it for ever, or if nobody knows.
    `shown`: the state that readers see, with its times; None if nothing is published, or if it cannot be read.
    `staged`: the position of staged rows that are newer than `shown`; None if there are no such rows.
    `hidden`: the user of the pipeline has no right to read the table. Then `in_source` is False, although the source
    may have the table.
    `fresh_as_of`: readers see every change from before this time (ISO 8601). `freshness_seconds`: its age, now. Both
    are None if it is not known. `max_staleness_seconds`: the objective for this age; None if there is none.
    `following`: what following the source has cost, all tables together, as the run that followed last has counted it;
    None if no run has followed.
    `quarantined`: the number of keys whose rows are not in the copy, because they failed a gate.
    `rolled_back`: a text about a rollback after the last publish; None if there was none.
    `proof`: what comparisons of ranges with the source have found (`quality.verify`); None if nothing is known.
    `began_empty`: where the copy began without rows (`tables.startup`), so that it lacks rows that never changed since;
    None for any other copy.
    `copied_once`: the table is copied only once (`tables.startup`), and no run changes its copy any more.
    `companions`: the tables beside the copy that pipeline.yml asks for; none before the first publish.
    """

    table: TableId
    target: str
    state: str
    rows: int
    waves: int
    position: Position | None
    lag_bytes: int | None
    gate: dict[str, Any] | None
    nulled: int = 0
    stopped: Stopped | None = None
    in_source: bool | None = True
    cascades: int = 0
    signals: tuple[OpenSignal, ...] = ()
    paused: Paused | None = None
    keeps_deleted: bool = False
    included: bool = True
    binlog_seconds: int | None = None
    binlog_gone: bool = False
    shown: Shown | None = None
    staged: Position | None = None
    hidden: bool = False
    rolled_back: str | None = None
    quarantined: int = 0
    fresh_as_of: str | None = None
    freshness_seconds: float | None = field(default=None, compare=False)
    max_staleness_seconds: float | None = None
    following: Followed | None = field(default=None, compare=False)
    proof: ProofStatus | None = None
    began_empty: str | None = None
    copied_once: bool = False
    companions: tuple[CompanionStatus, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Whether the age of what readers see is known, and misses its objective."""
        age_seconds, objective = self.freshness_seconds, self.max_staleness_seconds
        return age_seconds is not None and objective is not None and age_seconds > objective

    @property
    def last_gate(self) -> str | None:
        """`passed` or `failed`: the result of the last gate, of a publish or of a wave. None if no gate has run yet."""
        if self.gate is None:
            return None
        return "passed" if self.gate["success"] else "failed"


class Statuses(Report, tuple[TableStatus, ...]):  # noqa: SLOT001 - a tuple with attributes
    """The states of several tables.

    `source_error` is the error if the source did not answer, otherwise None. `last_run` has texts about the
    last run, if it ended without a word or failed. `retention` is None if the source was not asked or did not answer.
    `unread`: by reason, how many values and events of the binlog the second decoder has not compared. `listing`: the
    list of transactions, if pipeline.yml asks for it.
    """

    source_error: LakeIngestError | None = None
    last_run: tuple[str, ...] = ()
    retention: Retention | None = None
    unread: Mapping[str, int] = MappingProxyType({})
    listing: CompanionStatus | None = None

    @property
    def headers(self) -> Sequence[str]:
        """Important columns first: a narrow terminal cuts the rest. `companions` only if a table has some."""
        return _HEADERS if any(table.companions for table in self) else _HEADERS[:-1]

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each table."""
        width = len(self.headers)
        for table in self:
            position = None if table.position is None else str(table.position.at)
            state = table.state if table.stopped is None else f"{table.state}, {table.stopped.error}"
            if table.copied_once:
                state += ", copied once"
            if table.binlog_gone:
                state += ", binlog gone"
            if table.paused is not None:
                state += ", paused"
            if not table.included:
                state += ", no longer included"
            elif table.hidden:
                state += ", hidden from the user"
            elif table.in_source is False:
                state += ", gone from the source"
            row = (
                str(table.table),
                state,
                "unknown" if table.freshness_seconds is None else spoken(table.freshness_seconds),
                table.rows,
                table.lag_bytes,
                table.last_gate,
                position,
                table.shown and table.shown.source_time,
                table.shown and table.shown.published_at,
                table.nulled,
                table.target,
                ", ".join(map(str, table.companions)),
            )
            yield row[:width]

    @property
    def notes(self) -> Sequence[str]:
        """Notes about single tables, then about the binlog, the failure of the last run, and the source's error."""
        notes = [f"{table.table}: {table.stopped}" for table in self if table.stopped is not None]
        notes += [
            f"{table.table}: rows as of {table.staged.at} are staged, and no reader sees them yet"
            for table in self
            if table.staged is not None
        ]
        notes += [
            f"{table.table}: stale: readers see it as of {spoken(table.freshness_seconds or 0)} ago, and max_staleness"
            f" is {spoken(table.max_staleness_seconds or 0)}"
            for table in self
            if table.is_stale
        ]
        notes += [f"{one.table}: {text}" for one in self for text in (one.rolled_back, one.paused) if text is not None]
        # a signal for several tables is one note
        notes += dict.fromkeys(str(signal) for table in self for signal in table.signals)
        notes += [
            f"{table.table}: no longer included; {table.target} is not changed, and the spool holds nothing of it"
            for table in self
            if not table.included
        ]
        notes += [
            f"{table.table}: "
            + ("the user may not read it; GRANT SELECT on it" if table.hidden else "the source no longer has it")
            + f"; {table.target} is not changed"
            for table in self
            if table.in_source is False and table.included
        ]
        notes += [
            f"{table.table}: changes by {table.cascades} foreign keys are missing, as tables.options says (cascades)"
            for table in self
            if table.cascades
        ]
        notes += [
            f"{table.table}: deleted rows stay in the copy and count as rows, as tables.options says (deletes)"
            for table in self
            if table.keeps_deleted
        ]
        notes += [note_of_quarantine(table.table, table.quarantined) for table in self if table.quarantined]
        notes += [
            note for one in self for note in notes_of_start(one.table, one.began_empty, copied_once=one.copied_once)
        ]
        notes += [note for one in self for companion in one.companions for note in companion.notes(str(one.table))]
        notes += [] if self.listing is None else self.listing.notes("transactions")
        notes += dict.fromkeys(note for table in self if table.proof for note in table.proof.notes(table.table))
        notes += self._binlog_notes
        notes += notes_of_unread(self.unread)
        notes += self.last_run
        notes += [str(self[0].following)] if self and self[0].following is not None else []  # equal for all tables
        if self.source_error is not None:
            notes.append(f"only the lake was read; lag and new tables are unknown: {self.source_error}")
        return notes

    @property
    def _binlog_notes(self) -> list[str]:
        """Up to two notes about the binlog that the next run needs.

        The first note names the tables whose binlog the source has deleted. The second note says how long the source
        will keep the binlog for the other tables; it is a warning if this time is short.
        """
        tables_gone = [table.table for table in self if table.binlog_gone]
        notes = [binlog_gone_message(tables_gone)] if tables_gone else []
        others = [table for table in self if not table.binlog_gone]
        seconds_left = [table.binlog_seconds for table in others if table.binlog_seconds is not None]
        if self.retention is None or not seconds_left:
            return notes
        least = spoken(min(seconds_left))
        warning = self.retention.warning(seconds_left)
        return [*notes, warning or f"the source has the binlog that the next run needs for {least} more"]


def status(config: Config, tables: Sequence[str] = (), *, offline: bool = False) -> Statuses:
    """The states of the given tables; without names, of all included tables and of all that this pipeline has copied.

    With `offline`, the source is not asked. If the source does not answer, the states come from the lake alone, and
    `source_error` of the result is the source's error. But if the lake has no copy of an included table, the source's
    error is raised.
    """
    target = open_target(config)
    source = SourceState() if offline else ask_source(config)
    all_copies = copied(target, config.target)
    held = copies(target, {*all_copies, *source.tables})
    if held.unopened is not None:
        raise held.unopened
    included_copies = set(config.tables.select(all_copies))
    # copies that are no longer included: the reports of their gates show that this pipeline has made them
    excluded_copies = tables_with_reports(state_of(config), set(all_copies) - included_copies)
    our_included_copies = [table for table in included_copies if _may_be_ours(held, table)]
    if source.error is not None and not our_included_copies:
        raise source.error
    our_excluded_copies = [table for table in excluded_copies if _may_be_ours(held, table)]
    ours = without_companions(config, [*our_included_copies, *our_excluded_copies])
    all_tables = sorted({*ours, *source.tables})
    signals = Signals.read(config, source.retention)
    spool = None if source.retention is None else _load_spool(config)  # needed only for the retention
    fresh_notes = read_fresh(state_of(config))
    following = read_following(state_of(config))
    chosen = config.tables.choose(all_tables, tables)
    proofs = proofs_of(config, chosen)
    finished = copied_once(config, chosen, held.staged)  # no run changes these copies any more
    companions = CompanionsInLake.of(config, chosen)
    records = StoppedTables(state_of(config)).read_all(chosen)
    listed = frozenset(source.tables)
    states: list[TableStatus] = []
    for table in chosen:
        in_lake = _table_status(config, held, table, source, spool, signals)
        stopped = records.get(table) or in_lake.stopped
        is_included = table not in excluded_copies
        is_asked = is_included and not offline and source.error is None  # the source is asked for included tables only
        state = replace(
            in_lake,
            signals=signals.of(table),
            paused=signals.pause_of(config, table, in_lake.position),
            stopped=stopped,
            gate=_failed_gate(stopped) or in_lake.gate,
            in_source=table in listed if is_asked else None,
            cascades=source.cascades.get(table, 0),
            keeps_deleted=config.tables.of(table).deletes == "soft",
            included=is_included,
            hidden=table in source.hidden,
            following=following,
            **freshness_of(config, table, in_lake.shown, in_lake.lag_bytes, fresh_notes.get(table)),
            companions=companions.beside(table, held.staged.get(table), in_lake.shown),
            proof=proofs.get(table),
            copied_once=table in finished,
            binlog_seconds=None if table in finished else in_lake.binlog_seconds,  # no run needs it
            binlog_gone=in_lake.binlog_gone and table not in finished,
        )
        states.append(state)
    statuses = Statuses(states)
    statuses.source_error, statuses.retention = source.error, source.retention
    statuses.listing, state_folder = companions.listing, state_of(config)
    statuses.last_run = tuple(filter(None, (vanished_run(state_folder), failure(state_folder))))
    statuses.unread = read_met(state_folder, VERSION).unread
    return statuses


def _failed_gate(stopped: Stopped | None) -> dict[str, Any] | None:
    """The result of the gate for a table that stopped because its gate failed; None for any other table."""
    if stopped is None or stopped.error != GateFailed.__name__:
        return None
    return {"success": False, "message": stopped.message}


def _may_be_ours(held: Copies, table: TableId) -> bool:
    """False if the lake's table of this name was not made by lakeingest; True if it was, or if there is none."""
    return not isinstance(held.refused.get(table), NotOurTable)


def _load_spool(config: Config) -> Spool | None:
    """The spool. None if there is none, if a run is removing segments, or if the spool is damaged.

    A run reports the damage.
    """
    try:
        return Spool.load(state_of(config) / "spool")
    except LakeIngestError:
        return None


def _table_status(
    config: Config,
    held: Copies,
    table: TableId,
    source: SourceState,
    spool: Spool | None,
    signals: Signals,
) -> TableStatus:
    """The state of one table, from the lake, the spool, the signals and what the source has said.

    `held`: the copies of all tables.
    """
    name, retention = table_name(config.target, table), source.retention
    without_copy = TableStatus(table, name, "not copied yet", rows=0, waves=0, position=None, lag_bytes=None, gate=None)
    if (refusal := held.refused.get(table)) is not None:
        return replace(without_copy, state="stopped", stopped=Stopped.of(table, refusal))
    staged = held.staged.get(table)
    if staged is None:
        return without_copy
    progress, properties = staged.progress, held.properties[table]
    shown = shown_state(staged, Shown.of_text(properties.get(SHOWN, "")))  # what readers see; None: nothing yet
    position, rows = (progress.position, progress.rows) if shown is None else (shown.position, shown.rows)
    shows_earlier_commit = shown is not None and not staged.visible
    gate, unread_since = properties.get(GATE), unread_from(spool, progress)
    return TableStatus(
        table,
        name,
        state_of_copy(staged, shown),
        rows=rows,
        waves=progress.wave,
        position=position,
        lag_bytes=source.lag_bytes(position),
        gate=json.loads(gate) if gate else None,
        nulled=progress.nulled,
        quarantined=len(progress.quarantine),
        began_empty=progress.began_empty,
        binlog_seconds=(
            None if retention is None or unread_since is None else retention.seconds_left(config, unread_since)
        ),
        binlog_gone=retention is not None and unread_since is not None and retention.has_deleted(unread_since),
        shown=shown,
        staged=progress.position if shows_earlier_commit else None,
        rolled_back=signals.rollback_note(table, staged.published),
    )
