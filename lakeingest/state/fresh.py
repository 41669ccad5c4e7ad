"""Up to which time readers see every change of a table, stored in the state folder (`core.freshness.Fresh`).

fresh.json   for each table, the place and the time of its note
"""

from collections.abc import Mapping

from lakeingest.core.freshness import Fresh
from lakeingest.core.position import Place
from lakeingest.core.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "fresh.json"


def read_fresh(state: File) -> dict[TableId, Fresh]:
    """The stored notes. Empty if the file is missing or damaged: then only the times in positions are known."""
    try:
        notes = store.read(state / NAME)["tables"]
        return {
            TableId.parse(table): Fresh(Place.parse(place), float(as_of)) for table, (place, as_of) in notes.items()
        }
    except (OSError, *DAMAGED, StateUnreadable):
        return {}


def store_fresh(state: File, notes: Mapping[TableId, Fresh]) -> None:
    """Replace all stored notes. Raises StorageFailed if they cannot be written."""
    tables = {str(table): [str(note.place), note.as_of] for table, note in notes.items()}
    store.replace(state / NAME, {"tables": tables})
