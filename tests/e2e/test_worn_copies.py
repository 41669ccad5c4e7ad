"""A run tidies worn copies by itself: at its end, or between two rounds if it follows. The rows stay what they are."""

import pytest

from lakeingest.core.copies import wear
from lakeingest.core.tables.schema import TableId
from lakeingest.lake.formats import open_target
from lakeingest.lake.inventory import Inventory
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown, soon

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


def inventory(pipe: Pipe) -> Inventory:
    """The files of the copy."""
    return open_target(pipe.config).inventory(TableId(pipe.database, "t"))


def filled(pipe: Pipe) -> None:
    """A table of 60 rows with a copy."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
    pipe.sql(
        "INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT i, 0 FROM n"
    )
    pipe.run()


def test_a_run_tidies_a_worn_copy_at_its_end(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its commits have paid for it; the spool, the position and later merges go on from there."""
    filled(pipe)
    monkeypatch.setattr(wear, "LOOK_EVERY", 2)
    files = []
    for number in range(5):
        pipe.sql(f"UPDATE t SET v = v + 1 WHERE id % 5 = {number}", f"DELETE FROM t WHERE id = {number + 1}")
        pipe.run()
        files.append(inventory(pipe))
        assert len(pipe.rows("t")) == 59 - number
    assert [one.deletes for one in files].count(0) >= 2
    assert any(one.deletes for one in files)  # not each run tidies
    assert min(one.files for one in files) == 1
    pipe.assert_equal("t")


def test_a_run_that_follows_tidies_between_two_rounds(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask, and publishes go on."""
    filled(pipe)
    monkeypatch.setattr(wear, "LOOK_EVERY", 1)

    def work() -> None:
        for number in range(4):
            pipe.sql(f"UPDATE t SET v = v + 1 WHERE id % 4 = {number}")
            shown(pipe, "t")
        soon(lambda: (now := inventory(pipe)).deletes == 0 and now.files == 1)

    follow_while(pipe, work)
    assert pipe.rows("t") == [(key, 1) for key in range(1, 61)]
    pipe.assert_equal("t")
