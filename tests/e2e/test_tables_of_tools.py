"""`tables.startup: adopt` on tables that tools really wrote: Spark's JDBC, Flink CDC, SeaTunnel, dlt and ingestr.

Each tool copies a table from a running source, with those columns that it copies right: only the rows that differ are
written. Spark's JDBC also copies one of all common types: the test knows which of its columns get another type or other
values, as the page says.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakeingest.commands.check import check
from lakeingest.commands.plan import TAKEN_OVER, plan
from lakeingest.commands.status import status
from lakeingest.demo.flavor import MARIADB_11_4, MYSQL, Flavor
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded, PreflightFailed
from lakeingest.files.local import Local
from tests.e2e.other_tools import adopting, name_of, namespace, snapshots, write
from tests.e2e.pipe import Pipe
from tests.e2e.test_taken_over import assert_same, written
from tests.lake.shown import catalog_of
from tests.servers import pinned, tools
from tests.servers.debezium import can_compile
from tests.servers.tools import Running, Written

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.local("the tools write into a folder of this machine"),
    pytest.mark.mysql,
    pytest.mark.spark,
]

NEEDS_JAVAC = pytest.mark.skipif(not can_compile(), reason="needs a Java with a compiler")
ROWS = 30
# By column: its type in MySQL, in Flink, and how the value of row `n` is written
COLUMNS = {
    "id": ("INT PRIMARY KEY", "INT NOT NULL", "{n}"),
    "tiny": ("TINYINT", "TINYINT", "-{n}"),
    "flag": ("TINYINT(1)", "BOOLEAN", "{n} % 2"),
    "small": ("SMALLINT UNSIGNED", "INT", "65535 - {n}"),
    "medium": ("MEDIUMINT", "INT", "-8388608 + {n}"),
    "whole": ("INT", "INT", "IF({n} % 5, {n}, NULL)"),
    "counted": ("INT UNSIGNED", "BIGINT", "4294967295 - {n}"),
    "big": ("BIGINT", "BIGINT", "-9223372036854775808 + {n}"),
    "huge": ("BIGINT UNSIGNED", "DECIMAL(20, 0)", "18446744073709551615 - {n}"),
    "price": ("DECIMAL(12,2)", "DECIMAL(12, 2)", "{n} / 8"),
    "ratio": ("FLOAT", "FLOAT", "{n} / 3"),
    "exact": ("DOUBLE", "DOUBLE", "{n} / 7"),
    "bit": ("BIT(1)", "BOOLEAN", "{n} % 2"),
    "bits": ("BIT(10)", "BYTES", "512 + {n}"),
    "name": ("VARCHAR(40)", "STRING", "CONCAT('Zoë 鱼 ', {n})"),
    "note": ("TEXT", "STRING", "IF({n} % 3, REPEAT('ü', {n}), NULL)"),
    "kind": ("ENUM('a','bcd')", "STRING", "1 + {n} % 2"),
    "tags": ("SET('x','yz')", "STRING", "{n} % 4"),
    "doc": ("JSON", "STRING", "JSON_OBJECT('a', {n}, 'b', JSON_ARRAY(1, 2))"),
    "code": ("BINARY(4)", "BYTES", "'ab'"),
    "raw": ("VARBINARY(20)", "BYTES", "UNHEX(CONCAT('00FF', LPAD({n}, 2, '0')))"),
    "pic": ("BLOB", "BYTES", "UNHEX('FFD8')"),
    "day": ("DATE", "DATE", "'2026-01-01' + INTERVAL {n} DAY"),
    "at": ("DATETIME(6)", "TIMESTAMP(6)", "'2026-01-01 03:04:05.123456' + INTERVAL {n} HOUR"),
    "seen": ("TIMESTAMP(6) NULL", "TIMESTAMP_LTZ(6)", "'2026-01-01 03:04:05.123456' + INTERVAL {n} HOUR"),
    "clock": ("TIME", "TIME(0)", "SEC_TO_TIME({n} * 100)"),
    "year": ("YEAR", "INT", "2000 + {n}"),
    "CustomerNo": ("INT", "INT", "{n} * 3"),
}


@dataclass(frozen=True)
class Tool:
    """A tool, and what it makes of the columns.

    `copy`: lets it copy a table with these columns, and calls the last argument while it follows, if it does.
    `refuses`: columns with which it does not copy a table. `differing`: the types that it gives to columns, where they
    have no place in the copy. `wrong`: columns with the type of the copy, in which it writes some other values.
    `options`: of the tables, so that more columns fit. `drop`: columns that only the tool has.
    """

    name: str
    copy: Callable[[Pipe, LocalServer, str, list[str], Path, Callable[[Running], None]], None]
    refuses: tuple[str, ...] = ()
    differing: Mapping[str, str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def every(self) -> list[str]:
        """The columns that it copies."""
        return [name for name in COLUMNS if name not in self.refuses]

    @property
    def right(self) -> list[str]:
        """The columns that it copies right."""
        return [name for name in self.every if name not in {*self.differing, *self.wrong}]


def values(columns: list[str], number: int) -> str:
    """The values of the row with this number, for INSERT."""
    return ", ".join(COLUMNS[name][2].format(n=number) for name in columns)


def create(pipe: Pipe, table: str, columns: list[str]) -> None:
    """A table with these columns, and its rows."""
    types = ", ".join(f"`{name}` {COLUMNS[name][0]}" for name in columns)
    rows = ", ".join(f"({values(columns, number)})" for number in range(ROWS))
    tools.account(pipe.sql)
    pipe.sql("SET time_zone = '+00:00'", f"CREATE TABLE {table} ({types})", f"INSERT INTO {table} VALUES {rows}")


def change(pipe: Pipe, table: str, columns: list[str], first: int) -> int:
    """Insert, update, move and delete rows; the last new row has the greatest key, which is returned."""
    last = first + 70
    new = ", ".join(f"({values(columns, number)})" for number in (first, first + 1))
    pipe.sql(
        f"UPDATE {table} SET name = 'changed {first}', whole = NULL WHERE id IN (2, 3, {first - 1})",
        f"DELETE FROM {table} WHERE id IN (4, {first % 11 + 5})",
        f"UPDATE {table} SET id = id + 50 WHERE id = {first % 7 + 17}",
        f"INSERT INTO {table} VALUES {new}",
        f"INSERT INTO {table} VALUES ({values(columns, last)})",
    )
    return last


def rows_of(pipe: Pipe, table: str) -> dict[object, object]:
    """The rows of the source, by their keys."""
    with pipe.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return {row[0]: row for row in cursor.fetchall()}


def register(pipe: Pipe, table: str, made: Written) -> None:
    """Give a table of a folder to the catalog, as the page says."""
    namespace(pipe)
    assert made.metadata is not None
    with catalog_of(pipe.config.target) as catalog:
        catalog.register_table(f"{pipe.database}.{table}", str(made.metadata))


def wrong_columns(pipe: Pipe, table: str, version: int, changed: list[object]) -> list[str]:
    """The columns in which a version of the table differs from the copy as it is now, in rows that have not changed."""
    now, then = (f"SELECT * FROM {name_of(pipe, table)}{at}" for at in ("", f" VERSION AS OF {version}"))
    both = {*pipe.spark.sql(now).columns} & {*pipe.spark.sql(then).columns}
    differ = ", ".join(f"SUM(IF(a.`{name}` <=> b.`{name}`, 0, 1)) `{name}`" for name in both)
    keys = ", ".join(map(str, changed))
    [row] = pipe.spark.sql(
        f"SELECT {differ} FROM ({now}) a JOIN ({then}) b ON a.id = b.id WHERE a.id NOT IN ({keys})"
    ).collect()
    return [name for name, count in row.asDict().items() if count]


def available_jars(name: str, *wanted: tuple[str, str, str]) -> list[Path]:
    """Jars; without them the test is skipped."""
    try:
        return pinned.jars(name, wanted)
    except OperatorNeeded as error:
        pytest.skip(str(error))


def by_spark(
    pipe: Pipe, server: LocalServer, table: str, _columns: list[str], _folder: Path, _while: Callable[[Running], None]
) -> None:
    """Spark's reader of JDBC, in two partitions, into the catalog."""
    [jar] = available_jars("connector-j", ("com.mysql", "mysql-connector-j", "8.4.0"))
    pipe.spark.sql(f"ADD JAR '{jar}'")
    url = f"jdbc:mysql://{server.host}:{server.port}/{pipe.database}?useSSL=false&allowPublicKeyRetrieval=true"
    account = {"user": tools.ACCOUNT, "driver": "com.mysql.cj.jdbc.Driver"}
    url += "&connectionTimeZone=UTC"
    write(pipe, table, pipe.spark.read.jdbc(url, table, "id", 0, ROWS, 2, properties=account))


