"""With `schema: {changes: approve}` a table waits before each DDL until a person approves that one."""

from functools import partial

import pytest

from lakeingest.commands.approve import waiting_ddl
from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.config.changelog import Changelog
from lakeingest.config.schema_changes import SchemaChanges
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.errors import ApprovalNeeded, SchemaChanged, UsageError
from lakeingest.pipeline.events import Event, StartedOver, TableStopped, WaveCommitted
from lakeingest.spool.spool import Spool
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def asking(pipe: Pipe) -> Pipe:
    """A pipeline of two tables that are copied, and do not change without approval."""
    pipe.config = pipe.config.model_copy(update={"schema_changes": SchemaChanges(changes="approve")})
    for name in ("t", "other"):
        pipe.sql(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT NOT NULL)",
            f"INSERT INTO {name} VALUES {', '.join(f'({number}, {number})' for number in range(25))}",
        )
    pipe.run()
    pipe.events.clear()
    return pipe


def approve(pipe: Pipe) -> None:
    """A person does, who has seen what `status` says."""
    table = f"{pipe.database}.t"
    [done] = ask(pipe.config, "approve", [table], ddl=waiting_ddl(pipe.config, table))
    assert done.state == "done"


def waits_before(pipe: Pipe, statement: str) -> None:
    """A run ends with that; so does the next one, and `status` names the statement and where it stands."""
    with pytest.raises(ApprovalNeeded) as raised:
        pipe.run()
    said = [one.stopped.message for one in status(pipe.config) if one.stopped is not None]
    assert said == [str(raised.value)]
    assert statement in said[0]
    assert waiting_ddl(pipe.config, f"{pipe.database}.t") in said[0]
    pipe.assert_equal("other")


@pytest.mark.long("several runs in a row; other tests have each step")
def test_each_statement_waits_for_its_approval(asking: Pipe) -> None:
    """The table stands as of before it, run after run; the approval of one is not that of the next."""
    pipe, table = asking, f"{asking.database}.t"
    with pytest.raises(UsageError, match="waits before no DDL"):
        waiting_ddl(pipe.config, table)
    pipe.sql("UPDATE t SET v = 100 WHERE id = 1", "ALTER TABLE t ADD a INT DEFAULT 5", "UPDATE t SET a = 6, v = 7")
    pipe.sql("ALTER TABLE t ADD b VARCHAR(9) DEFAULT 'secret'", "INSERT INTO t VALUES (50, 50, 50, 'b')")
    for count in range(2):
        waits_before(pipe, "(ALTER TABLE t ADD a INT DEFAULT 5)")
        assert pipe.rows("t")[1] == (1, 100)
        pipe.sql(f"INSERT INTO other VALUES ({100 + count}, 1)")
    approve(pipe)
    waits_before(pipe, "(ALTER TABLE t ADD b VARCHAR(9) DEFAULT)")
    assert pipe.rows("t")[1] == (1, 7, 6)
    approve(pipe)
    assert pipe.run().stopped == ()
    pipe.assert_equal()
    with pytest.raises(UsageError, match="waits before no DDL"):
        waiting_ddl(pipe.config, table)


@pytest.mark.long("several runs in a row; other tests have each step")
def test_a_table_that_waits_keeps_no_rows_of_others_in_the_spool(asking: Pipe) -> None:
    """It may wait for weeks. The spool goes on to know where its DDL is."""
    pipe = asking
    pipe.config = pipe.config.model_copy(update={"changelog": Changelog.model_validate({"keep": "0s"})})
    pipe.sql("ALTER TABLE t ADD a INT DEFAULT 5", "UPDATE t SET a = 6 WHERE id > 9")
    for number in range(3):
        pipe.sql(f"INSERT INTO other VALUES ({100 + number}, 1)", f"UPDATE t SET v = {number}")
        waits_before(pipe, "ADD a INT")
    spool = Spool.load(pipe.state / "spool")
    assert spool is not None
    held = [segment.tables.get(TableId(pipe.database, "other")) for _, _, segment, _ in spool.parts()]
    assert len(held) > 3
    assert not any(held[:-1])
    approve(pipe)
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_rows_are_read_again_once_all_ddl_is_approved(asking: Pipe) -> None:
    """What is read is the table after all of it."""
    pipe = asking
    pipe.sql("ALTER TABLE t MODIFY v TINYINT NOT NULL", "ALTER TABLE t MODIFY v VARCHAR(9) NOT NULL")
    waits_before(pipe, "TINYINT")
    approve(pipe)
    waits_before(pipe, "VARCHAR")
    approve(pipe)
    assert pipe.run().stopped == ()
    assert len(pipe.seen(StartedOver)) == 1
    pipe.assert_equal()


def has_stopped(pipe: Pipe, times: int) -> bool:
    """Whether tables have stopped so often."""
    return len(pipe.seen(TableStopped)) == times


@pytest.mark.long("whole runs")
def test_a_run_that_follows_goes_on_when_it_is_approved(asking: Pipe) -> None:
    """Without being started again."""
    pipe = asking

    def work() -> None:
        for number, statement in enumerate(("ALTER TABLE t ADD c INT FIRST", "TRUNCATE t")):
            pipe.sql(statement)
            soon(partial(has_stopped, pipe, number + 1))
            pipe.sql(f"INSERT INTO other VALUES ({100 + number}, 1)")
            shown(pipe, "other")
            approve(pipe)
            pipe.sql("INSERT INTO t (id, v) VALUES (200, 1) ON DUPLICATE KEY UPDATE v = 2")
            shown(pipe, "t")

    assert follow_while(pipe, work).stopped == ()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_another_definition_while_rows_are_read_again_waits_for_a_person(asking: Pipe) -> None:
    """To ask for the table's rows approves it."""
    pipe = asking
    pipe.sql("ALTER TABLE t MODIFY v TINYINT NOT NULL")
    waits_before(pipe, "TINYINT")
    approve(pipe)

    def alter(event: Event) -> None:
        if isinstance(event, StartedOver):
            pipe.sql("ALTER TABLE t ADD late INT")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipe.run(observe=alter)
    for number in range(2):
        pipe.sql(f"INSERT INTO other VALUES ({100 + number}, 1)")
        with pytest.raises(SchemaChanged):
            pipe.run()
        pipe.assert_equal("other")
        assert len(pipe.rows("t")) == 25
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, spark=pipe.spark)
    assert pipe.run().stopped == ()
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_request_waits_with_its_table(asking: Pipe) -> None:
    """Rows are not read by a definition that nobody has approved; the request is carried out after that."""
    pipe = asking
    pipe.sql("ALTER TABLE t ADD c INT")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.t"], scope=WHOLE, wait=False)
    waits_before(pipe, "ADD c INT")
    approve(pipe)
    assert pipe.run().stopped == ()
    assert all(not one.signals for one in status(pipe.config))
    pipe.assert_equal()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_a_first_copy_needs_no_approval(asking: Pipe) -> None:
    """Nobody has seen it with other columns."""
    pipe = asking
    pipe.sql("CREATE TABLE n (id INT PRIMARY KEY)", f"INSERT INTO n VALUES {', '.join(f'({n})' for n in range(60))}")
    altered = list[Event]()

    def alter(event: Event) -> None:
        if isinstance(event, WaveCommitted) and event.table.name == "n" and not altered:
            altered.append(event)
            pipe.sql("ALTER TABLE n ADD c INT DEFAULT 5")

    assert pipe.run(observe=alter).stopped == ()
    pipe.assert_equal()
