"""`query`: questions in SQL about what readers see, and about nothing else."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest

from lakeingest.commands.query import QueryResult, query
from lakeingest.demo.server import LocalServer
from lakeingest.errors import UsageError
from tests.e2e.job import Job
from tests.e2e.pipe import Pipe

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]
ODD = 'a.b "c" ☃'


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    """Two tables that are copied, one of them with an odd name."""
    pipe.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(20,2), note VARCHAR(20), raw VARBINARY(8),"
        " made DATETIME(6), seen TIMESTAMP NULL)",
        "INSERT INTO orders VALUES (1, 12345678901234567.89, 'a,b', x'00ff', '2026-01-02 03:04:05.000006', NULL),"
        " (2, -0.50, '', NULL, NULL, '2026-01-02 03:04:05'), (3, 7, NULL, '', NULL, NULL)",
        f"CREATE TABLE `{odd(pipe)}` (`the_id` INT PRIMARY KEY, `order` INT)",
        f"INSERT INTO `{odd(pipe)}` VALUES (1, 1), (2, 1), (3, 3)",
    )
    pipe.run()
    return pipe


def odd(pipe: Pipe) -> str:
    """An odd name that the format takes: Hudi refuses most signs."""
    return ODD if pipe.config.target.format == "iceberg" else "a.b$c-d"


def rows(answer: QueryResult) -> list[tuple[object, ...]]:
    """The rows of an answer."""
    return [tuple(row.values()) for row in answer.rows.to_pylist()]


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_a_question_is_answered_by_what_readers_see(shop: Pipe) -> None:
    """Joins, odd names and exact values; and what is not published is not seen."""
    quoted = '"{}"."{}"'.format(shop.database, odd(shop).replace('"', '""'))
    sql = f'SELECT o.id, o.amount, count(*) AS n FROM {shop.database}.orders o JOIN {quoted} x ON x."order" = o.id'
    answer = query(shop.config, f"{sql} GROUP BY ALL ORDER BY 1")
    assert rows(answer) == [(1, Decimal("12345678901234567.89"), 2), (3, Decimal("7.00"), 1)]
    assert sorted(str(table) for table in answer.positions) == sorted(
        [f"{shop.database}.orders", f"{shop.database}.{odd(shop)}"]
    )
    assert answer.note.startswith("2 rows; ")
    count = f"WITH orders AS (SELECT * FROM {shop.database}.orders) SELECT count(*) FROM orders"
    assert rows(query(shop.config, count)) == [(3,)]
    shop.sql("INSERT INTO orders VALUES (4, 1, NULL, NULL, NULL, NULL)")
    assert rows(query(shop.config, count)) == [(3,)]
    shop.run()
    assert rows(query(shop.config, count)) == [(4,)]
    assert rows(query(shop.config, "SELECT 1 + 1")) == [(2,)]


@pytest.mark.formats
@pytest.mark.long("another format of what runs on Iceberg", only=("hudi",))
def test_rows_that_are_staged_are_not_seen(pipe: Pipe) -> None:
    """A first copy that was killed between two waves has no rows for readers."""
    pipe.sql("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t VALUES {', '.join(f'({i})' for i in range(60))}")
    pipe.run(max_minutes=0)
    with pytest.raises(UsageError, match=r"is not published yet|tables are named"):
        query(pipe.config, f"SELECT * FROM {pipe.database}.t")
    pipe.run()
    assert rows(query(pipe.config, f"SELECT count(*) FROM {pipe.database}.t")) == [(60,)]


REFUSED = (
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM glob('/*')",
    "COPY (SELECT 1) TO '{secret}'",
    "ATTACH '{secret}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SELECT 1; SELECT 2",
    "DROP TABLE {database}.orders",
    "CREATE TABLE x (a INT)",
    "DELETE FROM {database}.orders",
    "PRAGMA version",
    "",
    "SELEC 1",
    "SELECT * FROM {database}.nowhere",
    "SELECT * FROM orders",
    "SELECT * FROM config",  # a variable of the program
    "SELECT getenv('HOME')",
)


@pytest.mark.formats("iceberg")
def test_nothing_else_can_be_read_or_changed(shop: Pipe, tmp_path: Path) -> None:
    """No file, no network, no setting, no variable; each refusal is one line."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\nthe secret\n")
    before = secret.read_bytes()
    for sql in REFUSED:
        with pytest.raises(UsageError) as refused:
            query(shop.config, sql.format(secret=secret, database=shop.database))
        assert "the secret" not in str(refused.value)
    assert secret.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["secret.csv"]
    shop.assert_equal()