def by_flink(
    pipe: Pipe,
    server: LocalServer,
    table: str,
    columns: list[str],
    folder: Path,
    meanwhile: Callable[[Running], None],
    *,
    upsert: bool,
) -> None:
    """Flink CDC, which follows."""
    types = {name: COLUMNS[name][1] for name in columns}
    with tools.flink_cdc(server, pipe.database, table, folder, types, upsert=upsert) as running:
        meanwhile(running)
    register(pipe, table, running.written)


def by_seatunnel(
    pipe: Pipe, server: LocalServer, table: str, _columns: list[str], folder: Path, meanwhile: Callable[[Running], None]
) -> None:
    """SeaTunnel, which follows."""
    with tools.seatunnel(server, pipe.database, table, folder) as running:
        meanwhile(running)
    register(pipe, table, running.written)


def by_dlt(
    pipe: Pipe, server: LocalServer, table: str, _columns: list[str], folder: Path, _while: Callable[[Running], None]
) -> None:
    """The program dlt."""
    register(pipe, table, tools.dlt(server, pipe.database, table, folder))


def by_ingestr(
    pipe: Pipe, server: LocalServer, table: str, _columns: list[str], folder: Path, _while: Callable[[Running], None]
) -> None:
    """The program ingestr."""
    register(pipe, table, tools.ingestr(server, pipe.database, table, folder))


