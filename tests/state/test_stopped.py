"""The records of stopped tables, and who waits for one of the tables."""

from pathlib import Path

import pytest

from lakeingest.commands.wait import SeenTable, _require_work
from lakeingest.config import parse_config
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import GateFailed, Retryable
from lakeingest.files.file import File, state_of
from lakeingest.files.local import Local
from lakeingest.state import stopped
from lakeingest.state.stopped import Stopped, StoppedTables

TABLES = [TableId("shop", name) for name in ("orders", "a.b", "😀 `x`", "gone")]


def tables_that_are_read(monkeypatch: pytest.MonkeyPatch) -> list[TableId]:
    """The tables whose records are read from now on, each as often as it is read."""
    asked = []
    read = stopped.read_stopped

    def noted(state: File, table: TableId, folder: str) -> Stopped | None:
        asked.append(table)
        return read(state, table, folder)

    monkeypatch.setattr(stopped, "read_stopped", noted)
    return asked


def test_tables_without_a_record_need_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing says which table has one, whatever its name is; another table's record is not read."""
    StoppedTables(Local(tmp_path)).record(Stopped.of(TABLES[2], Retryable("x")))
    asked = tables_that_are_read(monkeypatch)
    records = StoppedTables(Local(tmp_path))
    assert [one and one.message for one in map(records.read, TABLES)] == [None, None, "x", None]
    assert asked == [TABLES[2]]


def test_who_waits_asks_for_all_records_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that the next run tries again is waited for; one that a person has to mend ends the wait."""
    account = {"host": "127.0.0.1", "user": "lake"}
    doc = {"name": "a", "source": account, "tables": {"include": ["shop.*"]}}
    config = parse_config(doc, tmp_path, {})
    state = state_of(config)
    missing = [SeenTable(table, None, None) for table in TABLES]
    _require_work(config, missing)  # no run has made the state yet
    StoppedTables(state).record(Stopped.of(TABLES[0], Retryable("away")))
    asked = tables_that_are_read(monkeypatch)
    _require_work(config, missing)
    assert asked == TABLES[:1]
    StoppedTables(state).record(Stopped.of(TABLES[1], GateFailed("a rule fails")))
    with pytest.raises(GateFailed, match="a rule fails"):
        _require_work(config, missing)
