"""`wait` and `status` ask the lake for no more than they need, which many tables in a store would feel."""

from collections.abc import Iterable

import pytest

from lakeingest.commands import status as showing
from lakeingest.commands import wait as waiting
from lakeingest.core.tables.schema import TableId
from lakeingest.errors import Retryable
from lakeingest.lake import preflight
from lakeingest.lake.target import Tables
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.mark.formats
@pytest.mark.long("waits for what does not come")
def test_only_tables_that_are_missing_are_looked_at_again(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that readers see as wanted is looked at once; `status` looks at each table once, with its properties."""
    pipe.sql("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    pipe.sql("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)")
    pipe.run()
    assert [one.table.name for one in waiting.wait(pipe.config).tables] == ["a", "b"]
    pipe.sql("INSERT INTO b VALUES (2)")
    pipe.run("a")
    looks: list[list[str]] = []

    def noted(target: Tables, tables: Iterable[TableId]) -> preflight.Copies:
        all_tables = list(tables)
        ours = [table for table in all_tables if table.database == pipe.database]  # others share the warehouse
        looks.append(sorted(table.name for table in ours))
        return preflight.copies(target, all_tables)

    monkeypatch.setattr(waiting, "copies", noted)
    with pytest.raises(Retryable, match=rf"do not see it yet after .*: {pipe.database}\.b \(up to "):
        waiting.wait(pipe.config, max_seconds=1.0, every=0.3)
    assert looks[0] == ["a", "b"]
    assert looks[1:]
    assert {tuple(look) for look in looks[1:]} == {("b",)}
    looks.clear()
    monkeypatch.setattr(showing, "copies", noted)
    names = [f"{pipe.database}.a", f"{pipe.database}.b"]
    assert [one.last_gate for one in showing.status(pipe.config, names)] == ["passed", "passed"]
    assert looks == [["a", "b"]]
    pipe.run()
    assert [one.table.name for one in waiting.wait(pipe.config).tables] == ["a", "b"]