BOOLEANS = {"types": {"tinyint1": "boolean"}}
INTEGERS = ("id", "tiny", "flag", "small", "medium", "whole", "year", "CustomerNo")
RENAMED = {"CustomerNo": "customer_no"}
SPARK = Tool(
    "Spark JDBC",
    by_spark,
    differing={"at": "timestamptz", "clock": "timestamptz", "year": "date", "ratio": "double", "bits": "long"},
    wrong=("kind", "tags"),  # padded with spaces
    options=BOOLEANS,
)
FLINK = Tool(
    "Flink CDC, whole rows",
    partial(by_flink, upsert=False),
    differing={"clock": "time"},
    wrong=("bits", "doc"),
    options=BOOLEANS,
)
FLINK_UPSERTS = replace(FLINK, name="Flink CDC, upserts", copy=partial(by_flink, upsert=True))
# MariaDB's texts of FLOAT, which its snapshot reads, have six digits
FLINK_OF_MARIADB = replace(FLINK_UPSERTS, name="Flink CDC, upserts of MariaDB", wrong=("bits", "doc", "ratio"))
SEATUNNEL = Tool(
    "SeaTunnel",
    by_seatunnel,
    refuses=("tags",),
    differing={"at": "timestamptz", "clock": "time"},
    wrong=("bits", "doc"),
    options=BOOLEANS,
)
DLT = Tool(
    "dlt",
    by_dlt,
    refuses=("tags", "huge"),
    differing={
        "ratio": "double",
        "exact": "decimal(38, 9)",
        "bit": "long",
        "bits": "long",
        "seen": "timestamp",
        "clock": "time",
    },
    wrong=("doc",),
    options={"columns": {"cast": dict.fromkeys(INTEGERS, "bigint"), "rename": RENAMED}},
    drop=("_dlt_*",),
)
INGESTR = Tool(
    "ingestr",
    by_ingestr,
    differing={"bit": "binary", "clock": "time"},
    options={"columns": {"rename": RENAMED}},
    drop=("_ingestr_*",),
)
ALL = [
    pytest.param(MYSQL, SPARK, id="Spark JDBC"),
    pytest.param(MYSQL, FLINK, id="Flink CDC, whole rows", marks=NEEDS_JAVAC),
    pytest.param(MYSQL, FLINK_UPSERTS, id="Flink CDC, upserts", marks=NEEDS_JAVAC),
    pytest.param(MARIADB_11_4, FLINK_OF_MARIADB, id="Flink CDC, upserts of MariaDB", marks=NEEDS_JAVAC),
    pytest.param(MYSQL, SEATUNNEL, id="SeaTunnel"),
    pytest.param(MYSQL, DLT, id="dlt"),
    pytest.param(MYSQL, INGESTR, id="ingestr"),
]


