"""`verify` without Spark: worker processes read the files of a copy, and find what Spark finds."""

from collections.abc import Callable
from typing import Any

import pytest

from lakeingest.commands import verify as stage
from lakeingest.commands.verification import TableVerification
from lakeingest.commands.verify import compare_tables, verify
from lakeingest.config import Config
from lakeingest.demo.server import LocalServer
from lakeingest.errors import StateUnreadable
from lakeingest.pipeline.proving import comparison
from lakeingest.pipeline.proving.copy_files import CopyFiles
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.any_format, pytest.mark.mysql, pytest.mark.spark]

ROWS = 400
COLUMNS = (
    "n INT, t TINYINT, b BIT(9), flag BIT(1), d DECIMAL(20, 6), f FLOAT, g DOUBLE, s VARCHAR(40),"
    " nn VARCHAR(9) NOT NULL, c CHAR(5) COLLATE latin1_swedish_ci, x TEXT, y VARBINARY(9), z LONGBLOB, j JSON,"
    " e ENUM('a', 'b', ''),"
    " m SET('a', 'b', 'c'), dt DATETIME(6), ts TIMESTAMP(3) NULL, da DATE, ti TIME(6), ye YEAR, ge GEOMETRY,"
    " big BIGINT UNSIGNED, num DECIMAL(50, 2), vec VECTOR(2)"
)
VALUES = (
    "n, n % 100, b'101', n % 2, n / 7, n / 3, IF(n = 32, 0, -n / 3e100), CONCAT('ä', n), 'N', 'é  ', CONCAT(n, '\\n'),"
    " IF(n = 33, NULL, 0x00FF), REPEAT('z', n), JSON_OBJECT('a', n / 8, 'b', '\\n'), 'b', 'a,c',"
    " '2026-01-01 00:00:00.000001' + INTERVAL n SECOND, '2026-03-29 01:30:00', '1950-01-01' + INTERVAL n DAY,"
    " '-838:59:59', 1999, POINT(n, 2), 18446744073709551615 - n, n, STRING_TO_VECTOR(CONCAT('[-0.0,', n, ']'))"
)
# by the number of a row: what the source has instead, behind the copy's back
PLANTED = {
    1: "s = 'other'",
    2: "s = CONCAT(s, ' ')",
    3: "s = NULL",
    4: "s = ''",
    5: "g = 0",
    6: "f = 1e-45",
    7: "d = -d",
    8: "b = b'100'",
    9: "flag = NOT flag",
    10: "j = JSON_OBJECT('a', 'n')",
    11: "j = NULL",
    12: "e = ''",
    13: "m = 'a'",
    14: "dt = dt + INTERVAL 1 MICROSECOND",
    15: "ts = NULL",
    16: "da = da + INTERVAL 1 DAY",
    17: "ti = '00:00:00.000001'",
    18: "ye = NULL",
    19: "ge = POINT(1, 1)",
    20: "big = 0",
    21: "num = -1",
    22: "y = 0x00",
    23: "y = ''",
    24: "z = NULL",
    25: "vec = STRING_TO_VECTOR('[0, 25]')",
    26: "nn = ''",
    27: "c = 'e'",
    28: "x = CONCAT(n, '\\n', n)",
    29: "t = NULL",
    30: "s = 'ä31', n = 31",  # another row's values
    32: "g = -0e0",
    33: "y = ''",
}
# columns of a key, how rows are made from a number, and the names of the key
KEYS = {
    "signed": ("id INT", "n - 200", "id"),
    "two": ("a INT, id BIGINT UNSIGNED", "n % 10 - 3, 18446744073709551615 - n DIV 10", "id, a"),
    "unsigned": ("id BIGINT UNSIGNED", "18446744073709551615 - n", "id"),
    "collated": ("id VARCHAR(20)", "CONCAT(IF(n % 2, 'k', 'Ä'), n)", "id"),
    "moment": ("id DATETIME(6)", "'2026-01-01' + INTERVAL n MICROSECOND", "id"),
}


