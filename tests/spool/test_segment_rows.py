from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeingest.core.binlog.position import FilePosition, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables import change
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import TRANSACTIONS, change_schema
from lakeingest.spool import segment_files, segment_rows
from lakeingest.spool.segment_files import SegmentFiles
from lakeingest.spool.segment_rows import Place, SegmentRows

SCHEMA = TableSchema(TableId("shop", "orders"), (Column("id", Kind.INT32, source_type("int")),), ("id",))
OTHER = TableSchema(TableId("shop", "quiet"), SCHEMA.columns, SCHEMA.key)
SEGMENT = Segment("a", 1, FilePosition("binlog.000001", 4), FilePosition("binlog.000009", 900), GtidSet())

# the places of the rows of each batch; each batch becomes a row group
BATCHES = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(4, 9)), min_size=1, max_size=5), min_size=1)


def in_order(batches: Sequence[Sequence[Place]]) -> list[list[Place]]:
    """Batches of the same sizes, with their places in order."""
    places = iter(sorted(place for batch in batches for place in batch))
    return [[next(places) for _ in batch] for batch in batches]


def changes(places: Sequence[Place], first: int) -> pa.RecordBatch:
    """Change rows with these places, whose ids count from `first`."""
    fields = change_schema(SCHEMA)
    zeros = {name: pa.array([0] * len(places), pa.int64()).cast(fields.field(name).type) for name in fields.names[:6]}
    values = {
        **zeros,
        change.FILE: pa.array([file for file, _ in places], pa.int64()),
        change.POS: pa.array([pos for _, pos in places], pa.int64()),
        change.GTID: pa.nulls(len(places), pa.string()),
        "id": pa.array(range(first, first + len(places)), pa.int32()),
    }
    return pa.RecordBatch.from_pydict({name: values[name] for name in fields.names}, schema=fields)


def log(places: Sequence[Place]) -> pa.RecordBatch:
    """The log rows of transactions with these places."""
    rows = [{"epoch": 1, "file": file, "pos": pos, "committed_at": 0} for file, pos in places]
    return pa.RecordBatch.from_pylist(rows, schema=TRANSACTIONS)


def decoded(folder: Local, batches: Sequence[Sequence[Place]]) -> SegmentRows:
    """The rows of a segment: each batch is a row group, with the transactions of its rows that are new."""
    (folder / "data").mkdir(exist_ok=True)
    done, met = 0, set[Place]()
    with SegmentFiles(folder, {SCHEMA.table: SCHEMA, OTHER.table: OTHER}) as files:
        for batch in batches:
            if new := sorted(set(batch) - met):
                files.write((None, log(new)))
            files.write((SCHEMA.table, changes(batch, done)))
            done, met = done + len(batch), met | set(batch)
        return SegmentRows(folder, files.complete(SEGMENT, {}))


@settings(deadline=None)  # each example writes files
@given(BATCHES, st.data())
def test_rows_are_those_between_two_transactions(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Place]], data: st.DataObject
) -> None:
    """In whatever row groups and batches they are, and wherever the transactions begin and end."""
    groups = in_order(batches)
    places = [place for batch in groups for place in batch]
    transactions = sorted(set(places))
    first, last = sorted(data.draw(st.tuples(st.sampled_from(transactions), st.sampled_from(transactions))))
    most = data.draw(st.none() | st.integers(0, len(places)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_files, "_GROUP_BYTES", 1)
        patched.setattr(segment_rows, "_BATCH_ROWS", 2)
        rows = decoded(Local(tmp_path_factory.mktemp("spool")), groups)
        assert [rows.transactions[index] for index in range(len(rows.transactions))] == transactions
        assert rows.first_transaction([SCHEMA.table]) == 0
        found = rows.rows(SCHEMA.table, first, last, most)
    expected = [number for number, place in enumerate(places) if first <= place <= last]
    assert found["id"].to_pylist() == (expected if most is None else expected[:most])
    assert rows.changed == {SCHEMA.table: len(places)}


def test_of_a_large_segment_only_one_row_group_is_in_memory(tmp_path: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The places of all rows took 16 bytes for each, so a worker held more with each change."""
    monkeypatch.setattr(segment_files, "_GROUP_BYTES", 1)
    groups = [[(1, 1_000 * group + row // 10) for row in range(10_000)] for group in range(40)]
    rows = decoded(tmp_path, groups)
    before = pa.total_allocated_bytes()
    wanted = rows.rows(SCHEMA.table, (1, 20_990), (1, 21_009))
    held = pa.total_allocated_bytes() - before
    assert pc.min_max(wanted["id"]).as_py() == {"min": 209_900, "max": 210_099}
    assert rows.first_transaction([SCHEMA.table]) == 0
    assert held < 2 * 16 * 10_000 + wanted.nbytes + 1_000_000  # the places of all rows take 6.4 million bytes
