"""What `status` says about proofs: when each range of keys was last proven equal, and how long a round takes.

It also says why the last comparison of a table has failed, and for what the next comparisons wait.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeingest.config import Config
from lakeingest.core.figures.clocks import spoken
from lakeingest.core.figures.shown import iso_time
from lakeingest.core.proofs.proof import Budget, RangeProof, Round, State
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import state_of
from lakeingest.state.proofs import read_budget, read_proofs


@dataclass(frozen=True, slots=True)
class ProofStatus:
    """The states of a table's ranges of keys.

    `proven_at`: every row was last found equal to the source's at this time or later (ISO 8601); None if some rows
    never were, or may have changed since. `ranges`: the documents of `RangeProof`, with times as texts. `round`: how
    long it takes to prove all tables once. `failed_at`: when the last comparison of the table has failed, and `failed`:
    why; None and '' if it has not. `waits`: for what the next comparison of any table waits; '' if for nothing.
    """

    proven_at: str | None
    ranges: tuple[Mapping[str, Any], ...]
    round: Round
    failed_at: str | None = None
    failed: str = ""
    waits: str = ""

    def notes(self, table: TableId) -> list[str]:
        """Notes about the ranges that differ and the last comparison, then the notes that are equal for all tables."""
        differing = [each for each in self.ranges if each["state"] == State.DIFFERS.value]
        notes = [f"{table}: source ≠ target in the {each['keys']}: {each['why']}" for each in differing]
        if self.failed_at is not None:
            last = f"{table}: its last comparison with the source, at {self.failed_at}, failed"
            notes.append(f"{last}, and is tried again: {self.failed}")
        waits = [f"comparisons with the source wait: {self.waits}"] if self.waits else []
        return [*notes, *waits, str(self.round)]


def proofs_of(config: Config, tables: Sequence[TableId]) -> dict[TableId, ProofStatus]:
    """What the state folder says about the proofs of these tables; empty if runs do not compare ranges."""
    settings = config.quality.verify
    if settings is None:
        return {}
    proofs = read_proofs(state_of(config), tables)
    every, now = settings.every.total_seconds(), time.time()
    round_of_all = Round.of(tuple(proofs.values()), settings.budget, every)
    budget = read_budget(state_of(config), settings.budget)
    is_due = any(proof.first_due(now, every) is not None for proof in proofs.values())
    waits = _waits(budget, now) if is_due else ""
    return {
        table: ProofStatus(
            iso_time(proof.proven_since),
            tuple(map(_document, proof.ranges)),
            round_of_all,
            failed_at=None if proof.failed is None else iso_time(proof.failed.at),
            failed="" if proof.failed is None else proof.failed.why,
            waits=waits,
        )
        for table, proof in proofs.items()
    }


def _waits(budget: Budget, now: float) -> str:
    """For what a comparison that is due waits; '' if it waits for nothing."""
    left = budget.resumed(now).seconds_left
    if left:
        return f"quality.verify.budget allows the next one in {spoken(left)}"
    return f"{budget.waits}, as of {iso_time(budget.at)}" if budget.waits else ""


def _document(proof: RangeProof) -> Mapping[str, Any]:
    """The document of a range, with times as texts."""
    document = proof.to_json()
    return document | {name: iso_time(document[name]) for name in ("proven_at", "checked_at")}
