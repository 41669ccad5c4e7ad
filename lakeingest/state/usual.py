"""What is usual for each table, stored in the state folder (`core.proofs.usual`).

usual/<database>.<table>.json   the last counts of a table

A document that is missing or damaged means that nothing is known.
"""

from lakeingest.core.proofs.usual import Usual
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.state import store

FOLDER = "usual"


def read_usual(state: File, table: TableId) -> Usual:
    """What is stored about the table; nothing is known if its document is missing or damaged."""
    return store.read_or(store.path_of(state / FOLDER, table), Usual.from_json, Usual())


def store_usual(state: File, table: TableId, usual: Usual) -> None:
    """Replace the document of the table. Raises StorageFailed if it cannot be written."""
    store.make_folder(state / FOLDER)
    store.replace(store.path_of(state / FOLDER, table), usual.to_json())
