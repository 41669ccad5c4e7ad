"""Changes by foreign keys that the source does not log are read again, and each copy is exact."""

from collections.abc import Callable

import pytest

from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import RowsReread, StartedOver
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]


@pytest.fixture
def silent(mysql_server_with: Callable[..., LocalServer]) -> LocalServer:
    """A server that does not log what foreign keys change."""
    return mysql_server_with(server_id="97", innodb_native_foreign_keys="ON")


def family(pipe: Pipe) -> None:
    """A parent, children that go with it or forget it or follow it, and grandchildren."""
    pipe.sql(
        "CREATE TABLE parents (id INT PRIMARY KEY, code INT UNIQUE, v INT)",
        "CREATE TABLE going (id INT PRIMARY KEY, p INT, v INT,"
        " FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE forgetting (id INT PRIMARY KEY, c INT, v INT,"
        " FOREIGN KEY (c) REFERENCES parents (code) ON DELETE SET NULL ON UPDATE SET NULL)",
        "CREATE TABLE grands (id INT PRIMARY KEY, g INT, v INT,"
        " FOREIGN KEY (g) REFERENCES going (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO parents VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0), (4, 40, 0)",
        "INSERT INTO going SELECT 10 * a.id + b.id, a.id, 0 FROM parents a, parents b",
        "INSERT INTO forgetting SELECT 10 * a.id + b.id, a.code, 0 FROM parents a, parents b",
        "INSERT INTO grands SELECT 10 * g.id + p.id, g.id, 0 FROM going g, parents p WHERE p.id < 3",
    )


def compared(pipe: Pipe) -> int:
    """How often all rows of a table were compared."""
    return len(pipe.seen(StartedOver))


def reread(pipe: Pipe) -> set[str]:
    """The tables of which rows were read again."""
    return {one.table.name for one in pipe.seen(RowsReread) if isinstance(one, RowsReread)}


@pytest.mark.formats
def test_children_and_their_children_are_as_the_source_has_them(
    pipe_on: Callable[..., Pipe], silent: LocalServer
) -> None:
    """Rows that go, forget or follow; later logged changes of the same rows come on top. Nothing else is read."""
    pipe = pipe_on(silent)
    family(pipe)
    pipe.run()
    pipe.assert_equal()
    pipe.sql(
        "DELETE FROM parents WHERE id = 1",
        "UPDATE parents SET id = 5, code = 50 WHERE id = 2",
        "UPDATE going SET v = 7 WHERE id = 21",
        "INSERT INTO going VALUES (11, 3, 8)",
        "UPDATE forgetting SET c = 40, v = 9 WHERE id = 12",
        "INSERT INTO grands VALUES (111, 11, 3)",
    )
    pipe.run()
    pipe.assert_equal()
    assert (reread(pipe), compared(pipe)) == ({"going", "forgetting", "grands"}, 0)
    before = len(pipe.seen(RowsReread))
    pipe.sql("UPDATE parents SET v = 1", "INSERT INTO parents VALUES (9, 90, 0)", "UPDATE going SET v = 6")
    pipe.run()
    pipe.assert_equal()
    assert len(pipe.seen(RowsReread)) == before
