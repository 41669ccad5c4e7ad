"""What is usual for each table, stored in the state folder (`core.usual`).

usual/<database>.<table>.json   the last counts of a table

A document that is missing or damaged means that nothing is known.
"""

from lakeingest.core.file_names import file_name
from lakeingest.core.schema import TableId
from lakeingest.core.usual import Usual
from lakeingest.errors import DAMAGED, StateUnreadable
from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "usual"


def read_usual(state: File, table: TableId) -> Usual:
    """What is stored about the table."""
    try:
        return Usual.from_json(store.read(_path(state, table)))
    except (OSError, *DAMAGED, StateUnreadable):
        return Usual()


def store_usual(state: File, table: TableId, usual: Usual) -> None:
    """Replace the document of the table. Raises StorageFailed if it cannot be written."""
    path = _path(state, table)
    store.make_folder(path.parent)
    store.replace(path, usual.to_json())


def _path(state: File, table: TableId) -> File:
    return state / FOLDER / f"{file_name(str(table))}.json"
