"""Forms of types that the user chose, from pipeline.yml to the lake: planned, copied, verified and counted."""

import datetime as dt

import pytest

from lakeingest.commands.plan import plan
from lakeingest.commands.status import status
from lakeingest.config.tables import TableOptions
from lakeingest.errors import SchemaChanged
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

TABLE = (
    "CREATE TABLE {} (id INT PRIMARY KEY, d DATE NOT NULL, at DATETIME(3), s TIMESTAMP NULL, t TIME(1), b TINYINT(1),"
    " g POINT)"
)
ZEROS = "('0000-00-00', '2024-05-00 01:02:03.5', 0, '-1:00:00.5', 1, ST_GeomFromText('POINT(2 1)', 4326))"
USUAL = "('2024-02-29', '2024-05-01', '2024-05-01', '10:00', 0, POINT(1, 2))"


def choose(pipe: Pipe, table: str, **types: object) -> None:
    """Let the config say so of a table."""
    options = dict(pipe.config.tables.options)
    options[f"*.{table}"] = TableOptions.model_validate({"types": types})
    tables = pipe.config.tables.model_copy(update={"options": options})
    pipe.config = pipe.config.model_copy(update={"tables": tables})


@pytest.mark.long("another server of what runs on MySQL", only=("MariaDB 11.4", "MariaDB 10.11"))
def test_what_was_chosen_is_planned_copied_verified_and_counted(any_pipe: Pipe) -> None:
    """Zero dates as NULL and as text, times in microseconds, booleans, SRIDs: by chunks and by the binlog."""
    pipe = any_pipe
    pipe.sql("SET sql_mode = ''")
    for name in ("nulls", "texts"):
        pipe.sql(TABLE.format(name))
        pipe.sql(*(f"INSERT INTO {name} VALUES ({n}, {(ZEROS if n % 3 else USUAL)[1:]}" for n in range(15)))
    choose(pipe, "nulls", zero_dates=None, tinyint1="boolean")
    choose(pipe, "texts", zero_dates="string", time="micros", geometry="ewkb")
    plans = {one.table.name: one for one in plan(pipe.config)}
    assert plans["nulls"].lossy == tuple(f"{name}: zero and partial dates are NULL" for name in ("d", "at", "s"))
    assert plans["texts"].lossy == ()
    assert [one.lake_type for one in plans["texts"].columns] == [
        "int",
        "string",
        "string",
        "string",
        "long",
        "int",
        "binary",
    ]
    pipe.run()
    pipe.assert_equal()
    assert {one.table.name: one.nulled for one in status(pipe.config)} == {"nulls": 30, "texts": 0}
    for name in ("nulls", "texts"):
        pipe.sql(f"INSERT INTO {name} VALUES (50, {ZEROS[1:]}", f"UPDATE {name} SET d = 0, s = 0 WHERE id = 0")
        pipe.sql(f"DELETE FROM {name} WHERE id = 1")
    pipe.run()
    pipe.assert_equal()
    assert {one.table.name: one.nulled for one in status(pipe.config)} == {"nulls": 35, "texts": 0}
    found = {row[0]: row[1:] for row in pipe.rows("nulls")}
    assert found[50][:5] == (None, None, None, "-01:00:00.5", True)
    assert found[3][:3] == (dt.date(2024, 2, 29), dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 1))
    texts = {row[0]: row[1:] for row in pipe.rows("texts")}
    assert texts[50][:5] == ("0000-00-00", "2024-05-00 01:02:03.500", "0000-00-00 00:00:00", -3_600_500_000, 1)


def test_another_choice_for_a_table_that_is_copied_stops_the_run(pipe: Pipe) -> None:
    """It has to be copied again: its rows are of the first one."""
    pipe.sql(TABLE.format("t"), f"INSERT INTO t VALUES (1, {USUAL[1:]}")
    pipe.run()
    choose(pipe, "t", zero_dates="string")
    with pytest.raises(SchemaChanged, match=r"\.t: DDL or tables\.options changed its definition since"):
        pipe.run()


@pytest.mark.long("a variant of an end-to-end case that every run has")
def test_virtual_columns_may_be_left_out(any_pipe: Pipe) -> None:
    """Wherever they stand, whatever their types; those that are stored stay."""
    any_pipe.sql(
        "CREATE TABLE t (long_text TEXT AS (REPEAT(s, 3)) VIRTUAL, id INT PRIMARY KEY, n INT AS (id * 2) VIRTUAL,"
        " s VARCHAR(9), kept INT AS (id + 1) STORED, d DATE AS ('2024-01-01') VIRTUAL)",
        f"INSERT INTO t (id, s) VALUES {', '.join(f'({n}, {n})' for n in range(25))}",
    )
    choose(any_pipe, "t", virtual="skip")
    [planned] = plan(any_pipe.config)
    assert planned.lossy == ("long_text: left out", "n: left out", "d: left out")
    assert [column.name for column in planned.columns] == ["id", "s", "kept"]
    any_pipe.run()
    any_pipe.assert_equal()
    any_pipe.sql(
        "UPDATE t SET s = 'new' WHERE id < 5", "DELETE FROM t WHERE id = 7", "UPDATE t SET id = 90 WHERE id = 9"
    )
    any_pipe.run()
    any_pipe.assert_equal()
    assert any_pipe.rows("t")[:2] == [(0, "new", 1), (1, "new", 2)]
