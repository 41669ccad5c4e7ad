"""The Arrow forms of filter and collapse, held equal to the core's."""

import random
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.binlog.position import GtidSet, Place
from lakeingest.core.binlog.transactions import TransactionLog
from lakeingest.core.tables import change
from lakeingest.core.tables.change import ChangeRow, RowKind
from lakeingest.core.tables.keys import Key, KeyRange
from lakeingest.core.waves.collapse import collapse
from lakeingest.core.waves.splits import Split, Splits
from lakeingest.core.waves.wave import MergePlan, plan_merge
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.spool import collapse as collapse_of_files
from lakeingest.spool.collapse import Slice, bounds_of, collapsed, cut, take

ROWS_OF_A_GROUP = 100


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in several parts, as those of large transactions are."""
    monkeypatch.setattr(collapse_of_files, "_PART_ROWS", ROWS_OF_A_GROUP * 3 // 2)


def spooled(folder: Local, chance: random.Random, rows: Sequence[ChangeRow], kind: pa.DataType) -> list[File]:
    """Change rows in their order, in a few files as the spool has them; the column `v` numbers the rows."""
    names = [f"k{i}" for i in range(len(rows[0].key))]
    cuts = sorted(chance.sample(range(1, len(rows)), 2))
    files: list[File] = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[start:end]
        table = pa.table(
            {
                change.KIND: pa.array([row.kind for row in part], pa.int8()),
                change.EPOCH: pa.array([row.place.epoch for row in part], pa.int32()),
                change.FILE: pa.array([row.place.file for row in part], pa.int64()),
                change.POS: pa.array([row.place.pos for row in part], pa.int64()),
                change.ORDINAL: pa.array([row.ordinal for row in part], pa.int64()),
                **{name: pa.array([row.key[i] for row in part], kind) for i, name in enumerate(names)},
                "v": pa.array(range(start, end)),
            }
        )
        path = folder / f"{start}.parquet"
        files.append(path)
        pq.write_table(table, path, row_group_size=ROWS_OF_A_GROUP)
    return files


def place(chance: random.Random) -> Place:
    """One of a few places in three files."""
    return Place(1, chance.randint(9, 11), chance.randint(4, 40))


def key(chance: random.Random, arity: int) -> Key:
    """A key out of few, so that keys meet often, also exactly at bounds."""
    return tuple(chance.randint(-9, 9) for _ in range(arity))


def change_rows(chance: random.Random, arity: int, count: int) -> list[ChangeRow]:
    """Change rows of a few keys, each at a place and ordinal of its own, in their order."""
    orders = sorted({(place(chance), chance.randint(0, 30)) for _ in range(count)})
    return [ChangeRow(chance.choice(list(RowKind)), key(chance, arity), at, ordinal) for at, ordinal in orders]


def plan_of(chance: random.Random, arity: int) -> MergePlan:
    """A merge over splits that were read or merged at different places; the last may be unbounded."""
    uppers: list[Key | None] = [*sorted({key(chance, arity) for _ in range(chance.randint(1, 12))})]
    if chance.random() < 0.5:
        uppers.append(None)
    splits = []
    lower: Key | None = None
    for upper in uppers:
        mark, keys = place(chance), KeyRange(lower, upper)
        splits.append(Split(keys, mark, mark) if chance.random() < 0.5 else Split(keys, merged_at=mark))
        lower = upper
    log = TransactionLog((), GtidSet())
    return plan_merge(Splits(tuple(splits)), Place(1, 11, chance.randint(40, 60)), log, Place(1, 1, 4))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("arity", [1, 2])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.long("each random history in one form in turn", turn=("parts", "arity"))
def test_filter_and_collapse_are_those_of_the_core(tmp_path: Local, seed: int, arity: int, parts: int) -> None:
    """Whatever the splits and the changes, the same rows are last, and whole ones are found by their number."""
    chance = random.Random(seed)
    rows, plan, names = change_rows(chance, arity, 3000), plan_of(chance, arity), [f"k{i}" for i in range(arity)]
    files = spooled(tmp_path, chance, rows, chance.choice([pa.int32(), pa.int64(), pa.decimal128(20)]))
    wanted = [row for row in rows if plan.should_apply(row.place, row.key)]
    assert 0 < len(wanted) < len(rows)
    number = {row: n for n, row in enumerate(rows)}
    found: dict[Key, tuple[int, bool]] = {}
    applied = 0
    for part in cut(files, "k0", parts):
        some = collapsed(files, names, plan.marks, plan.stop, part)
        applied += some.applied
        for index, file in enumerate(files):
            mine = some.files == index
            if not mine.any():
                continue
            whole = take(file, some.rows[mine], plan.stop, deleted=True)
            assert whole.column_names == [*names, "v", change.DELETED]
            columns = [whole[name].to_pylist() for name in whole.column_names]
            for *values, v, deleted in zip(*columns, strict=True):
                found[tuple(int(value) for value in values)] = v, deleted
            assert some.changes.filter(pa.array(mine)).select(names).equals(whole.select(names))
    assert applied == len(wanted)
    assert found == {last: (number[row], row.kind.is_delete) for last, row in collapse(wanted).items()}


def test_keys_beyond_the_signed_range_are_distinguished(tmp_path: Local) -> None:
    """Ranges of a BIGINT UNSIGNED key are exact up to 2^64 - 1, and so are its bounds."""
    keys = [0, 2**63 - 1, 2**63, 2**64 - 1]
    rows = [ChangeRow(RowKind.INSERT, (one,), Place(1, 9, 4), ordinal) for ordinal, one in enumerate(keys)]
    files = spooled(tmp_path, random.Random(1), rows, pa.decimal128(20))
    marks = ((KeyRange(), Place(1, 1, 4)),)
    middle = pa.scalar(Decimal(2**63), pa.decimal128(20))
    halves = Slice(None, middle), Slice(middle, None)
    found = [collapsed(files, ["k0"], marks, Place(1, 9, 4), half).changes["k0"].to_pylist() for half in halves]
    assert found == [[Decimal(one) for one in keys[:2]], [Decimal(one) for one in keys[2:]]]
    assert bounds_of(files, "k0") == (0, 2**64 - 1)


def test_a_batch_is_cut_into_ranges_of_about_as_many_rows(tmp_path: Local) -> None:
    """They tile the keys; one key that most changes are of is a range of its own."""
    rows = [ChangeRow(RowKind.INSERT, (n % 1000,), Place(1, 9, 4), n) for n in range(10_000)]
    files = spooled(tmp_path, random.Random(2), rows, pa.int64())
    ranges = cut(files, "k0", 4)
    assert [one.lower for one in ranges[1:]] == [one.upper for one in ranges[:-1]]
    assert ranges[0].lower is None
    assert ranges[-1].upper is None
    marks = ((KeyRange(), Place(1, 1, 4)),)
    counts = [collapsed(files, ["k0"], marks, Place(1, 9, 4), one).read for one in ranges]
    assert sum(counts) == len(rows)
    assert np.std(counts) < 0.2 * np.mean(counts)
    hot = [ChangeRow(RowKind.INSERT, (7 if n % 10 else n,), Place(1, 9, 4), n) for n in range(1_000)]
    assert 1 <= len(cut(spooled(tmp_path, random.Random(3), hot, pa.int64()), "k0", 4)) <= 4


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.long("each random history in one form in turn", turn="parts")
def test_of_the_keys_of_a_patch_the_changes_after_its_place_are_needed(tmp_path: Local, seed: int, parts: int) -> None:
    """Whatever the marks of their splits; the row of the patch is the last one where no change follows it."""
    chance = random.Random(seed)
    rows, plan = change_rows(chance, 2, 2000), plan_of(chance, 2)
    patches = []
    taken: set[Key] = set()
    for number in range(2):
        at, keys = place(chance), {key(chance, 2) for _ in range(30)} - taken
        taken |= keys
        again = [ChangeRow(chance.choice([RowKind.INSERT, RowKind.DELETE]), one, at, 0) for one in sorted(keys)]
        folder = tmp_path / str(number)
        folder.mkdir()
        patches.append((at, again, spooled(folder, chance, again, pa.int64())))
    files = [file for _, _, found in patches for file in found]
    places = [at for at, _, found in patches for _ in found]
    all_files = [*files, *spooled(tmp_path, chance, rows, pa.int64())]
    since = {row.key: at for at, again, _ in patches for row in again}
    wanted = [
        *(row for _, again, _ in patches for row in again),
        *(
            row
            for row in rows
            if row.place <= plan.stop
            and (since[row.key] < row.place if row.key in since else plan.should_apply(row.place, row.key))
        ),
    ]
    expected: dict[Key, bool] = {}
    for row in wanted:
        expected[row.key] = row.kind.is_delete
    found: dict[Key, bool] = {}
    for part in cut(all_files, "k0", parts):
        some = collapsed(all_files, ["k0", "k1"], plan.marks, plan.stop, part, places)
        for first, second, deleted in zip(
            *(some.changes[name].to_pylist() for name in some.changes.column_names), strict=True
        ):
            found[(first, second)] = deleted
    assert found == expected
