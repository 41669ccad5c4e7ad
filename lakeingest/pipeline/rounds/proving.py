"""Rolling proof: a run compares its tables with the source, range by range, for a share of the source's time.

`core.proofs.proof` decides which range is next. A run that follows compares in a background thread, beside the rounds;
a bounded run compares after its publishes. The run's own thread alone reads and writes what is known of the ranges.

Code that changes rows of a copy, such as a re-snapshot, does not report this here. Instead, each look compares the
facts of the copy with the facts that were stored with its proofs, so that no kill of a run hides a change.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from lakeingest.config.quality import Proofs
from lakeingest.core.copies.signals import Action, Signal
from lakeingest.core.copies.signals import State as SignalState
from lakeingest.core.proofs.proof import Budget, Facts, Failed, RangeProof, State, TableProof, next_due
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.tables.schema import INTEGERS, TableId
from lakeingest.core.waves.scope import Scope
from lakeingest.errors import LakeIngestError, VerificationFailed
from lakeingest.pipeline.events import RowsDiffer
from lakeingest.pipeline.run.open_run import OpenRun
from lakeingest.pipeline.run.stopping import clear_failure, fail
from lakeingest.pipeline.run.table_run import TableRun
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.state.proofs import read_budget, read_proof, store_budget, store_proof
from lakeingest.state.signals import SignalDocument, this_process

if TYPE_CHECKING:  # numba and numpy: a run without `quality.verify` does not need them
    from lakeingest.pipeline.proving.comparison import SourceTime
    from lakeingest.pipeline.proving.range_proof import Proved, RangeTask

RETRY_SECONDS = 300.0  # after an error of a table's comparison
MOST_KEYS = 1_000  # of one repair: for more keys, the range is read again
WAIT_SECONDS = 30.0  # after which `status` is told why comparisons wait
LOOK_SECONDS = 1.0  # at least, between two looks for a range that is due
LOOKING_SHARE = 0.005  # of a processor's time, at most, for these looks: with many tables, they are rarer


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison at work. `spent`: the source's time for it, which grows."""

    table: TableId
    job: "BackgroundJob[Proved]"
    spent: "SourceTime"