@pytest.fixture
def folder(tmp_path: Local) -> Path:
    """Where a tool works."""
    made = Path(tmp_path) / "tool"
    made.mkdir(parents=True)
    return made


def copy_and_follow(tool: Tool, pipe: Pipe, server: LocalServer, table: str, columns: list[str], folder: Path) -> None:
    """Let the tool copy a new table, and follow a change of it if it can; afterwards the tool is off."""
    create(pipe, table, columns)

    def follow(running: Running) -> None:
        running.await_key(ROWS - 1)
        running.await_key(change(pipe, table, columns, 30))

    tool.copy(pipe, server, table, columns, folder, follow)


@pytest.mark.long("starts tools of others, and fetches them the first time")
@pytest.mark.parametrize(("flavor", "tool"), ALL)
def test_of_what_a_tool_copied_right_nothing_is_written(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], folder: Path, flavor: Flavor, tool: Tool
) -> None:
    """Only rows that have changed since it was switched off; then the copy goes on."""
    server = server_of(flavor)
    pipe = pipe_on(server, chunk_rows=10)
    copy_and_follow(tool, pipe, server, "orders", tool.right, folder)
    before = rows_of(pipe, "orders")
    change(pipe, "orders", tool.right, 40)
    after = rows_of(pipe, "orders")
    pipe.begin_file()
    adopting(pipe, stopped=tool.name, drop=tool.drop, **tool.options)
    [planned] = plan(pipe.config)
    assert (planned.state, planned.reasons) == (TAKEN_OVER, ())
    version = snapshots(pipe, "orders")[-1].snapshot_id
    pipe.run()
    assert_same(pipe)
    changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
    assert written(pipe) == len(changed), wrong_columns(pipe, "orders", version, changed)
    change(pipe, "orders", tool.right, 50)
    pipe.run()
    assert_same(pipe)
    assert [one.state for one in status(pipe.config)] == ["published"]


@pytest.mark.long("starts tools of others, and fetches them the first time")
@pytest.mark.parametrize(("flavor", "tool"), ALL[:1])
def test_columns_of_other_types_are_named_and_taken_again(
    pipe_on: Callable[..., Pipe], server_of: Callable[..., LocalServer], folder: Path, flavor: Flavor, tool: Tool
) -> None:
    """A table of all common types that the tool copies. Wrong values of columns that stay are written anew."""
    server = server_of(flavor)
    pipe = pipe_on(server, chunk_rows=10)
    copy_and_follow(tool, pipe, server, "everything", tool.every, folder)
    change(pipe, "everything", tool.every, 40)
    adopting(pipe, stopped=tool.name, drop=tool.drop, **tool.options)
    assert differing_columns(pipe) == tool.differing
    adopting(pipe, stopped=tool.name, drop=[*tool.drop, *tool.differing], **tool.options)
    pipe.run()
    assert_same(pipe, "everything")
    change(pipe, "everything", tool.every, 50)
    pipe.run()
    assert_same(pipe, "everything")


def differing_columns(pipe: Pipe) -> dict[str, str]:
    """The types that the refusal of the table names, by column; the run takes nothing over."""
    [finding] = [one.finding for one in check(pipe.config).problems if one.finding]
    with pytest.raises(PreflightFailed, match="is a table of another tool") as failed:
        pipe.run()
    assert finding in str(failed.value)
    return dict(re.findall(r"(?:: |; )(\w+) is ([\w(), ]+), and the copy's", finding))
