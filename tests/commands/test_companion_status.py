"""What `status` asks of the state folder about companions: little, however many tables there are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeingest.commands.companion_status import CompanionsInLake
from lakeingest.config import parse_config
from lakeingest.config.companions import HISTORY_KEY
from lakeingest.core.companions.history_table import history_id
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import StateUnreadable
from lakeingest.files.file import File, state_of
from lakeingest.state import stopped
from lakeingest.state.stopped import COMPANIONS, Stopped, StoppedTables

TABLES = [TableId("shop", f"t{number}") for number in range(20)]


def test_only_records_that_are_there_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing says which companions have one."""
    doc = {"name": "a", "source": {"host": "127.0.0.1", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    config = parse_config(doc | {"history": "scd2", "changelog": {"table": True}}, tmp_path, {})
    state, failed = state_of(config), history_id(TABLES[3])
    StoppedTables(state, COMPANIONS).record(Stopped.of(failed, StateUnreadable("a file is damaged")))
    asked, read = [], stopped.read_stopped

    def noted(state: File, table: TableId, folder: str) -> Stopped | None:
        asked.append(table)
        return read(state, table, folder)

    monkeypatch.setattr(stopped, "read_stopped", noted)
    beside = CompanionsInLake.of(config, TABLES)
    copy: Any = SimpleNamespace(published=1, visible=True)
    found = {(table, one.companion): one for table in TABLES for one in beside.beside(table, copy, None)}
    assert asked == [failed]
    assert len(found) == 2 * len(TABLES)
    assert {names for names, one in found.items() if one.state != "not begun"} == {(TABLES[3], HISTORY_KEY)}
    assert str(found[TABLES[3], HISTORY_KEY]) == "history: stopped, StateUnreadable"
