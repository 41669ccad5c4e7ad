"""Suites that `profile` proposes, and suites on a sample of the source, on real servers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeingest.api import Pipeline
from lakeingest.commands import drawn_rows
from lakeingest.commands.check import check
from lakeingest.commands.drawn_rows import DrawnRows, draw_rows
from lakeingest.commands.profile import profile
from lakeingest.commands.suites_on_source import conditions_of, suite_conditions
from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.config.tables import TableOptions
from lakeingest.config.throttle import Throttle
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import GateFailed, Retryable, UsageError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.pipeline.events import Published
from lakeingest.quality.suites import user_suites
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ODD = "t ☃.`x'\"[*]?"  # the name of a table, and of a column of it
QUOTED = ODD.replace("`", "``")
TYPES = (
    f"CREATE TABLE `{QUOTED}` (id BIGINT UNSIGNED, `{QUOTED}` VARCHAR(20) NOT NULL, `a b` INT,"
    " `dot.ted` TINYINT NOT NULL, b1 BIT,"
    " b BIT(9), d DECIMAL(38, 20), n DECIMAL(65, 2), f FLOAT, g DOUBLE, u BIGINT UNSIGNED, c CHAR(5), x TEXT,"
    " y VARBINARY(9), z LONGBLOB, j JSON, e ENUM('a', 'b') NOT NULL, m SET('a', 'b'), dt DATETIME(6),"
    " ts TIMESTAMP(3) NULL, da DATE, ti TIME(6), ye YEAR, ge GEOMETRY, blank INT, few VARCHAR(40) COLLATE utf8mb4_bin,"
    " PRIMARY KEY (id, `dot.ted`))"
)
FIRST = (
    f"INSERT INTO `{QUOTED}` VALUES (18446744073709551615, 1, NULL, 1, b'1', b'101', 1.5, 1, 0.1, -1e-300,"
    " 18446744073709551615, 'é', 'x', 0x00FF, 0x01, '{\"a\": 1.0}', 'b', 'a,b', '0001-01-01 00:00:00.000001',"
    " '2026-03-29 01:30:00', '1583-01-01', '-838:59:59', 1999, POINT(1, 2), NULL, 'a'), (0, '', 2147483647, -128, NULL,"
    " NULL, 99999999999999999.99999999999999999999, -99999999999999999999999999999999999999999999999999999999999999.99,"
    " -3.4e38, 1.7e308, 0, NULL, NULL, NULL, NULL, NULL, 'a', '', NULL, NULL, NULL, NULL, NULL, NULL, NULL,"
    " CHAR(10, 0x1B, 0x23 USING utf8mb4))"
)


@pytest.fixture
def suites(tmp_path: Path) -> Path:
    """The folder of suites."""
    folder = tmp_path / "suites"
    folder.mkdir()
    return folder


@pytest.fixture
def pipe(pipe_on: Callable[..., Pipe], any_server: LocalServer, suites: Path) -> Pipe:
    """A pipeline with that folder."""
    pipe = pipe_on(any_server)
    pipe.config = pipe.config.model_copy(update={"quality": Quality(suites=Place.of(suites))})
    return pipe


def fill(pipe: Pipe, rows: int) -> None:
    """The table of all types, with so many rows more."""
    pipe.sql(TYPES, FIRST)
    numbers = ", ".join(
        f"({7 * n}, 'k{n}', {n % 90 or 'NULL'}, {n % 5}, {n % 2}, {n % 512}, {n}.5, {n}, {n / 3}, {n / 7}, {n}, 'c',"
        f" REPEAT('é', {n % 9}), 'y', 'z', '[]', 'a', 'b', '2026-01-01', '2026-01-01', '2026-01-01', '10:00', 2000,"
        f" POINT(1, {n}), NULL, {chr(39) + ('a', 'b', 'A ', '😀 #')[n % 4] + chr(39)})"
        for n in range(1, rows + 1)
    )
    pipe.sql(f"INSERT INTO `{QUOTED}` VALUES {numbers}", f"ANALYZE TABLE `{QUOTED}`")


def drawn(pipe: Pipe, table: str, rows: int, seed: int | None = None) -> DrawnRows:
    """Rows of a table."""
    with BinlogSource.open(pipe.config.source) as source:
        schema = source.schema(TableId(pipe.database, table), TableOptions().choices)
        return draw_rows(pipe.config, source, schema, rows, seed)


def judged(pipe: Pipe, rows: DrawnRows) -> list[Checked]:
    """What the suites in the folder say of these rows."""
    written = user_suites(pipe.config.quality, rows.schema.table)
    assert written
    return list(conditions_of(pipe.config, rows, written, pipe.spark))


@pytest.mark.parametrize("rows", [10_000, 300])
@pytest.mark.long("two suites on Spark; another test proposes one and lets its gate stop rows")
def test_a_proposed_suite_passes_on_the_rows_that_it_was_taken_from(pipe: Pipe, suites: Path, rows: int) -> None:
    """All types, NULLs, and names with spaces, dots, quotes and emoji; it is written once."""
    fill(pipe, 1_500)
    name = f"{pipe.database}.{ODD}"
    found = profile(pipe.config, name, rows, 42, write=True)
    assert found.is_whole == (rows == 10_000)
    assert found.rows == 1_502 if found.is_whole else 100 <= found.rows <= 700
    [path] = suites.iterdir()
    assert (found.path, path.read_text()) == (path, found.suite)
    assert f"{found.rows:,} rows" in found.suite.splitlines()[0]
    assert all(line.isprintable() for line in found.suite.splitlines())
    assert [(one.finding, one.name) for one in judged(pipe, drawn(pipe, ODD, rows, 42)) if one.finding] == []
    proposed = {each.column: [document["type"] for document in each.expectations] for each in found.proposals}
    assert proposed[None] == ["expect_compound_columns_to_be_unique"]
    assert proposed["few"] == ["expect_column_values_to_not_be_null", "expect_column_values_to_be_in_set"]
    assert proposed["blank"] == []
    if found.is_whole:  # a sample may have none of its NULLs
        assert "expect_column_values_to_not_be_null" not in proposed["a b"]
    assert len(found.to_pandas()) == len(found.proposals) == 27
    assert "<table" in found._repr_html_()
    assert json.loads(json.dumps(found.to_json(), default=str))["seed"] == 42
    with pytest.raises(UsageError, match="exists already"):
        Pipeline(pipe.config, pipe.spark).profile(name, rows, write=True)


KEYS = {
    "dense": ("id INT", "n"),
    "sparse": ("id BIGINT", "IF(n = 4000, 9000000000000000000, n * n)"),
    "two": ("a INT, b BIGINT UNSIGNED", "n DIV 1000, 18446744073700000000 + n"),
    "collated": ("id VARCHAR(20)", "CONCAT(IF(n % 2, 'k', 'Ä'), LPAD(n, 6, '0'))"),
    "moment": ("id DATETIME(3)", "TIMESTAMP('2020-01-01 00:00:00') + INTERVAL n SECOND"),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.long("other servers, and other keys", only=("MariaDB 10.11", "moment", "two"))
@pytest.mark.long("the same on another server", only=("MariaDB 11.4",))
@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_sample_is_spread_over_the_whole_table(pipe: Pipe, kind: str) -> None:
    """Each tenth of the rows is in it, no row is in it twice, and a seed draws the same rows again."""
    columns, key = KEYS[kind]
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    numbers = ", ".join(f"({number})" for number in range(1, 4_001))
    pipe.sql(
        "CREATE TABLE s (n INT PRIMARY KEY)",
        f"INSERT INTO s VALUES {numbers}",
        f"CREATE TABLE t ({columns}, n INT, PRIMARY KEY ({names}))",
        f"INSERT INTO t SELECT {key}, n FROM s",
        "ANALYZE TABLE t",
    )
    sample = drawn(pipe, "t", 1_000, 5)
    found = sample.rows["n"].to_pylist()
    assert not sample.is_whole
    assert len(found) == len({*found})
    assert 500 <= len(found) <= 2_100
    per_tenth = [sum(part * 400 < n <= (part + 1) * 400 for n in found) for part in range(10)]
    if kind == "collated":  # the server's order: half of the rows begin with another letter
        per_tenth = [sum(per_tenth[0::2]), sum(per_tenth[1::2])]
    assert min(per_tenth) > 0, per_tenth
    assert drawn(pipe, "t", 1_000, 5).rows == sample.rows
    assert drawn(pipe, "t", 1_000, 6).rows != sample.rows
    every = drawn(pipe, "t", 100_000)
    assert (every.is_whole, sorted(every.rows["n"].to_pylist())) == (True, [*range(1, 4_001)])


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_an_estimate_that_is_far_too_small_leaves_ranges_out(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the sample has about the wanted size, and is not called the whole table; too large a one reads some."""
    numbers = ", ".join(f"('{number:06}')" for number in range(4_000))
    pipe.sql("CREATE TABLE t (id VARCHAR(9) PRIMARY KEY)", f"INSERT INTO t VALUES {numbers}")
    monkeypatch.setattr(BinlogSource, "estimated_rows", lambda *_: 1)
    few = drawn(pipe, "t", 500, 1)
    assert not few.is_whole
    assert 400 <= few.rows.num_rows <= 1_100
    found = [int(text) for text in few.rows["id"].to_pylist()]
    assert min(found) < 400
    assert max(found) >= 3_000  # the last skip, a random number, is at most 700 rows
    monkeypatch.setattr(BinlogSource, "estimated_rows", lambda *_: 10**12)
    assert 0 < drawn(pipe, "t", 500, 1).rows.num_rows <= 500
    pipe.sql("DELETE FROM t")
    assert drawn(pipe, "t", 500, 1).rows.num_rows == 0


