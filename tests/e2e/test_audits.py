"""Audits: what a commit holds is read back before readers see it. A faulty writer stops the table, and no reader."""

import pytest
from pyiceberg.table.update.snapshot import ManageSnapshots

from lakeingest.commands.signal import ask
from lakeingest.commands.status import status
from lakeingest.core.proofs import audit
from lakeingest.core.tables.schema import TableId
from lakeingest.core.waves.scope import WHOLE
from lakeingest.errors import AuditFailed, CheckFailed
from lakeingest.files import file as files
from lakeingest.files.file import state_of
from lakeingest.lake.iceberg.catalogs.catalogs import open_catalog
from lakeingest.pipeline.publishing import publish
from lakeingest.state.definition import definition
from tests.e2e.pipe import Pipe
from tests.faults.writers import FAULTS, STAGED

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

ROWS = ", ".join(f"({number}, {number}, {-number})" for number in range(60))


def copied(pipe: Pipe) -> list[tuple[object, ...]]:
    """A copied table, and changes of it that no run has seen: ten updates, a delete and two inserts."""
    pipe.sql("CREATE TABLE orders (id INT PRIMARY KEY, a INT, b INT)", f"INSERT INTO orders VALUES {ROWS}")
    pipe.run()
    seen = pipe.rows("orders")
    pipe.sql(
        "UPDATE orders SET a = a + 1000 WHERE id < 10",
        "DELETE FROM orders WHERE id = 15",
        "INSERT INTO orders VALUES (200, 1, 2), (201, 3, 4)",
    )
    return seen


def forget_staged(pipe: Pipe) -> None:
    """Take away what readers do not see: the next run merges it again."""
    if pipe.config.target.format == "hudi":
        files.delete_all([pipe.state / "staging", *(pipe.state / "staging").tree()])
        return
    # our catalog: PyIceberg's own does not write version 3
    table = open_catalog(pipe.config.target).load_table(f"{pipe.database}.orders")
    with table.transaction() as transaction:
        ManageSnapshots(transaction=transaction).remove_branch("lakeingest").commit()


@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_fault_of_a_writer_is_found_before_readers_see_it(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault on its own; the position stays, so that what is merged again without a fault is exact."""
    seen = copied(pipe)
    for put, message in FAULTS[pipe.config.target.format].values():
        with monkeypatch.context() as patch:
            put(patch)
            with pytest.raises(AuditFailed, match=message):
                pipe.run()
        forget_staged(pipe)
    assert pipe.rows("orders") == seen
    pipe.run()
    pipe.assert_equal()


@pytest.mark.long("several whole runs")
def test_a_commit_that_failed_is_not_published_later_and_a_resnapshot_mends_it(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has no fault and reads the same commit; other tables are published meanwhile."""
    pipe.sql("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1), (2)")
    seen = copied(pipe)
    pipe.sql("INSERT INTO items VALUES (3)")
    with monkeypatch.context() as patch:
        STAGED[pipe.config.target.format](patch)
        with pytest.raises(AuditFailed, match="has another value in a, b"):
            pipe.run()
    pipe.sql("INSERT INTO items VALUES (4)", "UPDATE orders SET a = 5 WHERE id = 30")
    with pytest.raises(AuditFailed, match="has another value in a, b"):
        pipe.run()
    assert pipe.rows("orders") == seen
    assert pipe.rows("items") == [(1,), (2,), (3,), (4,)]
    assert {one.stopped.error for one in status(pipe.config) if one.stopped} == {"AuditFailed"}
    ask(pipe.config, "resnapshot", [f"{pipe.database}.orders"], scope=WHOLE, wait=False)
    pipe.run()
    assert not any(one.stopped for one in status(pipe.config))
    pipe.assert_equal()


@pytest.mark.long("several whole runs")
def test_an_audit_in_full_finds_what_smaller_audits_have_missed(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is twice in an old file, in no way connected with the changes of the run."""
    copied(pipe)
    with monkeypatch.context() as patch:
        put, _ = FAULTS[pipe.config.target.format]["a doubled row"]
        put(patch)
        patch.setattr(publish, "audit", lambda *_, **__: None)
        pipe.run()
    pipe.sql("UPDATE orders SET a = 5 WHERE id = 30")
    monkeypatch.setattr(audit, "DAY", 0.0)
    # on Hudi, the count of the gate is the first to notice it
    with pytest.raises(
        CheckFailed, match=r"is there more than once .* since the last audit in full|65 rows are staged"
    ):
        pipe.run()


@pytest.mark.long("several whole runs")
def test_an_audit_in_full_is_done_once_a_day(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day after the first publish, and then a day after the last one; nothing is wrong with the copy."""
    copied(pipe)
    table = TableId(pipe.database, "orders")

    def audited_at() -> int | None:
        stored = definition(state_of(pipe.config), table)
        assert stored is not None
        return stored.audited_at

    pipe.run()
    assert audited_at() is None
    with monkeypatch.context() as patch:
        patch.setattr(audit, "DAY", 0.0)
        pipe.sql("UPDATE orders SET a = 5 WHERE id = 30")
        pipe.run()
    last = audited_at()
    assert last is not None
    pipe.sql("UPDATE orders SET a = 6 WHERE id = 30")
    pipe.run()
    assert audited_at() == last
    pipe.assert_equal()


@pytest.mark.long("rows that are read again, without a fault")
def test_rows_that_the_binlog_does_not_have_are_no_fault(pipe: Pipe) -> None:
    """A row that was read again counts, and not its older change. Changes from before DDL do not count."""
    copied(pipe)
    pipe.unlogged("UPDATE orders SET a = 77 WHERE id IN (3, 40)", "DELETE FROM orders WHERE id = 4")
    ask(pipe.config, "resnapshot", [f"{pipe.database}.orders"], scope=WHOLE, wait=False)
    pipe.sql("UPDATE orders SET b = 1 WHERE id = 50", "UPDATE orders SET id = 300 WHERE id = 51")
    pipe.run()
    pipe.assert_equal()
    pipe.sql(
        "UPDATE orders SET a = 1 WHERE id = 8",
        "ALTER TABLE orders ADD c INT NOT NULL DEFAULT 5, DROP COLUMN b",
        "UPDATE orders SET a = 2 WHERE id = 9",
    )
    pipe.run()
    pipe.assert_equal()
    pipe.sql(
        "TRUNCATE TABLE orders", "INSERT INTO orders (id, a) VALUES (8, 1), (1, 1)", "DELETE FROM orders WHERE id = 1"
    )
    pipe.run()
    pipe.assert_equal()