@pytest.mark.formats("iceberg")
def test_names_that_differ_in_case_are_not_mixed_up(shop: Pipe) -> None:
    """DuckDB would take them for one; the source does not."""
    shop.sql("CREATE TABLE ORDERS (id INT PRIMARY KEY)", "INSERT INTO ORDERS VALUES (9)")
    shop.run()
    assert rows(query(shop.config, f"SELECT id FROM {shop.database}.ORDERS")) == [(9,)]
    assert rows(query(shop.config, f"SELECT max(id) FROM {shop.database}.orders")) == [(3,)]
    with pytest.raises(UsageError, match="differ only in case"):
        query(shop.config, f"SELECT * FROM {shop.database}.ORDERS, {shop.database}.orders")


@pytest.mark.formats("iceberg")
def test_an_answer_has_several_forms(shop: Pipe) -> None:
    """JSON and CSV read back as they are; columns may have one name; a terminal gets only what is printable."""
    answer = query(shop.config, f"SELECT *, id, id > 1 AS more FROM {shop.database}.orders ORDER BY id LIMIT 2")
    document = json.loads(json.dumps(answer.to_json()))
    assert document["columns"] == ["id", "amount", "note", "raw", "made", "seen", "id", "more"]
    first, second = document["rows"]
    assert first == [1, "12345678901234567.89", "a,b", "00ff", "2026-01-02T03:04:05.000006", None, 1, False]
    assert second == [2, "-0.50", "", None, None, "2026-01-02T03:04:05+00:00", 2, True]
    out = io.StringIO()
    answer.write_csv(out)
    head, one, _ = csv.reader(io.StringIO(out.getvalue()))
    assert head == document["columns"]
    assert one == ["1", "12345678901234567.89", "a,b", "00ff", "2026-01-02T03:04:05.000006", "", "1", "false"]
    assert "12345678901234567.89" in repr(answer)
    hostile = query(shop.config, "SELECT 'a\x1b[2Jb' AS x, 0::DOUBLE / 0 AS y")
    out = io.StringIO()
    hostile.write_csv(out, printed=True)
    assert out.getvalue().replace("\n", "").isprintable()
    assert hostile.to_json()["rows"] == [["a\x1b[2Jb", "nan"]]
    assert answer.to_pandas()["amount"][0] == Decimal("12345678901234567.89")


@pytest.mark.local("runs commands in a folder")
def test_the_commands_print_an_answer_and_a_sample(
    mysql_server: LocalServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As a table, as JSON and as CSV; `query` needs no source."""
    job = Job(tmp_path_factory.mktemp("asked"), mysql_server, "asked_job").write()
    try:
        job.sql(f"CREATE TABLE {job.database}.t (id INT PRIMARY KEY, v TEXT)")
        job.sql(f"INSERT INTO {job.database}.t VALUES (1, 'one'), (2, NULL)")
        assert job.run()[0] == 0
        code, said = job.call("sample", f"{job.database}.t", "--rows", "1")
        assert (code, "one" in said, "low watermark" in said) == (0, True, True)
        sql = f"SELECT * FROM {job.database}.t ORDER BY id"
        assert json.loads(job.call("query", sql, "--json")[1])["rows"] == [[1, "one"], [2, None]]
        assert job.call("query", sql, "--csv") == (0, "id,v\n1,one\n2,\n")
        code, said = job.call("query", sql)
        assert (code, "2 rows; " in said) == (0, True)
    finally:
        job.sql(f"DROP DATABASE {job.database}")