@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_busy_source_is_not_sampled(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """`throttle` holds for samples, too."""
    monkeypatch.setattr(drawn_rows, "WAIT_SECONDS", 0.5)
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    limits = Throttle(threads_running=1)
    pipe.config = pipe.config.model_copy(update={"throttle": limits})
    monkeypatch.setattr("lakeingest.mysql.load.threads_running", lambda _: 2)
    with pytest.raises(Retryable, match="the source is not to be read now: more than 1 threads are running"):
        profile(pipe.config, f"{pipe.database}.t")


ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(8,2), state VARCHAR(9))"
ROWS = f"INSERT INTO orders VALUES {', '.join(f'({i}, {i}.50, {chr(39)}new{chr(39)})' for i in range(1200))}"


@pytest.mark.formats
@pytest.mark.long("whole runs", only=("hudi", "MariaDB 10.11"))
@pytest.mark.long("one of the servers in turn", turn="any_server")
def test_a_proposed_suite_lets_the_rows_pass_its_gate_and_stops_others(pipe: Pipe) -> None:
    """From the profile to the copy; a row that breaks it stops the table."""
    pipe.sql(ORDERS, ROWS)
    profile(pipe.config, f"{pipe.database}.orders", write=True)
    pipe.run()
    assert len(pipe.seen(Published)) == 1
    pipe.sql("INSERT INTO orders VALUES (5000, 1, 'odd')")
    with pytest.raises(GateFailed, match=r"expect_column_values_to_be_in_set\(state\).* fails on 1 rows"):
        pipe.run()


