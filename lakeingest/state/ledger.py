"""What is still to be written into the ledger, stored in the state folder (`core.proofs.ledger`).

ledger/quality/<time>-<digest>.json   the rows of a gate that the table `quality` may lack
ledger/proofs.json                    the digest of the rows that the table `proofs` was last given
ledger/trimmed.json                   the day on which old rows of `quality` were last removed
"""

import json
from collections.abc import Sequence

from lakeingest.core.proofs.ledger import Row, digest
from lakeingest.errors import DAMAGED
from lakeingest.files import file as files
from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "ledger"
MOST_GATES = 1_000  # the most gates whose rows are kept while the table cannot be written


def note_results(state: File, moment: str, rows: Sequence[Row]) -> None:
    """Store the rows of a gate, durably. `moment`: its time, as a text that sorts as the time does.

    Raises StorageFailed if they cannot be written.
    """
    store.make_folder(_results(state))
    store.replace(_results(state) / f"{moment}-{digest(rows)[:16]}.json", {"rows": list(rows)})


def noted_results(state: File) -> tuple[list[File], list[Row]]:
    """The files that `note_results` has written and nobody has removed, the oldest first, and their rows.

    A damaged file gives no rows. Raises StorageFailed if the files cannot be read.
    """
    folder, rows = _results(state), list[Row]()
    with store.storage_errors(folder, "read"):
        paths = folder.listed("*.json")
        contents = folder.read_together(paths)
    for text in contents:
        try:
            rows += json.loads(text)["rows"]
        except DAMAGED:
            continue
    return paths, rows


def remove_results(state: File, paths: Sequence[File]) -> None:
    """Remove these files, because the table has their rows. Raises StorageFailed if they cannot be removed."""
    with store.storage_errors(_results(state)):
        files.delete_all(paths)


def given_proofs(state: File) -> str:
    """The digest of the rows that the table of proofs was last given; '' if it is not known."""
    return store.read_or(_proofs(state), lambda doc: str(doc["digest"]), "")


def note_proofs(state: File, given: str) -> None:
    """Store the digest of the rows that the table of proofs has now. Raises StorageFailed if it cannot be written."""
    store.make_folder(state / FOLDER)
    store.replace(_proofs(state), {"digest": given})


def trimmed_on(state: File) -> str:
    """The day on which old results were last removed from the table; '' if it is not known."""
    return store.read_or(_trimmed(state), lambda doc: str(doc["day"]), "")


def note_trimmed(state: File, day: str) -> None:
    """Store the day on which old results were removed. Raises StorageFailed if it cannot be written."""
    store.make_folder(state / FOLDER)
    store.replace(_trimmed(state), {"day": day})


def _results(state: File) -> File:
    return state / FOLDER / "quality"


def _trimmed(state: File) -> File:
    return state / FOLDER / "trimmed.json"


def _proofs(state: File) -> File:
    return state / FOLDER / "proofs.json"
