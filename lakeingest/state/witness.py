"""What the second decoder has compared, and the differences that it has found, stored in the state folder.

witness.json                          the document of `core.proofs.witness.Met`
disagreements/<database>.<table>.json the last difference in the table, to be attached to a report
"""

from lakeingest.core.proofs.witness import Difference, Met
from lakeingest.files.file import File
from lakeingest.state import store

NAME, DIFFERENCES = "witness.json", "disagreements"


def read_met(state: File, version: str) -> Met:
    """What this version of lakeingest has compared; nothing if the document is missing or damaged."""
    return store.read_or(state / NAME, lambda doc: Met.from_json(doc).under(version), Met(version))


def store_met(state: File, met: Met) -> None:
    """Replace the document. Raises StorageFailed if it cannot be written."""
    store.replace(state / NAME, met.to_json())


def store_difference(state: File, difference: Difference, version: str, server: str, *, masked: bool) -> None:
    """Store a difference for a report, with the versions of lakeingest (`version`) and of the server (`server`).

    With `masked`, values are left out. Raises StorageFailed if the document cannot be written.
    """
    path = store.path_of(state / DIFFERENCES, difference.table)
    store.replace_of_table(path, {"lakeingest": version, "server": server, **difference.to_json(masked=masked)})