@pytest.mark.long("lets Great Expectations evaluate suites several times")
def test_suites_are_asked_of_the_source_before_a_copy_exists(pipe: Pipe, suites: Path) -> None:
    """What fails is named with its count; a warning is one; what only the whole table can answer is not asked."""
    pipe.sql(ORDERS, ROWS, "CREATE TABLE others (id INT PRIMARY KEY)", "UPDATE orders SET state = 'odd' WHERE id < 9")
    [nothing] = suite_conditions(pipe.config, pipe.spark)
    assert (nothing.fatal, "no table has a suite" in str(nothing)) == (False, True)
    (suites / f"{pipe.database}.orders.yml").write_text(
        "expectations:\n"
        "  - {type: expect_column_values_to_be_in_set, kwargs: {column: state, value_set: [new]}}\n"
        "  - {type: expect_column_values_to_be_between, kwargs: {column: amount, max_value: 900}, severity: warning}\n"
        "  - {type: expect_table_row_count_to_equal, kwargs: {value: 1200}}\n"
    )
    failed, warned = suite_conditions(pipe.config, pipe.spark)
    assert failed.fatal
    assert failed.name == f"suites of {pipe.database}.orders on all 1,200 rows of {pipe.database}.orders"
    assert "expect_column_values_to_be_in_set(state)" in str(failed.finding)
    assert "fails on 9 rows, such as id=0" in str(failed.finding)
    assert not warned.fatal
    assert "fails on 300 rows" in str(warned.finding)
    assert failed in check(pipe.config, pipe.spark, suites=True).problems
    whole, failed, warned = conditions_of(
        pipe.config,
        drawn(pipe, "orders", 400, 1),
        user_suites(pipe.config.quality, TableId(pipe.database, "orders")),
        pipe.spark,
    )
    assert (whole.fatal, "expect_table_row_count_to_equal" in str(whole.finding)) == (False, True)
    assert "a sample of" in failed.name
    pipe.sql("UPDATE orders SET state = 'new'")
    assert check(pipe.config, pipe.spark, suites=True).problems == ()
    pipe.sql("ALTER TABLE orders DROP PRIMARY KEY")
    refused, *_ = suite_conditions(pipe.config, pipe.spark)
    assert (refused.fatal, "the source cannot be asked" in str(refused)) == (True, True)


@pytest.mark.long("several processes, one with a Spark")
def test_the_commands_print_a_suite_and_judge_the_source(mysql_server: LocalServer, tmp_path: Path) -> None:
    """What `profile` prints is a suite; `check --suites` ends with 1 if rows fail one."""
    job = Job(tmp_path / "job", mysql_server, "proposed_job", target={"format": "iceberg"}).write()
    job.sql(f"CREATE TABLE {job.database}.t (id INT PRIMARY KEY, v INT)")
    job.sql(f"INSERT INTO {job.database}.t VALUES (1, 1), (2, 1), (3, 1)")
    code, said = job.call("profile", f"{job.database}.t", "--write", "--set", "quality.suites=none")
    assert (code, "there is no folder" in said) == (2, True)
    code, said = job.call("profile", f"{job.database}.t", "--write")
    assert code == 0, said
    assert [path.name for path in (job.folder / "quality").iterdir()] == [f"{job.database}.t.yml"]
    code, said = job.call("check", "--suites")
    assert (code, f"suites of {job.database}.t on all 3 rows" in said) == (0, True), said
    job.sql(f"UPDATE {job.database}.t SET id = 100, v = NULL WHERE id = 3")
    suite = job.folder / "quality" / f"{job.database}.t.yml"
    suite.write_text(suite.read_text().replace(", severity: warning", ""))
    code, said = job.call("check", "--suites")
    assert (code, "expect_column_values_to_not_be_null(v)" in said, "fails on 1 rows" in said) == (1, True, True), said
