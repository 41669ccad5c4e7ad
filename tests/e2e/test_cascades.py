"""Changes by foreign keys that the source does not log and that cannot be read again: refused, or missing by choice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.init import init
from lakeingest.commands.plan import plan
from lakeingest.commands.status import status
from lakeingest.config.tables import TableOptions
from lakeingest.demo.server import LocalServer
from lakeingest.errors import PreflightFailed
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def family(pipe_on: Callable[..., Pipe], mysql_server_with: Callable[..., LocalServer]) -> Callable[..., Pipe]:
    """With settings: a parent, a child whose rows go with the parent's, and a table that refers to it and back."""

    def make(**settings: str) -> Pipe:
        pipe = pipe_on(mysql_server_with(server_id="97", **settings))
        pipe.sql(
            "CREATE TABLE parents (id CHAR(1) PRIMARY KEY)",
            "CREATE TABLE children (id INT PRIMARY KEY, p CHAR(1),"
            " FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE)",
            "CREATE TABLE others (id INT PRIMARY KEY, c INT,"
            " FOREIGN KEY (c) REFERENCES children (id) ON DELETE CASCADE)",
            "ALTER TABLE children ADD o INT, ADD FOREIGN KEY (o) REFERENCES others (id) ON DELETE SET NULL",
            "INSERT INTO parents VALUES ('a'), ('b')",
            "INSERT INTO children VALUES (1, 'a', NULL), (2, 'b', NULL)",
        )
        return pipe

    return make


@pytest.mark.long("several processes")
def test_init_plan_and_check_say_the_same_and_the_others_are_copied(
    family: Callable[..., Pipe], tmp_path: Path
) -> None:
    """Until the user writes that such changes may be missing: the table is copied without them, and all say so."""
    pipe = family(innodb_native_foreign_keys="ON")
    source, fix = pipe.config.source, "set `cascades: missing` for them in tables.options"
    child, other = f"{pipe.database}.children", f"{pipe.database}.others"
    written = init(
        tmp_path / "pipeline.yml",
        f"mysql://{source.user}@{source.host}:{source.port}/{pipe.database}",
        {"MYSQL_PASSWORD": source.password.get_secret_value()},
    )
    assert {str(table): fix in reason for table, reason in written.refused.items()} == {child: True, other: True}
    assert [str(table) for table in written.tables] == [f"{pipe.database}.parents"]
    [finding] = [one.finding for one in check(pipe.config).problems]
    assert finding is not None
    assert f"outside the binlog: {child}: foreign keys lead from {child}, {other} back to {child}" in finding
    assert fix in finding
    plans = {one.table.name: one for one in plan(pipe.config)}
    assert (plans["children"].state, plans["parents"].state) == ("cannot be copied", "new")
    assert fix in plans["children"].reasons[0]
    with pytest.raises(PreflightFailed, match=f"{child} is not ready: foreign keys change rows"):
        pipe.run()
    assert pipe.rows("parents") == [("a",), ("b",)]

    options = {"*.[co]*": TableOptions(cascades="missing")}
    tables = pipe.config.tables.model_copy(update={"options": options})
    pipe.config = pipe.config.model_copy(update={"tables": tables})
    result = check(pipe.config)
    assert result.ok
    loads_code = "code that Spark loads"  # the tests' session has jars of its own
    assert [one.name for one in result.warnings if one.name != loads_code] == ["changes by foreign keys"]
    [planned] = plan(pipe.config, [child])
    assert planned.lossy == ("changes by 2 foreign keys: the source does not log them",)
    pipe.run()
    pipe.assert_equal()
    pipe.sql("DELETE FROM parents WHERE id = 'a'", "INSERT INTO children VALUES (3, 'b', NULL)")
    pipe.run()
    assert pipe.rows("children") == [(1, "a", None), (2, "b", None), (3, "b", None)]
    assert not pipe.verify("children")["children"].equal
    answer = {one.table.name: one.cascades for one in status(pipe.config)}
    assert answer == {"children": 2, "others": 1, "parents": 0}
    assert f"{child}: changes by 2 foreign keys are missing" in status(pipe.config).note


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_server_that_logs_cascades_needs_no_word(family: Callable[..., Pipe]) -> None:
    """The child's rows are gone from the copy as from the source."""
    pipe = family()
    pipe.run()
    pipe.sql("DELETE FROM parents WHERE id = 'a'")
    pipe.run()
    assert pipe.rows("children") == [(2, "b", None)]
    pipe.assert_equal()
