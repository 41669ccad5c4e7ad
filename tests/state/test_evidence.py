"""Evidence of rows that failed a gate: stored once, released when readers see their keys again, then dropped."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import LeaseLost, StateUnreadable
from lakeingest.files.local import Local
from lakeingest.state.evidence import KEY, RELEASED_AT, Evidence, drop_released, folder_of, read_evidence

TABLE, PLACE = TableId("shop", "orders/2"), Place(0, 1, 400)
INSTANT = pa.timestamp("us", "UTC")


def rows(*keys: str, amount: object = 5) -> pa.Table:
    """Rows of these keys that were never released."""
    count = len(keys)
    released = pa.nulls(count, INSTANT)
    return pa.table({"amount": [amount] * count, KEY: list(keys), RELEASED_AT: released})


def owned(state: Local) -> Evidence:
    """The evidence for a run that holds the lease."""
    return Evidence(state, lambda: None)


def open_keys(state: Local) -> list[object]:
    """The keys of all rows that are not released."""
    return [row[KEY] for row in read_evidence(state, TABLE) if row[RELEASED_AT] is None]


def test_rows_as_of_one_place_are_stored_once(tmp_path: Path) -> None:
    """A run that died before it removed them stores them again, in any order; as of another place they are others."""
    state = Local(tmp_path)
    for keys in (("[1]", "[2]"), ("[2]", "[1]")):
        owned(state).store(TABLE, PLACE, rows(*keys))
    assert sorted(map(str, open_keys(state))) == ["[1]", "[2]"]
    owned(state).store(TABLE, Place(0, 1, 500), rows("[1]", amount="6"))  # the column has another type since
    assert [row["amount"] for row in read_evidence(state, TABLE)] == [5, 5, "6"]
    assert folder_of(state, TABLE).name == "shop.orders%2F2__quarantine"


def test_rows_are_released_once_their_keys_are_no_longer_listed(tmp_path: Path) -> None:
    """The first time counts. Another run knows what is there."""
    state = Local(tmp_path)
    first = owned(state)
    first.store(TABLE, PLACE, rows("[1]", "[2]"))
    first.close(TABLE, [(1,), (2,)])
    assert open_keys(state) == ["[1]", "[2]"]
    first.close(TABLE, [(2,)])
    assert open_keys(state) == ["[2]"]
    [before, _] = [row[RELEASED_AT] for row in read_evidence(state, TABLE)]
    assert isinstance(before, dt.datetime)
    assert drop_released(state, TABLE) == 0  # the rows left the table together
    owned(state).close(TABLE, [])
    assert open_keys(state) == []
    assert next(row[RELEASED_AT] for row in read_evidence(state, TABLE)) == before
    assert drop_released(state, TABLE) == 2
    assert read_evidence(state, TABLE) == []
    owned(state).close(TableId("shop", "others"), [])


def test_any_program_that_reads_parquet_reads_it(tmp_path: Path) -> None:
    """The folder has nothing else."""
    state = Local(tmp_path)
    owned(state).store(TABLE, PLACE, rows("[1]"))
    assert pq.read_table(folder_of(state, TABLE)).num_rows == 1


def test_damaged_evidence_is_named(tmp_path: Path) -> None:
    """Nobody takes it for none."""
    state = Local(tmp_path)
    evidence = owned(state)
    evidence.store(TABLE, PLACE, rows("[1]"))
    [path] = folder_of(state, TABLE).listed("*")
    path.write(b"PAR1")
    for read in (lambda: evidence.close(TABLE, []), lambda: drop_released(state, TABLE)):
        with pytest.raises(StateUnreadable, match="rows that are in quarantine, cannot be read"):
            read()


def test_a_run_that_lost_its_lease_writes_nothing(tmp_path: Path) -> None:
    """Its successor has the same rows."""
    state = Local(tmp_path)

    def refuse() -> None:
        raise LeaseLost("gone")

    with pytest.raises(LeaseLost):
        Evidence(state, refuse).store(TABLE, PLACE, rows("[1]"))
    owned(state).store(TABLE, PLACE, rows("[1]"))
    with pytest.raises(LeaseLost):
        Evidence(state, refuse).close(TABLE, [])
    assert open_keys(state) == ["[1]"]