@dataclass(slots=True)
class Proving:
    """The proofs of a run's tables. It does nothing, and reads nothing, without `quality.verify`."""

    run: OpenRun
    _settings: Proofs | None = field(init=False)
    _proofs: dict[TableId, TableProof] = field(default_factory=dict, init=False)
    _budget: Budget = field(init=False)
    _retry_at: dict[TableId, float] = field(default_factory=dict, init=False)  # by the monotonic clock
    # the keys and ranges that this run has asked to read again
    _repaired: set[tuple[TableId, Key | KeyRange]] = field(default_factory=set, init=False)
    _comparison: _Comparison | None = field(default=None, init=False)
    _documents_at_begin: list[SignalDocument] = field(default_factory=list, init=False)
    _look_at: float = field(default=0.0, init=False)  # the time of the monotonic clock of the next look
    _waits: str = field(default="", init=False)  # why due comparisons wait, and since when by the monotonic clock
    _waits_since: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._settings = self.run.edges.config.quality.verify
        self._budget = Budget(1.0)
        if self._settings is None:
            return
        state = self.run.edges.state
        self._documents_at_begin = self.run.signals.folder.read()  # no round has read them yet
        self._budget = read_budget(state, self._settings.budget).resumed(time.time())
        self._read_proofs()
        self._proofs = {table: _to_check_soon(proof) for table, proof in self._proofs.items()}
        self.hold_back()

    @property
    def known(self) -> Mapping[TableId, TableProof]:
        """What is known of the ranges of each table; nothing without `quality.verify`."""
        return self._proofs

    def hold_back(self) -> None:
        """If `on_difference` says so, stop each table with a range that differs.

        A table that was stopped for this goes on once its rows are to be read again, or once no range differs.
        """
        if self._settings is None or self._settings.on_difference != "stop":
            return
        waiting = self._tables_to_read_again()
        for name, proof in self._proofs.items():
            table = self.run.tables[name]
            found = next((each for each in proof.ranges if each.state is State.DIFFERS), None)
            is_held = table.failure is not None and isinstance(table.failure.error, VerificationFailed)
            if is_held and (found is None or name in waiting):
                clear_failure(self.run.edges, table)
            elif found is not None and name not in waiting and table.failure is None:
                fail(self.run.edges, table, _failure(name, found))

    def step(self) -> None:
        """Take what the comparison beside the rounds has found, and begin the next one if one is due."""
        if self._settings is None:
            return
        if self._comparison is not None:
            if not self._comparison.job.is_done:
                return
            comparison, self._comparison = self._comparison, None
            self._take(comparison.table, comparison.job.result, comparison.spent)
        if time.monotonic() < self._look_at:
            return
        cpu = time.thread_time()
        self._read_proofs()
        self.hold_back()
        now = time.time()
        chosen = self._next(now)
        self._look_at = time.monotonic() + max(LOOK_SECONDS, (time.thread_time() - cpu) / LOOKING_SHARE)
        if time.monotonic() - self._waits_since > WAIT_SECONDS:
            self._note_wait()
        if chosen is not None:
            table, task, spent = chosen
            job = BackgroundJob(task.workers, partial(task.run, now, spent))
            self._comparison = _Comparison(table, self.run.edges.executors.beside(job, 1), spent)

    def prove(self, stopping: Callable[[], bool]) -> bool:
        """Compare ranges one after another, until none is due or the budget is spent. True if a repair was asked for.

        At least one range is compared, if one is due and earlier runs have left no debt.
        """
        if self._settings is None:
            return False
        repaired_before, began = len(self._repaired), time.time()  # what is due later is left to the next run
        while not stopping():
            self._read_proofs()
            chosen = self._next(began)
            if chosen is None:
                break
            table, task, spent = chosen
            self._take(table, partial(task.run, began, spent), spent)
        self._note_wait()
        return len(self._repaired) > repaired_before

    def proven_since(self, table: TableRun) -> float | None:
        """The time at which, or after which, each row of the copy was found equal to the source's; None if unknown."""
        proof = self._proofs.get(table.id)
        return None if proof is None or table.copy is None else proof.under(self._facts(table)).proven_since

    def end(self) -> None:
        """Give up the comparison beside the rounds. Its result is lost, but the source's time for it counts."""
        if self._comparison is not None:
            self._comparison.job.cancel()
            self._budget = self._budget.spent(self._comparison.spent.seconds)
            self._comparison = None
            with suppress(LakeIngestError):  # the run ends, perhaps because the state or the lease is lost
                store_budget(self.run.edges.writing, self._budget)

    def _read_proofs(self) -> None:
        """Adapt the proofs of requested tables with a copy to the current facts of the copies; store what changes."""
        for table in self.run.requested:
            if table.copy is None or table.definition is None:
                continue
            facts = self._facts(table)
            known = self._proofs.get(table.id) or read_proof(self.run.edges.state, table.id)
            proof = TableProof(facts) if known is None else known.under(facts)
            if known is None or proof.ranges != known.ranges:
                store_proof(self.run.edges.writing, table.id, proof)
            self._proofs[table.id] = proof

    def _facts(self, table: TableRun) -> Facts:
        """The present facts of the table's copy. If a stored proof has other facts, something may have changed rows."""
        progress, shown = table.progress, table.shown
        key = ", ".join(f"{column.name} {column.source_type.text}" for column in table.schema.key_columns)
        place = None if shown is None or shown.position is None else shown.position.place
        ended = (
            document.signal.number
            for document in self.run.signals.documents.values()
            if table.id in document.signal.tables
            and document.signal.action in {Action.RESNAPSHOT, Action.ROLLBACK}
            and document.signal.state is SignalState.DONE
        )
        last_signal = max(ended, default=0)
        return Facts(
            key,
            str(progress.covered_from),
            progress.fingerprint,
            progress.server_uuid,
            progress.epoch,
            progress.restarts,
            place,
            last_signal,
        )

    def _tables_to_read_again(self) -> set[TableId]:
        """The tables for which a re-snapshot has been asked for, and has not ended."""
        # before the first round, the run has no documents: those that were read at its begin are used
        documents = self.run.signals.documents.values() or self._documents_at_begin
        open_signals = (document.signal for document in documents if not document.ended)
        return {table for each in open_signals if each.action is Action.RESNAPSHOT for table in each.tables}

    def _next(self, now: float) -> "tuple[TableId, RangeTask, SourceTime] | None":
        """The next comparison with its table, and what counts the source's time; None if none may begin now.

        `now`: a range that is due at this time is compared (seconds since 1970).
        """
        from lakeingest.pipeline.proving.comparison import SourceTime
        from lakeingest.pipeline.proving.range_proof import RangeTask

        assert self._settings is not None  # noqa: S101 - the callers have looked
        edges = self.run.edges
        self._budget = self._budget.passed(time.time())
        if not self._budget.allows:
            return None
        left_out = {name for name in self._proofs if not self._can_compare(self.run.tables[name])}
        chosen = next_due(self._proofs, now, self._settings.every.total_seconds(), left_out)
        if chosen is None:
            return None
        name, due_range = chosen
        if self._must_wait():
            return None
        table = self.run.tables[name]
        rows = self._proofs[name].rows  # that a range should have
        is_ordered = all(column.kind in INTEGERS for column in table.schema.key_columns)
        workers = edges.executors.for_tasks(small=table.progress.rows <= rows)
        bounds = (due_range.keys.lower, self._proofs[name].end_after(due_range)) if is_ordered else (None, None)
        return name, RangeTask(edges.config, name, *bounds, rows, workers), SourceTime()

    def _must_wait(self) -> bool:
        """Whether a due comparison must wait because of `throttle`. Remembers the reason for `_note_wait`."""
        throttle = self.run.edges.throttle
        try:
            reason = throttle.reason_to_wait() or ""
        except LakeIngestError as error:  # rounds and copies report this error
            reason = f"the load of the source is not known: {error.line}"
        waits = "" if throttle.seconds_left else reason  # a wait for `mb_per_second` is usual, and short
        if waits != self._waits:
            self._waits, self._waits_since = waits, time.monotonic()
        return reason != ""

    def _note_wait(self) -> None:
        """Store why comparisons wait, unless it is stored already. `_take` removes it after the next comparison."""
        if self._waits != self._budget.waits:
            self._budget = replace(self._budget, waits=self._waits)
            store_budget(self.run.edges.writing, self._budget)

    def _can_compare(self, table: TableRun) -> bool:
        """Whether the table can be compared now. A table that stopped because its rows differ is compared, too."""
        is_held = table.failure is not None and isinstance(table.failure.error, VerificationFailed)
        is_there = table.copy is not None and table.copy.published is not None and not table.has_missing_chunks
        is_there = is_there and table.progress.began_empty is None  # else rows are missing by the user's choice
        waits = time.monotonic() < self._retry_at.get(table.id, 0.0)
        return is_there and not waits and not table.paused and (table.failure is None or is_held)

    def _take(self, name: TableId, result: "Callable[[], Proved]", spent: "SourceTime") -> None:
        """Note what a comparison has found, and what it has cost."""
        edges = self.run.edges
        try:
            proved = result()
        except LakeIngestError as error:  # such as SourceMoved: the table changes too fast, or is just published
            self._retry_at[name] = time.monotonic() + RETRY_SECONDS
            self._proofs[name] = replace(self._proofs[name], failed=Failed(time.time(), error.line))
            store_proof(edges.writing, name, self._proofs[name])
        else:
            differed_before = {each.keys for each in self._proofs[name].ranges if each.state is State.DIFFERS}
            self._proofs[name] = self._proofs[name].with_ranges(proved.ranges, proved.rate)
            store_proof(edges.writing, name, self._proofs[name])
            if found := [each for each in proved.ranges if each.state is State.DIFFERS]:
                self._react(self.run.tables[name], found, proved, is_known=found[0].keys in differed_before)
            else:
                self.hold_back()  # a table that was stopped for these ranges goes on
        self._budget = replace(self._budget.spent(spent.seconds), waits="")
        store_budget(edges.writing, self._budget)

    def _react(self, table: TableRun, found: list[RangeProof], proved: "Proved", *, is_known: bool) -> None:
        """Do what `on_difference` says about ranges that differ. `is_known`: the first of them has differed before."""
        assert self._settings is not None  # noqa: S101 - only then ranges are compared
        reaction = self._settings.on_difference
        has_keys = 0 < len(proved.keys) <= MOST_KEYS
        scopes = [Scope(keys=proved.keys)] if has_keys else [Scope(range=each.keys) for each in found]
        rows = {(table.id, row) for row in (proved.keys if has_keys else [each.keys for each in found])}
        # rows that were read again by this run, and still differ, are not read once more
        if reaction == "stop" or (reaction == "repair" and rows & self._repaired):
            if table.failure is None:
                fail(self.run.edges, table, _failure(table.id, found[0]))
            return
        if reaction == "repair" or not is_known:
            follows = "these rows are read again" if reaction == "repair" else "readers see these rows"
            self.run.edges.observe(RowsDiffer(table.id, f"{table.id}: {_named(found[0])}; {follows}"))
        if reaction == "repair":
            self._repaired |= rows
            for scope in scopes:
                self.run.signals.folder.add(partial(_resnapshot, table.id, scope), self._least_number())

    def _least_number(self) -> int:
        """The least number of a new signal, above all numbers in commits. Their signals may not be stored any more."""
        copies = [table.progress for table in self.run.tables.values() if table.copy is not None]
        numbers = [number for progress in copies for number in progress.answered]
        numbers += [number for progress in copies if progress.reread for number in progress.reread.signals]
        return max(numbers, default=0) + 1


def _resnapshot(table: TableId, scope: Scope, number: int) -> Signal:
    """A signal of this process with this number, which asks to read these rows of the table again."""
    return Signal(number, Action.RESNAPSHOT, this_process(), datetime.now(UTC), (table,), scope)


def _to_check_soon(proof: TableProof) -> TableProof:
    """The proof, in which the ranges that differ count as unchecked: the run first looks whether they still differ."""
    ranges = (replace(each, checked_at=None) if each.state is State.DIFFERS else each for each in proof.ranges)
    return replace(proof, ranges=tuple(ranges))


def _named(found: RangeProof) -> str:
    """The range and its first keys that differ, in words."""
    return f"source ≠ target in the {found.keys_text}: {found.why}"


def _failure(table: TableId, found: RangeProof) -> VerificationFailed:
    """The error that stops a table because the range `found` differs."""
    return VerificationFailed(f"{table}: {_named(found)}; `lakeingest verify {table} --repair` reads these rows again")
