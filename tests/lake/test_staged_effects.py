"""What a merge does to the rows of a format without branches, counted by keys alone."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.tables.change import DELETED
from lakeingest.errors import StateUnreadable
from lakeingest.files.local import Local
from lakeingest.lake.staged.effects import effects_of
from lakeingest.lake.target import Effects

KEY = pa.decimal128(20, 0)  # of a BIGINT UNSIGNED


def written(folder: Path, name: str, ids: Sequence[int], deleted: Sequence[int] | None = None) -> Local:
    """A file with rows of these keys, or with changes, of which some are deletes."""
    columns = {"id": pa.array(map(Decimal, ids), KEY)}
    if deleted is not None:
        columns[DELETED] = pa.array([id_ in deleted for id_ in ids], pa.bool_())
    pq.write_table(pa.table(columns), folder / name)
    return Local(folder / name)


def test_a_merge_inserts_updates_and_deletes(tmp_path: Path) -> None:
    """Over two files of rows: 5 is new, 2 and 4 get other values, 1 is deleted, and 9 was never there."""
    rows = [written(tmp_path, "a", [1, 2]), written(tmp_path, "b", [3, 4])]
    changes = [written(tmp_path, "c", [1, 2, 4], [1]), written(tmp_path, "d", [5, 9], [9])]
    assert effects_of(changes, ["id"], rows, [], keeps_deleted=False) == Effects(1, 2, 1)


def test_an_earlier_merge_decides_which_keys_are_there(tmp_path: Path) -> None:
    """1 was deleted and comes back, 3 was inserted and goes."""
    rows = [written(tmp_path, "a", [1, 2])]
    earlier = [[written(tmp_path, "b", [1, 3], [1])]]
    changes = [written(tmp_path, "c", [1, 3], [3])]
    assert effects_of(changes, ["id"], rows, earlier, keeps_deleted=False) == Effects(1, 0, 1)


@pytest.mark.parametrize("places", [[[1, 2, 1]], [[1, 2], [3, 1]]])
def test_a_changed_key_that_two_rows_have_is_refused(tmp_path: Path, places: list[list[int]]) -> None:
    """In one file, and in two."""
    rows = [written(tmp_path, f"{number}", ids) for number, ids in enumerate(places)]
    changes = [written(tmp_path, "c", [1], [])]
    with pytest.raises(StateUnreadable, match="there twice"):
        effects_of(changes, ["id"], rows, [], keeps_deleted=False)
