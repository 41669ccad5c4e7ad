"""The rows that a changelog leaves."""

import pyarrow as pa

from lakeingest.core.tables.change import COMMITTED_AT, GTID, OP, POSITION
from lakeingest.notebook import replayed


def batch(*rows: tuple[str, int, str | None]) -> pa.RecordBatch:
    """Changes: the kind, the key and a value."""
    origin = {POSITION: "p", COMMITTED_AT: None, GTID: None}
    return pa.RecordBatch.from_pylist([{OP: kind, **origin, "id": key, "v": value} for kind, key, value in rows])


def test_the_last_change_of_each_key_counts() -> None:
    """Updates replace, also by another key; deletes take away; the rest stays."""
    first = batch(("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c"))
    later = batch(("-U", 1, "a"), ("+U", 9, "a"), ("-D", 2, None), ("-U", 3, "c"), ("+U", 3, None))
    assert replayed([first, later], ["id"]).to_pylist() == [{"id": 3, "v": None}, {"id": 9, "v": "a"}]


def test_truncate_takes_all_rows() -> None:
    """As in the source."""
    left = replayed([batch(("+I", 1, "a")), batch(("TRUNCATE", 0, None)), batch(("+I", 2, "b"))], ["id"])
    assert left.to_pylist() == [{"id": 2, "v": "b"}]


def test_a_new_column_has_its_values() -> None:
    """Rows without it have none, and DDL itself changes no row."""
    old = pa.RecordBatch.from_pylist([{OP: "+I", "id": 1}, {OP: "+I", "id": 2}])
    new = pa.RecordBatch.from_pylist([{OP: "DDL", "id": None, "v": None}, {OP: "+I", "id": 3, "v": "c"}])
    assert replayed([old, new], ["id"]).to_pylist() == [
        {"id": 1, "v": None},
        {"id": 2, "v": None},
        {"id": 3, "v": "c"},
    ]


def test_nothing_leaves_nothing() -> None:
    """Neither without a batch, nor when all rows are deleted."""
    assert replayed([], ["id"]).num_rows == 0
    assert replayed([batch(("+I", 1, "a"), ("-D", 1, "a"))], ["id"]).num_rows == 0
