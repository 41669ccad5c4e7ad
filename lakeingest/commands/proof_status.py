"""What `status` says about proofs: when each range of keys was last proven equal, and how long a round takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeingest.config import Config
from lakeingest.core.proof import RangeProof, Round, State
from lakeingest.core.schema import TableId
from lakeingest.core.shown import iso_time
from lakeingest.files.file import state_of
from lakeingest.state.proofs import read_proof


@dataclass(frozen=True, slots=True)
class ProofStatus:
    """The states of a table's ranges of keys.

    `proven_at`: every row was last found equal to the source's at this time or later (ISO 8601); None if a part never
    was, or may have changed since. `ranges`: the documents of `RangeProof`, with times as texts. `round`: how long it
    takes to prove all tables once.
    """

    proven_at: str | None
    ranges: tuple[Mapping[str, Any], ...]
    round: Round

    def notes(self, table: TableId) -> list[str]:
        """A note about each range that differs, and one about the round, which is the same for all tables."""
        differing = [each for each in self.ranges if each["state"] == State.DIFFERS.value]
        notes = [f"{table}: source ≠ target in the {each['keys']}: {each['why']}" for each in differing]
        return [*notes, str(self.round)]


def proofs_of(config: Config, tables: Sequence[TableId]) -> dict[TableId, ProofStatus]:
    """What the state folder has about these tables; nothing if runs do not compare ranges."""
    settings = config.quality.verify
    if settings is None:
        return {}
    read = ((table, read_proof(state_of(config), table)) for table in tables)
    proofs = {table: proof for table, proof in read if proof is not None}
    round_of_all = Round.of(tuple(proofs.values()), settings.budget, settings.every.total_seconds())
    return {
        table: ProofStatus(iso_time(proof.proven_since), tuple(map(_document, proof.ranges)), round_of_all)
        for table, proof in proofs.items()
    }


def _document(proof: RangeProof) -> Mapping[str, Any]:
    document = proof.to_json()
    return document | {name: iso_time(document[name]) for name in ("proven_at", "checked_at")}
