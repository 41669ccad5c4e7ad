"""What the second decoder has compared, and the differences that it has found, stored in the state folder.

witness.json                          the document of `core.witness.Met`
disagreements/<database>.<table>.json the last difference in the table, to be attached to a report
"""

from lakeingest.core.file_names import file_name
from lakeingest.core.witness import Difference, Met
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME, DIFFERENCES = "witness.json", "disagreements"


def read_met(state: File, version: str) -> Met:
    """What this version of lakeingest has compared; nothing if the document is missing or damaged."""
    try:
        return Met.from_json(store.read(state / NAME)).under(version)
    except (OSError, *DAMAGED, StateUnreadable):
        return Met(version)


def store_met(state: File, met: Met) -> None:
    """Replace the document. Raises StorageFailed if it cannot be written."""
    store.replace(state / NAME, met.to_json())


def store_difference(state: File, difference: Difference, version: str, server: str, *, masked: bool) -> None:
    """Store a difference for a report; with `masked`, without values. Raises StorageFailed if it cannot be written."""
    path = state / DIFFERENCES / f"{file_name(str(difference.table))}.json"
    store.make_folder(path.parent)
    with store.of_one_table(path):
        store.replace(path, {"lakeingest": version, "server": server, **difference.to_json(masked=masked)})
