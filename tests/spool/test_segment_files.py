import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeingest.core.binlog.position import FilePosition, Gtid, GtidSet
from lakeingest.core.binlog.segments import Segment
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import TRANSACTIONS, change_schema
from lakeingest.spool import segment_files
from lakeingest.spool.segment_files import SegmentFiles, gtids_of

UUIDS = [f"{digit * 8}-1111-2222-3333-444444444444" for digit in "ab"]
SCHEMA = TableSchema(TableId("shop", "orders"), (Column("id", Kind.INT32, source_type("int")),), ("id",))
SEGMENT = Segment(UUIDS[0], 1, FilePosition("binlog.000001", 4), FilePosition("binlog.000001", 900), GtidSet())
GTIDS = st.builds(Gtid, st.sampled_from(UUIDS), st.integers(1, 40), st.sampled_from(["", "tag"]))


def log(gtids: list[Gtid | None]) -> pa.RecordBatch:
    """A batch of logged transactions."""
    rows = [
        {"uuid": gtid and gtid.uuid, "tag": gtid and gtid.tag, "number": gtid and gtid.number}
        | {"epoch": 1, "file": 1, "pos": 4, "committed_at": 0}
        for gtid in gtids
    ]
    return pa.RecordBatch.from_pylist(rows, schema=TRANSACTIONS)


def changes(*ids: int) -> pa.RecordBatch:
    """A batch of change rows."""
    rows = [{**dict.fromkeys(change_schema(SCHEMA).names, 0), "_lakeingest_gtid": None, "id": id_} for id_ in ids]
    return pa.RecordBatch.from_pylist(rows, schema=change_schema(SCHEMA))


@settings(deadline=None)  # the first call starts Arrow's threads
@given(st.lists(st.none() | GTIDS, unique=True))
def test_the_gtids_of_a_batch_are_those_of_its_transactions(gtids: list[Gtid | None]) -> None:
    """In whatever order they come, with gaps and tags, and without those that have no name."""
    assert gtids_of(log(gtids)) == GtidSet.of_gtids(gtid for gtid in gtids if gtid is not None)


@pytest.mark.parametrize("group_bytes", [1, 64 << 20])
def test_the_manifest_names_whole_files(tmp_path: Local, monkeypatch: pytest.MonkeyPatch, group_bytes: int) -> None:
    """All rows are in the files when the manifest is there, however many row groups they make."""
    monkeypatch.setattr(segment_files, "_GROUP_BYTES", group_bytes)
    (tmp_path / "data").mkdir()
    other = TableSchema(TableId("shop", "quiet"), SCHEMA.columns, SCHEMA.key)
    with SegmentFiles(tmp_path, {SCHEMA.table: SCHEMA, other.table: other}) as files:
        for number in (1, 2):
            files.write((SCHEMA.table, changes(number, number + 10)))
            files.write((None, log([Gtid(UUIDS[0], number)])))
        manifest = files.complete(SEGMENT, {SCHEMA.table: 3, other.table: 0})
    assert manifest.gtids == GtidSet.parse(f"{UUIDS[0]}:1-2")
    assert manifest.tables[other.table] is None
    assert manifest.nulled == {SCHEMA.table: 3}
    entry = manifest.tables[SCHEMA.table]
    assert entry is not None
    table = pq.read_table(tmp_path / entry[0])
    assert (table["id"].to_pylist(), entry[1]) == ([1, 11, 2, 12], 4)
    assert pq.read_metadata(tmp_path / manifest.transactions).num_rows == 2
    assert pq.read_metadata(tmp_path / entry[0]).num_row_groups == (2 if group_bytes == 1 else 1)
