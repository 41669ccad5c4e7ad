"""Up to which time readers see every change of a table, stored in the state folder (`core.figures.freshness.Fresh`).

fresh.json   for each table, the place and the time of its note; the positions that notes name, each once
"""

from collections.abc import Mapping

from lakeingest.core.binlog.position import Place, Position
from lakeingest.core.figures.freshness import Fresh
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

NAME = "fresh.json"


def read_fresh(state: File) -> dict[TableId, Fresh]:
    """The stored notes. Empty if the file is missing or damaged: then only the commit times of copies are known."""
    try:
        doc = store.read(state / NAME)
        positions = [Position.from_json(position) for position in doc["positions"]]
        complete = {table: positions[number] for table, number in doc["complete"].items()}
        return {
            TableId.parse(table): Fresh(Place.parse(place), float(as_of), complete.get(table))
            for table, (place, as_of) in doc["tables"].items()
        }
    except (OSError, *DAMAGED, StateUnreadable):
        return {}


def store_fresh(state: File, notes: Mapping[TableId, Fresh]) -> None:
    """Store notes in the place of all that is stored. Raises StorageFailed if they cannot be written."""
    tables = {str(table): [str(note.place), note.as_of] for table, note in notes.items()}
    # each position is stored once: the end of the spool is the position of many notes, and has a long text
    noted = {str(table): note.complete_to for table, note in notes.items() if note.complete_to is not None}
    numbers = {position: number for number, position in enumerate(dict.fromkeys(noted.values()))}
    doc = {
        "tables": tables,
        "positions": [position.to_json() for position in numbers],
        "complete": {table: numbers[position] for table, position in noted.items()},
    }
    store.replace(state / NAME, doc)
