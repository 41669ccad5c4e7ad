"""Columns that are renamed beside DDL that no copy can follow: the copy's columns are renamed, too."""

from collections.abc import Callable, Sequence

import pytest

from lakeingest.demo.flavor import MARIADB_11_4
from lakeingest.demo.server import LocalServer
from lakeingest.pipeline.events import StartedOver
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown
from tests.e2e.test_schema_changes import columns

pytestmark = [pytest.mark.e2e, pytest.mark.formats, pytest.mark.mysql, pytest.mark.spark]

COLUMNS = "id INT PRIMARY KEY, v INT NOT NULL, bt INT, d INT, f INT, e ENUM('x','y')"
ROWS = ", ".join(f"({number}, {number}, 1, {number}0, {number}00, 'x')" for number in range(9))
ORDER = "ALTER TABLE {t} MODIFY e ENUM('y','x')"
RENAME = "ALTER TABLE {t} DROP COLUMN bt, RENAME COLUMN d TO dd"
# The statements, and which columns of before those of now are, where the names differ; '' is new
CASES: dict[str, tuple[Sequence[str], dict[str, str]]] = {
    "earlier": ((RENAME, ORDER), {"dd": "d"}),
    "after": ((ORDER, RENAME), {"dd": "d"}),
    "within": (("ALTER TABLE {t} MODIFY e ENUM('y','x'), RENAME COLUMN d TO dd, DROP bt",), {"dd": "d"}),
    "beside": (
        ("ALTER TABLE {t} CONVERT TO CHARACTER SET latin1, CHANGE d dd INT, RENAME COLUMN f TO g, DROP bt",),
        {"dd": "d", "g": "f"},
    ),
    "a_chain": (
        (
            "ALTER TABLE {t} RENAME COLUMN d TO d1",
            ORDER,
            "ALTER TABLE {t} CHANGE d1 d2 INT FIRST",
            "ALTER TABLE {t} RENAME COLUMN d2 TO dd, DROP bt",
        ),
        {"dd": "d"},
    ),
    "exchanged": ((ORDER, "ALTER TABLE {t} RENAME COLUMN d TO f, RENAME COLUMN f TO d, DROP bt"), {"f": "d", "d": "f"}),
    "exchanged_in_place": (
        (ORDER, "ALTER TABLE {t} CHANGE d f INT AFTER v, CHANGE f d INT AFTER v, DROP bt"),
        {"f": "d", "d": "f"},
    ),
    "used_again": (
        ("ALTER TABLE {t} DROP COLUMN f, RENAME COLUMN d TO f, ADD d INT DEFAULT 3, DROP bt", ORDER),
        {"f": "d", "d": ""},
    ),
    "added_again": (
        (ORDER, "ALTER TABLE {t} DROP COLUMN d, DROP bt", "ALTER TABLE {t} ADD d INT DEFAULT 4"),
        {"d": ""},
    ),
    "another_key": (
        ("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (v), RENAME COLUMN d TO dd, DROP bt",),
        {"dd": "d"},
    ),
    "of_the_key": ((ORDER, "ALTER TABLE {t} CHANGE id no INT NOT NULL, DROP bt"), {"no": "id"}),
}


def copied(pipe: Pipe, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Tables that are copied; their columns."""
    for name in names:
        pipe.sql(f"CREATE TABLE {name} ({COLUMNS})", f"INSERT INTO {name} VALUES {ROWS}")
    pipe.run()
    pipe.events.clear()
    return {name: columns(pipe, name) for name in names}


def alter(pipe: Pipe, name: str) -> None:
    """The DDL of a case, and changes before and after it."""
    pipe.sql(f"UPDATE {name} SET d = 50, f = 70 WHERE v = 3", f"DELETE FROM {name} WHERE v = 4")
    pipe.sql(*(statement.format(t=name) for statement in CASES[name][0]), f"DELETE FROM {name} WHERE v = 5")


def assert_renamed(pipe: Pipe, name: str, before: dict[str, int]) -> None:
    """A column of the copy has the field id of the column that it was; one that was renamed is not there any more."""
    now, renamed = columns(pipe, name), CASES[name][1]
    for column, number in now.items():
        if column == "bt":  # dropped, and kept as NULL
            continue
        was = renamed.get(column, column)
        assert was == "" or number == before[was], f"{name}.{column}"
        assert was or number == 0 or number not in before.values(), f"{name}.{column}"
    gone = set(renamed.values()) - set(renamed) - {""}
    assert gone.isdisjoint(now), name


@pytest.mark.parametrize("names", [("after", "exchanged", "used_again"), tuple(CASES)], ids=["few", "all"])
@pytest.mark.long("several tables in three runs each")
def test_a_column_that_is_renamed_at_a_barrier_stays_the_same_column(pipe: Pipe, names: Sequence[str]) -> None:
    """Before it, within it and after it, in one run; whether the rows are compared or all are copied again."""
    before = copied(pipe, names)
    for name in names:
        alter(pipe, name)
    assert pipe.run().stopped == ()
    assert {one.table.name for one in pipe.seen(StartedOver) if isinstance(one, StartedOver)} == set(names)
    pipe.assert_equal(*names)
    for name in names:
        assert_renamed(pipe, name, before[name])
        pipe.sql(f"DELETE FROM {name} LIMIT 1")
    assert pipe.run().stopped == ()
    pipe.assert_equal(*names)


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_so_it_is_on_mariadb(pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer]) -> None:
    """All cases."""
    pipe = pipe_on(server_of(MARIADB_11_4, server_id="203"))
    before = copied(pipe, tuple(CASES))
    for name in CASES:
        alter(pipe, name)
    assert pipe.run().stopped == ()
    pipe.assert_equal(*CASES)
    for name in CASES:
        assert_renamed(pipe, name, before[name])


@pytest.mark.long("several runs")
def test_so_it_is_over_several_runs_and_while_the_table_is_followed(pipe: Pipe) -> None:
    """The barrier and the rename come one after the other."""
    before = copied(pipe, ("after", "earlier"))
    for name in before:
        for statement in CASES[name][0]:
            pipe.sql(statement.format(t=name), f"DELETE FROM {name} LIMIT 1")
            assert pipe.run().stopped == ()
        assert_renamed(pipe, name, before[name])
    pipe.assert_equal(*before)

    followed = copied(pipe, ("exchanged",))

    def change(_: object = None) -> None:
        alter(pipe, "exchanged")
        shown(pipe, "exchanged")

    follow_while(pipe, change)
    pipe.assert_equal("exchanged")
    assert_renamed(pipe, "exchanged", followed["exchanged"])
