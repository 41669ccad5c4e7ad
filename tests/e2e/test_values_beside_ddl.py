"""A value that stops one table, and DDL of another one in the same stretch of the binlog: only the one table stops."""

import pytest

from lakeingest.commands.status import status
from lakeingest.errors import LakeIngestError, UnsupportedValue
from lakeingest.pipeline.binlog import ingest
from tests.e2e.pipe import Pipe
from tests.e2e.test_follow import follow_while, shown

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.any_format,
    pytest.mark.mysql,
    pytest.mark.spark,
    pytest.mark.long("the same on other servers", only=("MariaDB 11.4", "MariaDB 10.11")),
]

ZERO = "INSERT INTO a VALUES (2, 0)"
# What follows the value, and the columns that b has then
DDL = {
    "lift": ("ALTER TABLE b ADD w INT", "(2, 2, 2)"),
    "truncate": ("TRUNCATE TABLE b", "(2, 2)"),
    "barrier": ("ALTER TABLE b DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "(2, 2)"),
    "two": ("ALTER TABLE a ADD w INT, ALGORITHM = COPY", "(2, 2)"),
}


@pytest.fixture
def market(any_pipe: Pipe) -> Pipe:
    """Three tables that are copied; sessions of the source take zero dates."""
    any_pipe.sql(
        "SET SESSION sql_mode = ''",
        "CREATE TABLE a (id INT PRIMARY KEY, d DATETIME)",
        "INSERT INTO a VALUES (1, '2020-01-01')",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in ("b", "c")),
        *(f"INSERT INTO {name} VALUES (1, 1)" for name in ("b", "c")),
    )
    any_pipe.run()
    return any_pipe


def states(pipe: Pipe) -> dict[str, str]:
    """Why each table has stopped, by its name; empty where it has not."""
    found = status(pipe.config, [])
    return {one.table.name: one.stopped.error if one.stopped else "" for one in found}


def run_that_stops_a(pipe: Pipe, *tables: str) -> None:
    """A run at whose end a has stopped, and b and c are equal to the source."""
    with pytest.raises(UnsupportedValue, match=r"\.a .*column d"):
        pipe.run(*tables)
    assert states(pipe) == {"a": "UnsupportedValue", "b": "", "c": ""}
    pipe.assert_equal("b", "c")


@pytest.mark.long("whole runs")
@pytest.mark.parametrize("kind", DDL)
def test_a_value_before_ddl_of_another_table_stops_only_its_own_table(market: Pipe, kind: str) -> None:
    """However often a stretch of the binlog is read, a table is left in one place; later runs go on with the others."""
    statement, row = DDL[kind]
    market.sql(ZERO, statement, f"INSERT INTO b VALUES {row}", "INSERT INTO c VALUES (2, 2)")
    run_that_stops_a(market)
    market.sql("INSERT INTO c VALUES (3, 3)", "UPDATE b SET v = 7")
    run_that_stops_a(market)


@pytest.mark.long("whole runs")
def test_a_value_between_ddl_of_other_tables_stops_only_its_own_table(
    market: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the stretch is read by several readers, and where a run is for another table alone."""
    monkeypatch.setattr(ingest, "LEAST_BYTES", 1)
    for number in (2, 3):
        market.sql(
            f"INSERT INTO c (id, v) VALUES ({number}, 1)",
            f"ALTER TABLE c ADD w{number} INT",
            f"INSERT INTO a VALUES ({number}, 0)",
            f"ALTER TABLE b ADD w{number} INT",
            "UPDATE b SET v = v + 1",
            "FLUSH BINARY LOGS",
        )
    assert market.run("c").caught_up
    assert states(market)["a"] == "UnsupportedValue"
    run_that_stops_a(market)


@pytest.mark.long("whole runs")
def test_a_run_that_follows_stops_only_the_table_of_the_value(market: Pipe) -> None:
    """The others are published as they come, also after the DDL of one of them."""

    def work() -> None:
        market.sql(ZERO, "ALTER TABLE b ADD w INT", "INSERT INTO b VALUES (2, 2, 2)", "INSERT INTO c VALUES (2, 2)")
        for table in ("b", "c"):
            shown(market, table)

    with pytest.raises(LakeIngestError, match=r"\.a .*column d"):
        follow_while(market, work)
    market.assert_equal("b", "c")