@pytest.fixture
def pipe_of(
    pipe_on: Callable[..., Pipe], mysql_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Pipe]:
    """Call it with options of tables: a pipeline whose chunks have 50 rows, or 10 if they are buckets."""
    monkeypatch.setattr(comparison, "CHUNK_ROWS", 50)
    monkeypatch.setattr(comparison, "FINEST_ROWS", 10)
    return lambda **options: pipe_on(mysql_server, **options)


@pytest.fixture
def by_files(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each comparison of files, whether all files could be read without Spark."""
    seen: list[bool] = []
    sums_beside = CopyFiles.sums_beside

    def observed(*arguments: Any) -> Any:
        result: Any = sums_beside(*arguments)
        seen.append(result[1] is not None)
        return result

    monkeypatch.setattr(CopyFiles, "sums_beside", observed)
    return seen


def copied(pipe: Pipe, key: str) -> None:
    """A copied table of every type, some of whose rows were merged and deleted after the copy."""
    columns, values, names = KEYS[key]
    pipe.sql(
        "CREATE TABLE numbers (n INT PRIMARY KEY)",
        "INSERT INTO numbers VALUES " + ", ".join(f"({number})" for number in range(1, ROWS + 1)),
        f"CREATE TABLE t ({columns}, {COLUMNS}, PRIMARY KEY ({names}))",
        f"INSERT INTO t SELECT {values}, {VALUES} FROM numbers",
    )
    pipe.run("t")
    pipe.sql("DELETE FROM t WHERE n % 50 = 49", "UPDATE t SET x = 'merged' WHERE n % 50 = 48")
    pipe.run("t")


def compared(pipe: Pipe) -> TableVerification:
    """One comparison of the table."""
    [result] = compare_tables(pipe.config, [f"{pipe.database}.t"], pipe.spark)
    return result


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.long("whole runs and Spark; a table is compared by its files in every run")
def test_files_and_spark_name_the_same_keys(
    pipe_of: Callable[..., Pipe], key: str, by_files: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows of every type: equal ones, and then planted differences, each in another column."""
    pipe = pipe_of(deletes="soft" if key == "signed" else "hard")
    copied(pipe, key)
    equal = compared(pipe)
    assert equal.equal
    assert equal.source.rows == ROWS - ROWS // 50
    _, values, _ = KEYS[key]
    pipe.unlogged(
        *(f"UPDATE t SET {change} WHERE n = {number}" for number, change in PLANTED.items()),
        "DELETE FROM t WHERE n = 40",
        "INSERT INTO numbers VALUES (1000)",
        f"INSERT INTO t SELECT {values}, {VALUES} FROM numbers WHERE n = 1000",
    )
    found = compared(pipe)
    assert by_files == [True] * 3  # the second comparison was made twice
    monkeypatch.setattr(stage, "runs_here", lambda *_: False)
    by_spark = compared(pipe)
    assert len(by_files) == 3
    assert found.differences == by_spark.differences
    assert (found.source, found.target) == (by_spark.source, by_spark.target)
    assert len(found.differences) == len(PLANTED) + 2
    assert (equal.source, equal.target) == (found.target, by_spark.target)


def test_an_equal_table_is_compared_without_spark(
    pipe_of: Callable[..., Pipe], by_files: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session is opened, and worker processes read the files."""
    pipe = pipe_of()
    copied(pipe, "signed")

    def refuse(_: Config) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(stage, "open_session", refuse)
    assert verify(pipe.config, [f"{pipe.database}.t"]).equal
    assert by_files == [True]


@pytest.mark.long("whole runs")
def test_a_file_that_only_spark_can_read_is_read_by_spark(
    pipe_of: Callable[..., Pipe], by_files: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the same."""
    pipe = pipe_of()
    copied(pipe, "signed")

    def fail(*_: object) -> None:
        raise StateUnreadable("another form")

    monkeypatch.setattr("lakeingest.pipeline.proving.copy_files.FileSums.run", fail)
    assert compared(pipe).equal
    assert by_files == [False]
