"""Tables without changes: their position advances in the state of the pipeline, without a commit of their own."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from lakeingest.commands.changelog import changelog_of
from lakeingest.commands.status import status
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.formats import open_target
from lakeingest.pipeline.changelog.reading import Copied
from lakeingest.pipeline.events import Published
from tests.e2e.pipe import Pipe
from tests.servers.stores import remove

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def two(pipe: Pipe) -> Pipe:
    """Two tables that have been copied; nobody changes the second one any more."""
    for name in ("busy", "still"):
        pipe.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)"
        )
    pipe.run()
    return pipe


def version(pipe: Pipe, table: str) -> int:
    """The commit that readers of a table see."""
    staged = open_target(pipe.config).inspect(TableId(pipe.database, table))
    assert staged is not None
    assert staged.published is not None
    return staged.published


def changed(pipe: Pipe) -> None:
    """A change of the other table, and a run."""
    pipe.sql("UPDATE busy SET v = v + 1 WHERE id = 1")
    pipe.run()


def assert_at_the_end(pipe: Pipe) -> None:
    """Both tables stand where the source does, and the spool keeps nothing for them."""
    assert [one.lag_bytes for one in status(pipe.config)] == [0, 0]
    assert not (pipe.state / "spool" / "segments").listed("*.json")


@pytest.mark.long("whole runs")
@pytest.mark.formats
def test_a_quiet_table_stands_where_the_others_do_without_a_commit(two: Pipe) -> None:
    """Run after run, and its next change is applied as if it had been committed."""
    before = version(two, "still")
    for _ in range(3):
        changed(two)
        assert version(two, "still") == before
        assert_at_the_end(two)
    assert {event.table.name for event in two.seen(Published)[2:] if isinstance(event, Published)} == {"busy"}
    two.assert_equal()
    two.sql("UPDATE still SET v = 9 WHERE id = 2", "DELETE FROM still WHERE id = 3")
    two.run()
    assert version(two, "still") != before
    assert two.rows("still") == [(1, 1), (2, 9)]


@pytest.mark.long("whole runs")
@pytest.mark.formats
def test_without_the_state_the_commit_counts(two: Pipe) -> None:
    """The binlog is read again from there on; the position is not taken from anywhere else."""
    before = version(two, "still")
    changed(two)
    remove(two.state)
    two.sql("INSERT INTO still VALUES (4, 4)")
    two.run()
    assert version(two, "still") != before
    two.assert_equal()


@pytest.mark.long("whole runs")
def test_a_position_is_stated_of_one_version_only(two: Pipe) -> None:
    """Someone else's compaction is another version, which has the position of the commit below it."""
    changed(two)
    two.spark.sql(
        f"CALL {two.config.target.catalog.name}.system.rewrite_data_files("
        f"table => '{two.database}.still', options => map('rewrite-all', 'true'))"
    )
    two.sql("INSERT INTO still VALUES (4, 4)")
    changed(two)
    two.assert_equal()
    assert_at_the_end(two)


@pytest.mark.long("whole runs")
def test_a_quiet_table_is_committed_before_the_binlog_after_its_commit_is_gone(
    two: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a quarter and a half of the time for which the source keeps its binlog."""
    before, now = version(two, "still"), time.time()
    two.sql("SET GLOBAL binlog_expire_logs_seconds = 86400")
    try:
        changed(two)
        monkeypatch.setattr(time, "time", lambda: now + 86_400 / 4 - 60)
        changed(two)
        assert version(two, "still") == before
        monkeypatch.setattr(time, "time", lambda: now + 86_400 / 2)
        changed(two)
    finally:
        two.sql("SET GLOBAL binlog_expire_logs_seconds = DEFAULT")
    assert version(two, "still") != before
    assert_at_the_end(two)


@pytest.mark.long("whole runs")
def test_the_changelog_of_a_quiet_table_begins_with_a_copy(two: Pipe) -> None:
    """Also when nothing is held any more of what came after its commit."""
    changelog = two.config.changelog.model_copy(update={"keep": timedelta(0)})
    two.config = two.config.model_copy(update={"changelog": changelog})
    changed(two)
    changed(two)
    copied = [part for part in changelog_of(two.config, f"{two.database}.still").read() if isinstance(part, Copied)]
    assert sum(part.rows.num_rows for part in copied) == 3


@pytest.mark.long("two hundred tables")
def test_one_changed_row_among_two_hundred_tables_takes_one_commit(
    pipe: Pipe, record_property: Callable[[str, object], None]
) -> None:
    """And hardly more time than a run with nothing to do."""
    for number in range(200):
        pipe.sql(f"CREATE TABLE t{number} (id INT PRIMARY KEY, v INT)", f"INSERT INTO t{number} VALUES (1, 1)")
    pipe.run()
    idle = timed(pipe)
    commits = len(pipe.seen(Published))
    pipe.sql("UPDATE t7 SET v = 2")
    one_row = timed(pipe)
    record_property("a changed row among 200 tables", f"idle (wall, CPU s) {idle}, with it {one_row}")
    assert len(pipe.seen(Published)) == commits + 1
    assert one_row[1] < idle[1] + 1
    assert pipe.rows("t7") == [(1, 2)]


def timed(pipe: Pipe) -> tuple[float, float]:
    """Wall and CPU seconds of a run."""
    wall, cpu = time.monotonic(), time.process_time()
    pipe.run()
    return round(time.monotonic() - wall, 2), round(time.process_time() - cpu, 2)
