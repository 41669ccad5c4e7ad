"""The files of rows that were read again, before and after a merge has taken them."""

import time
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import table_schema
from lakeingest.spool.patch_files import PatchFolder

DAY = timedelta(days=1)
SCHEMA = TableSchema(
    TableId("shop", "orders"), (Column("id", Kind.INT32, source_type("int"), nullable=False),), ("id",)
)


def test_a_sweep_removes_old_files_of_signals_that_have_ended(tmp_path: Local) -> None:
    """Young files stay, because a run may be at work; so do those of a re-snapshot that takes days."""
    patches = PatchFolder.of(tmp_path, SCHEMA)
    rows = pa.table({"id": [1, 2]}, schema=table_schema(SCHEMA))
    old, needed, young = (patches.write_rows(signal, rows) for signal in (1, 2, 3))
    for name in (old, needed):
        patches.file(name).set_changed(time.time() - 2 * 86_400)
    size = patches.file(old).size()
    assert patches.sweep(DAY, needed={2}) == (1, size)
    assert patches.of_signal(1) == []
    assert [patches.count_rows([name]) for name in (needed, young)] == [2, 2]
    assert patches.sweep(DAY, needed={2}) == (0, 0)


def test_a_sweep_of_a_table_that_was_never_read_again_does_nothing(tmp_path: Local) -> None:
    """It has no folder."""
    assert PatchFolder.of(tmp_path, SCHEMA).sweep(DAY, needed=()) == (0, 0)


def test_deleted_keys_have_a_value_in_each_column_that_is_never_null(tmp_path: Local) -> None:
    """Of every kind, for any number of keys: the file is whole, although the values mean nothing."""
    key = Column("id", Kind.INT32, source_type("int"), nullable=False)
    others = [
        Column(kind, kind, source_type("any"), nullable=False, precision=38, scale=5)
        for kind in Kind
        if kind != Kind.INT32
    ]
    schema = TableSchema(TableId("shop", "orders"), (key, *others), ("id",))
    patches = PatchFolder.of(tmp_path, schema)
    for count in (1, 9, 1000):
        keys = pa.table({"id": pa.array(range(count), pa.int32())})
        written = pq.read_table(patches.file(patches.write_absent(1, keys)).source())
        written.validate(full=True)
        assert written["id"].to_pylist() == list(range(count))
        assert [written[column.name].null_count for column in others] == [0] * len(others)
        assert set(written[Kind.BOOLEAN].to_pylist()) == {False}
