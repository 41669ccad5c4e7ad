"""Metadata columns of rows, as Arrow makes them."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables import change
from lakeingest.core.tables.change import RowKind
from lakeingest.core.tables.schema import Choices, Column, Kind, TableId, TableSchema
from lakeingest.mysql.source_types import source_type
from lakeingest.rows import (
    FEW_ROWS,
    change_schema,
    few_integers,
    lake_schema,
    last_of_each,
    source_names,
    source_rows,
    table_schema,
    with_change_metadata,
    with_read_metadata,
)

SCHEMA = TableSchema(
    TableId("shop", "orders"),
    (Column("id", Kind.INT32, source_type("int"), nullable=False),),
    ("id",),
    Choices(deletes="soft", metadata=("op", "position", "committed_at", "database", "table")),
)
NOON = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
PLACES = [Place(1, 9, 4), Place(1, 10, 2**40), Place(2, 1_000_000, 4)]


def test_rows_of_changes_say_what_was_done_where_and_when() -> None:
    """Each kind of change, at places whose text sorts as they do; in batches of several chunks."""
    names = change_schema(SCHEMA).names
    rows = [
        dict(zip(names, (kind.value, at.epoch, at.file, at.pos, 1, NOON, None, kind.value), strict=True))
        for at in PLACES
        for kind in RowKind
    ]
    parts = [pa.Table.from_pylist(some, change_schema(SCHEMA)) for some in (rows[:5], rows[5:])]
    changes = pa.concat_tables(parts)
    found = with_change_metadata(changes.select(["id"]), SCHEMA, changes, Place(3, 1, 4))
    assert found.schema.names == lake_schema(SCHEMA).names
    assert found.cast(lake_schema(SCHEMA)).num_rows == len(rows)
    assert found["_lakeingest_op"].to_pylist() == ["c", "d", "u", "d"] * len(PLACES)
    assert found["_lakeingest_deleted"].to_pylist() == [False, True, False, True] * len(PLACES)
    assert found["_lakeingest_position"].to_pylist() == [str(at) for at in PLACES for _ in RowKind]
    assert found["_lakeingest_position"].to_pylist() == sorted(found["_lakeingest_position"].to_pylist())
    assert set(found["_lakeingest_committed_at"].to_pylist()) == {NOON}
    assert set(found["_lakeingest_database"].to_pylist()) == {"shop"}
    assert set(found["_lakeingest_table"].to_pylist()) == {"orders"}


def test_rows_that_were_read_stand_at_a_place_and_have_no_commit_time() -> None:
    """Those of chunks, and those that were read again, which stand beside changes at the stop of their merge."""
    ids = pa.table({"id": pa.array([1, 2], pa.int32())})
    chunk = with_read_metadata(ids, SCHEMA, PLACES[0])
    assert chunk.schema.equals(pa.schema([ids.schema.field("id"), *list(lake_schema(SCHEMA))[1:]]))
    zero = {change.EPOCH: 0, change.FILE: 0, change.POS: 0, change.ORDINAL: 0, change.COMMITTED_AT: NOON}
    kinds = (RowKind.INSERT, RowKind.DELETE)
    rows = [{change.KIND: kind.value, change.GTID: None, "id": n} | zero for n, kind in enumerate(kinds)]
    changes = pa.Table.from_pylist(rows, change_schema(SCHEMA))
    again = with_change_metadata(ids, SCHEMA, changes, PLACES[1])
    assert [tuple(row.values()) for row in (*chunk.to_pylist(), *again.to_pylist())] == [
        (1, "r", False, str(PLACES[0]), None, "shop", "orders"),
        (2, "r", False, str(PLACES[0]), None, "shop", "orders"),
        (1, "r", False, str(PLACES[1]), None, "shop", "orders"),
        (2, "d", True, str(PLACES[1]), None, "shop", "orders"),
    ]


def test_a_table_without_metadata_columns_has_rows_as_before() -> None:
    """Nothing is added, and nothing is computed."""
    plain = TableSchema(SCHEMA.table, SCHEMA.columns, SCHEMA.key)
    ids = pa.table({"id": pa.array([1, 2], pa.int32())})
    assert with_read_metadata(ids, plain, PLACES[0]) is ids
    assert lake_schema(plain).names == ["id"]


def test_rows_of_a_copy_become_rows_of_the_table() -> None:
    """Without metadata columns, and without those that are marked; those of a plain copy stay as they are."""
    rows = pa.table({"_lakeingest_deleted": [True, False], "id": pa.array([1, 2], pa.int32())})
    assert source_names(SCHEMA) == ("id", "_lakeingest_deleted")
    assert source_rows(rows, SCHEMA).to_pydict() == {"id": [2]}
    plain = TableSchema(SCHEMA.table, SCHEMA.columns, SCHEMA.key)
    assert source_names(plain) == ("id",)
    assert source_rows(rows.select(["id"]), plain).to_pydict() == {"id": [1, 2]}
    assert source_rows(rows.select(["id"]), plain).schema == table_schema(plain)


def test_the_last_row_of_each_value_is_found() -> None:
    """Of integers, whatever their order; the rows ascend."""
    assert last_of_each(np.array([7, -1, 7, 3, -1, 9])).tolist() == [2, 3, 4, 5]
    assert last_of_each(np.zeros(0, np.int64)).tolist() == []


def test_only_a_single_column_of_few_integers_is_one() -> None:
    """Columns with other values, with a NULL, of many rows, or several columns are not."""
    integers = pa.chunked_array([[1, 2], [3]])
    found = few_integers([integers])
    assert found is not None
    assert found.tolist() == [1, 2, 3]
    others = ([None, 1], [1.5], ["1"], [Decimal(1)], [True], range(FEW_ROWS + 1))
    assert all(few_integers([pa.chunked_array([values])]) is None for values in others)
    assert few_integers([integers, integers]) is few_integers([]) is None
