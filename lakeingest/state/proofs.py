"""The states of ranges that were compared with the source, stored in the state folder (`core.proof`).

proofs/<database>.<table>.json   the document of a table's `TableProof`
proofs.json                      how much of the source's time comparisons still owe, and what else they wait for

A document that is missing or damaged means that nothing was ever proven.
"""

from collections.abc import Iterable

from lakeingest.core.file_names import file_name
from lakeingest.core.proof import Budget, TableProof
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.files.stored import AT_ONCE
from lakeingest.side_by_side import side_by_side
from lakeingest.state import store

FOLDER, BUDGET = "proofs", "proofs.json"


def read_proof(state: File, table: TableId) -> TableProof | None:
    """The states of the table's ranges; None if none is stored."""
    try:
        return TableProof.from_json(store.read(_path(state, table)))
    except (OSError, *DAMAGED, StateUnreadable):
        return None


def read_proofs(state: File, tables: Iterable[TableId]) -> dict[TableId, TableProof]:
    """The states of the ranges of those of the tables that have a document. One listing says which ones have."""
    stored = {file.name for file in (state / FOLDER).listed("*.json")}
    recorded = [table for table in tables if _path(state, table).name in stored]
    read = side_by_side(lambda table: read_proof(state, table), recorded, AT_ONCE)
    return {table: proof for table, proof in zip(recorded, read, strict=True) if proof is not None}


def store_proof(state: File, table: TableId, proof: TableProof) -> None:
    """Replace the document of the table. Raises StorageFailed if it cannot be written."""
    path = _path(state, table)
    store.make_folder(path.parent)
    with store.of_one_table(path):
        store.replace(path, proof.to_json())


def read_budget(state: File, share: float) -> Budget:
    """What comparisons owe, with this share for them; nothing if the document is missing or damaged."""
    try:
        doc = store.read(state / BUDGET)
        return Budget(share, float(doc["owed"]), float(doc["at"]), str(doc.get("waits", "")))
    except (OSError, *DAMAGED):
        return Budget(share)


def store_budget(state: File, budget: Budget) -> None:
    """Replace the document. Raises StorageFailed if it cannot be written."""
    store.replace(state / BUDGET, {"owed": budget.owed, "at": budget.at, "waits": budget.waits})


def _path(state: File, table: TableId) -> File:
    return state / FOLDER / f"{file_name(str(table))}.json"
