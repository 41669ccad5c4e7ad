"""What the state folder has of thousands of tables: one listing says of which, and only their documents are read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeingest.core.binlog.position import Place
from lakeingest.core.proofs.proof import Facts, TableProof
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, StorageFailed
from lakeingest.files.file import File
from lakeingest.files.local import Local
from lakeingest.quality.reports import FOLDER, tables_with_reports
from lakeingest.state import store
from lakeingest.state.definition import defined_tables
from lakeingest.state.proofs import read_proofs, store_proof
from lakeingest.state.stopped import Stopped, StoppedTables

FACTS = Facts("id int", "begun", "f1", "server", 1, 0, Place(1, 1, 100), 3)
TABLES = [TableId("shop", name) for name in ("orders", "a.b", "😀 `x`", "gone")]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that are read from now on."""
    names = []
    read_document = store.read

    def noted(path: File) -> Any:
        names.append(path.name)
        return read_document(path)

    monkeypatch.setattr(store, "read", noted)
    return names


def test_records_of_stopped_tables(tmp_path: Path, read: list[str]) -> None:
    """Those that are damaged, or whose document names no error, are left out, as if the table had not stopped."""
    state = Local(tmp_path)
    assert StoppedTables(state).read_all(TABLES) == {}
    records = [Stopped.of(table, GateFailed(f"of {table}")) for table in TABLES[:3]]
    for record in records:
        StoppedTables(state).record(record)
    damaged = next(path for path in (tmp_path / "stopped").iterdir() if "a.b" in path.name)
    damaged.write_text("{")
    assert StoppedTables(state).read_all(TABLES) == {TABLES[0]: records[0], TABLES[2]: records[2]}
    assert StoppedTables(state).read_all(TABLES[3:]) == {}
    assert len(read) == 3


def test_proofs(tmp_path: Path, read: list[str]) -> None:
    """A table that was never compared needs no request."""
    state = Local(tmp_path)
    assert read_proofs(state, TABLES) == {}
    proofs = {table: TableProof(replace(FACTS, begun=str(table))) for table in TABLES[1:3]}
    for table, proof in proofs.items():
        store_proof(state, table, proof)
    assert read_proofs(state, TABLES) == proofs
    assert len(read) == 2


def test_tables_whose_gates_have_reports(tmp_path: Path) -> None:
    """They are told by the names of their folders."""
    state = Local(tmp_path)
    assert tables_with_reports(state, TABLES) == set()
    for folder in ("shop.orders", "shop.other"):
        (state / FOLDER / folder).make_folder()
    assert tables_with_reports(state, TABLES) == {TABLES[0]}
    assert tables_with_reports(state, ()) == set()


@pytest.mark.parametrize("listing", [lambda state: read_proofs(state, TABLES), defined_tables])
def test_a_folder_that_cannot_be_listed_fails_by_name(tmp_path: Path, listing: Callable[[File], object]) -> None:
    """A file has the name of each folder."""
    for folder in ("proofs", "definitions"):
        (tmp_path / folder).write_text("")
    with pytest.raises(StorageFailed, match="the state folder cannot be read"):
        listing(Local(tmp_path))
