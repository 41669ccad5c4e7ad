"""The last images of changed keys, held equal to the core's collapse."""

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.binlog.reading import ReadTo
from lakeingest.core.tables import change
from lakeingest.core.tables.change import DELETED, REREAD, ChangeRow, RowKind
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.core.waves.collapse import collapse
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.spool.images import LastImages, last_images
from lakeingest.spool.reread_files import RereadRows
from tests.spool.test_collapse import change_rows, key, spooled

ALL = 1 << 40


def schema_of(arity: int) -> TableSchema:
    """The definition of the table whose changes `spooled` writes."""
    names = [f"k{number}" for number in range(arity)]
    columns = [Column(name, Kind.INT32, source_type("int"), nullable=False) for name in (*names, "v")]
    return TableSchema(TableId("shop", "orders"), tuple(columns), tuple(names))


def reread(folder: Local, rows: list[ChangeRow], at: Place, first_value: int) -> RereadRows:
    """A file with rows that were read again, as of one place; the column `v` numbers the rows."""
    count = len(rows)
    values = {
        change.KIND: pa.array([row.kind for row in rows], pa.int8()),
        change.EPOCH: pa.array([at.epoch] * count, pa.int32()),
        change.FILE: pa.array([at.file] * count, pa.int64()),
        change.POS: pa.array([at.pos] * count, pa.int64()),
        change.ORDINAL: pa.array(range(count), pa.int64()),
        **{f"k{part}": pa.array([row.key[part] for row in rows], pa.int32()) for part in range(len(rows[0].key))},
        "v": pa.array(range(first_value, first_value + count)),
    }
    path = folder / f"reread-{at}.parquet"
    pq.write_table(pa.table(values), path)
    return RereadRows(path, ReadTo(at, reread=0), ReadTo(at, reread=count - 1))


def as_dict(images: LastImages | None, arity: int) -> dict[tuple[int, ...], tuple[int, bool]]:
    """For each key, the value of `v` in its last image, and whether that deletes the row."""
    if images is None:
        return {}
    rows = images.images(np.random.default_rng(3).permutation(len(images.at)), [*schema_of(arity).names])
    listed = [rows[name].to_pylist() for name in (*schema_of(arity).names, DELETED)]
    by_key = {tuple(row[:arity]): (row[arity], row[arity + 1]) for row in zip(*listed, strict=True)}
    gone = dict(
        zip(
            zip(*(images.keys[name].to_pylist() for name in schema_of(arity).key), strict=True),
            images.keys[DELETED].to_pylist(),
            strict=True,
        )
    )
    assert gone == {key: is_gone for key, (_, is_gone) in by_key.items()}
    return by_key


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("arity", [1, 2])
def test_the_last_change_of_each_key_counts(tmp_path: Local, seed: int, arity: int) -> None:
    """Also where rows were read again; each of these comes after all changes up to its place."""
    chance = random.Random(seed)
    rows = change_rows(chance, arity, 3000)
    files = spooled(tmp_path, chance, rows, pa.int32())
    after, stop = Place(1, 9, chance.randint(4, 40)), Place(1, 11, chance.randint(4, 40))
    values = {row: number for number, row in enumerate(rows)}
    rereads = []
    wanted = [row for row in rows if after < row.place <= stop]
    for file in (9, 10, 11) if seed % 2 else ():
        at = Place(1, file, chance.randint(4, 40))
        kinds = RowKind.INSERT, RowKind.DELETE
        keys = {key(chance, arity) for _ in range(5)}
        again = [ChangeRow(chance.choice(kinds), each, at, REREAD) for each in keys]
        rereads.append(reread(tmp_path, again, at, first_value=len(values)))
        values |= {row: len(values) + number for number, row in enumerate(again)}
        if after <= at <= stop:
            wanted += again
    expected = {key: (values[row], row.kind.is_delete) for key, row in collapse(wanted).items()}
    assert as_dict(last_images(files, rereads, schema_of(arity), after, stop, ALL), arity) == expected


def test_of_too_many_changes_the_newest_count(tmp_path: Local) -> None:
    """Whole files of them, and only what was read again after their first change; an image is never an older one."""
    chance = random.Random(5)
    rows = change_rows(chance, 1, 3000)
    files = spooled(tmp_path, chance, rows, pa.int32())
    after, stop = Place(1, 1, 4), Place(1, 12, 4)
    early = reread(tmp_path, [ChangeRow(RowKind.INSERT, (50,), Place(1, 9, 5), REREAD)], Place(1, 9, 5), 9_000)
    everything = as_dict(last_images(files, [early], schema_of(1), after, stop, ALL), 1)
    assert (50,) in everything
    newest = as_dict(last_images(files, [early], schema_of(1), after, stop, 1), 1)
    assert newest.items() < everything.items()
    first = int(files[-1].stem)
    assert newest == {
        key: (first + number, row.kind.is_delete)
        for key, row in collapse(rows[first:]).items()
        for number in [rows[first:].index(row)]
    }


@pytest.mark.parametrize("seed", range(8))
def test_of_a_file_with_too_many_changes_the_last_row_groups_count(tmp_path: Local, seed: int) -> None:
    """Whatever is left out, an image is that of the last change; rows that were read again count as well."""
    chance = random.Random(seed)
    rows = change_rows(chance, 1, 2000)
    files = spooled(tmp_path, chance, rows, pa.int32())
    for file in files:
        pq.write_table(pq.read_table(file), file, row_group_size=chance.randint(1, 100))
    after, stop = Place(1, 1, 4), Place(1, chance.randint(10, 12), chance.randint(4, 40))
    at = Place(1, 10, chance.randint(4, 40))
    again = reread(
        tmp_path, [ChangeRow(RowKind.INSERT, (number,), at, REREAD) for number in range(0, 99, 7)], at, 9_000
    )
    everything = as_dict(last_images(files, [again], schema_of(1), after, stop, ALL), 1)
    sizes = []
    for size in range(13):
        newest = as_dict(last_images(files, [again], schema_of(1), after, stop, 1 << size), 1)
        assert newest.items() <= everything.items()
        sizes.append(len(newest))
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(everything)


def test_rows_of_another_definition_do_not_count(tmp_path: Local) -> None:
    """Nor does any change before them."""
    chance = random.Random(6)
    rows = change_rows(chance, 1, 300)
    files = spooled(tmp_path, chance, rows, pa.int32())
    schema = schema_of(1)
    wider = replace(schema, columns=(*schema.columns, replace(schema.columns[-1], name="w")))
    assert last_images(files, [], wider, Place(1, 1, 4), Place(1, 12, 4), ALL) is None
