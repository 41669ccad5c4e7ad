"""What the webhook was told last about each table and about the run, so that each change is told once.

notified.json   for each table, the fields of `core.figures.notices.Known`
"""

from collections.abc import Mapping

from lakeingest.core.figures.notices import Known
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "notified.json"


def read_notified(state: File) -> dict[str, Known]:
    """What was told last. Empty if the file is missing or damaged: then what is wrong now is told once more."""
    return store.read_or(
        state / NAME, lambda doc: {table: Known.from_json(told) for table, told in doc["told"].items()}, {}
    )


def store_notified(state: File, known: Mapping[str, Known]) -> None:
    """Store what was told last, in the place of all that is stored. Raises StorageFailed if it cannot be written."""
    store.replace(state / NAME, {"told": {table: told.to_json() for table, told in known.items()}})
