"""What the state says of quiet tables."""

from lakeingest.core.binlog.position import FilePosition, GtidSet, Position
from lakeingest.core.copies.quiet import Quiet
from lakeingest.core.tables.schema import TableId
from lakeingest.files.file import File
from lakeingest.state.quiet import read_quiet, store_quiet

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = Position(SERVER, 0, FilePosition("binlog.000002", 400), GtidSet.parse(f"{SERVER}:1-9"))
LATER = Position(SERVER, 0, FilePosition("binlog.000003", 4), None)
KNOWN = {
    TableId("shop", "a.b"): Quiet(2**62, HERE, 1_700_000_000),
    TableId("shop", "orders"): Quiet(7, HERE, 1_700_000_001),
    TableId("shop", "users"): Quiet(8, LATER, 1_700_000_002),
}


def test_what_is_stored_is_read_back(any_folder: File) -> None:
    """Of all tables, and replaced as a whole."""
    assert read_quiet(any_folder) == {}
    store_quiet(any_folder, KNOWN)
    assert read_quiet(any_folder) == KNOWN
    store_quiet(any_folder, {})
    assert read_quiet(any_folder) == {}


def test_a_damaged_file_says_nothing(any_folder: File) -> None:
    """The positions of the commits count then."""
    groups: list[object] = [{"tables": {}}, {"position": {"at": 3}, "tables": {"t": 1}}, {"position": {}}, 3]
    for damaged in ({}, *({"positions": [group]} for group in groups)):
        (any_folder / "quiet.json").put_document(damaged)
        assert read_quiet(any_folder) == {}
