"""The states of ranges that were compared with the source, stored in the state folder (`core.proofs.proof`).

proofs/<database>.<table>.json   the document of a table's `TableProof`
proofs.json                      how much of the source's time comparisons still owe, and what else they wait for

A document that is missing or damaged means that nothing was ever proven.
"""

from collections.abc import Iterable

from lakeingest.core.proofs.proof import Budget, TableProof
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.files.stored import AT_ONCE
from lakeingest.side_by_side import side_by_side
from lakeingest.state import store

FOLDER, BUDGET = "proofs", "proofs.json"


def read_proof(state: File, table: TableId) -> TableProof | None:
    """The states of the table's ranges; None if none is stored, or if the document is damaged."""
    return store.read_or(store.path_of(state / FOLDER, table), TableProof.from_json, None)


def read_proofs(state: File, tables: Iterable[TableId]) -> dict[TableId, TableProof]:
    """The states of the ranges of those tables whose document can be read. One listing says which tables have one.

    Raises StorageFailed if the folder cannot be listed.
    """
    with store.storage_errors(state / FOLDER, "read"):
        stored = {file.name for file in (state / FOLDER).listed("*.json")}
    recorded = [table for table in tables if store.path_of(state / FOLDER, table).name in stored]
    read = side_by_side(lambda table: read_proof(state, table), recorded, AT_ONCE)
    return {table: proof for table, proof in zip(recorded, read, strict=True) if proof is not None}


def store_proof(state: File, table: TableId, proof: TableProof) -> None:
    """Replace the document of the table. Raises StorageFailed if it cannot be written."""
    store.replace_of_table(store.path_of(state / FOLDER, table), proof.to_json())


def read_budget(state: File, share: float) -> Budget:
    """What comparisons still owe, with the configured `share`; nothing if the document is missing or damaged."""
    return store.read_or(
        state / BUDGET,
        lambda doc: Budget(share, float(doc["owed"]), float(doc["at"]), str(doc.get("waits", ""))),
        Budget(share),
    )


def store_budget(state: File, budget: Budget) -> None:
    """Store what comparisons owe, and what they wait for. Raises StorageFailed if that cannot be written."""
    store.replace(state / BUDGET, {"owed": budget.owed, "at": budget.at, "waits": budget.waits})
