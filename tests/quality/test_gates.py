import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeingest import termination
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.files import file as files
from lakeingest.files.local import Local
from lakeingest.mysql.source_types import source_type
from lakeingest.quality.gates import GateReport, Outcome, joined_reports, run_gate
from lakeingest.quality.reports import REPORTS_PER_TABLE, save_report
from lakeingest.quality.row_checks import is_sound, with_passed_suite
from lakeingest.quality.suites import Suite, default_suite
from lakeingest.rows import arrow_type
from tests.faults.clocks import clock_ahead

pytestmark = pytest.mark.spark

SCHEMA = TableSchema(
    TableId("shop", "lines"),
    (
        Column("id", Kind.INT32, source_type("int"), nullable=False),
        Column("line-no of", Kind.INT64, source_type("int unsigned"), nullable=False),
        Column("state", Kind.STRING, source_type(r"enum('new','it''s','a,\\b','x\ny')")),
        Column("name", Kind.STRING, source_type("varchar(3)")),
        Column("amount", Kind.DECIMAL, source_type("decimal(5,2)"), precision=5, scale=2),
        Column("widest", Kind.DECIMAL, source_type("decimal(38,20)"), precision=38, scale=20),
        Column("big", Kind.UINT64, source_type("bigint unsigned")),
        Column("hash", Kind.BINARY, source_type("binary(2)"), length=2),
        Column("note", Kind.STRING, source_type("text"), nullable=False),
        Column("tags", Kind.STRING, source_type("set('unsigned','b')")),
        Column("digits", Kind.NUMERAL, source_type("decimal(65,2) unsigned")),
        Column("place", Kind.VECTOR, source_type("vector(2)"), nullable=False),
    ),
    ("id", "line-no of"),
)
# wider than the lake's own types, which hold no more than they should
SPARK = (
    "id int, `line-no of` bigint, state string, name string, amount decimal(20,2), widest decimal(38,19), "
    "big decimal(20,0), hash binary, note string, tags string, digits string, place array<float>"
)
LAST = ("unsigned,b", "9" * 63 + ".99", [0.5, 1.0])
FULL = (1, 1, "it's", "😀äz", Decimal("999.99"), Decimal("9" * 18 + ".5"), Decimal(2**64 - 1), b"ab", "n", *LAST)
EMPTY = (2, 0, None, None, None, None, None, None, "", None, None, [0.0])
OTHERS = (
    (3, 1, "a,\\b", "", Decimal("-999.99"), Decimal("-" + "9" * 18), Decimal(0), b"", "n", *LAST),
    (3, 2, "x\ny", "abc", Decimal(0), Decimal(0), Decimal(0), b"a", "n", *LAST),
    (3, 3, "", "abc", Decimal(0), Decimal(0), Decimal(0), b"a", "n", *LAST),
)
WHOLE = (FULL, EMPTY, *OTHERS)
NOT_NULL, BETWEEN = "expect_column_values_to_not_be_null", "expect_column_values_to_be_between"

Row = tuple[Any, ...]


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    """Staged rows."""
    return spark.createDataFrame(rows, SPARK)


def report(rows: DataFrame, expected: int, *documents: dict[str, Any]) -> GateReport:
    """What the gate says of these rows, with a user's suite of these expectations beside the default one."""
    suites = [default_suite(SCHEMA, expected), *([Suite("own.yml", documents)] if documents else [])]
    return run_gate("shop.lines", rows, SCHEMA.key, suites)


def own(kind: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    """An expectation as a user writes it."""
    return {"type": kind, "kwargs": kwargs, "severity": severity}


def with_value(name: str, value: Any, **others: Any) -> Row:
    """A good row but for these values."""
    changed = dict(zip(SCHEMA.names, FULL, strict=True)) | others | {name: value}
    return tuple(changed.values())


@pytest.mark.long("suites on Spark")
def test_an_exact_copy_passes(spark: SparkSession) -> None:
    """The largest values that each type holds, no values, an enum's error value: whatever MySQL can hold."""
    found = report(frame(spark, *WHOLE), len(WHOLE))
    assert found.failures == found.warnings == ()
    assert len(found.outcomes) == len(default_suite(SCHEMA, 0).expectations) == 13


BAD = (
    ("id", None, NOT_NULL),
    ("line-no of", None, NOT_NULL),
    ("line-no of", -1, BETWEEN),
    ("state", "lost", "expect_column_values_to_be_in_set"),
    ("state", "New", "expect_column_values_to_be_in_set"),
    ("name", "abcd", "expect_column_value_lengths_to_be_between"),
    ("amount", Decimal("1000.01"), BETWEEN),
    ("amount", Decimal("-1000.01"), BETWEEN),
    ("widest", Decimal("2" + "0" * 18), BETWEEN),
    ("big", Decimal(-1), BETWEEN),
    ("hash", b"abc", "expect_column_value_lengths_to_be_between"),
    ("note", None, NOT_NULL),
    ("place", None, NOT_NULL),
)


@pytest.mark.long("has Great Expectations judge a table of every type")
def test_a_value_that_its_type_does_not_hold_fails(spark: SparkSession) -> None:
    """Each is counted by the one expectation that is about it, whose line names a row by its key."""
    rows = [with_value(name, value, id=10 + number) for number, (name, value, _) in enumerate(BAD)]
    found = report(frame(spark, *rows), len(BAD))
    failed = {(one.document["kwargs"]["column"], one.document["type"]): one.unexpected for one in found.failures}
    assert failed == Counter((name, kind) for name, _, kind in BAD)
    said = {str(one) for one in found.failures}
    assert "expect_column_values_to_be_in_set(state) of schema fails on 2 rows, such as id=13, line-no of=1" in said
    assert not any("\n" in line for line in said)
    assert all(kind in json.dumps(found.document) for _, _, kind in BAD)


def looked_at(*rows: Row, key: tuple[str, ...] = SCHEMA.key) -> bool:
    """Whether a look finds the rows sound."""
    types = {"amount": pa.decimal128(20, 2), "widest": pa.decimal128(38, 19), "place": pa.list_(pa.float32())}
    schema = pa.schema([(column.name, types.get(column.name, arrow_type(column))) for column in SCHEMA.columns])
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema)
    return is_sound(default_suite(TableSchema(SCHEMA.table, SCHEMA.columns, key), len(rows)), table)


def test_the_row_checks_pass_an_exact_copy() -> None:
    """In the order of the key or not; no rows are sound too."""
    assert looked_at(*WHOLE)
    assert looked_at(*reversed(WHOLE))
    assert looked_at(FULL, EMPTY, key=("id",))
    assert looked_at()


@pytest.mark.parametrize(("name", "value", "_kind"), BAD)
def test_the_row_checks_pass_no_bad_value(name: str, value: Any, _kind: str) -> None:
    """What Great Expectations counts as a failure, the look leaves to it."""
    assert looked_at(with_value(name, FULL[SCHEMA.names.index(name)], id=10))
    assert not looked_at(with_value(name, value, id=10))


def test_the_row_checks_pass_no_duplicate_key() -> None:
    """Side by side or apart, of one column or of two."""
    assert not looked_at(FULL, FULL, EMPTY)
    assert not looked_at(FULL, EMPTY, FULL)
    assert not looked_at(*OTHERS, key=("id",))


def test_the_row_checks_pass_nothing_unknown() -> None:
    """An expectation of another kind is Great Expectations' to judge."""
    suite = Suite("own.yml", ({"type": "expect_column_mean_to_be_between", "kwargs": {"column": "id"}},))
    assert not is_sound(suite, pa.table({"id": [1]}))


def test_the_report_has_known_and_evaluated_expectations(spark: SparkSession) -> None:
    """The outcomes of both, in the document too."""
    suite = default_suite(SCHEMA, len(WHOLE))
    alone = with_passed_suite(suite, None)
    assert (len(alone.outcomes), alone.failures) == (13, ())
    asked = run_gate("shop.lines", frame(spark, FULL), SCHEMA.key, [Suite("own.yml", (own(NOT_NULL, column="note"),))])
    statistics = {"evaluated_expectations": 1, "successful_expectations": 1, "unsuccessful_expectations": 0}
    assert asked.document["statistics"] == statistics | {"success_percent": 100}  # as `summed` has them
    both = with_passed_suite(suite, asked)
    assert (len(both.outcomes), len(both.document["results"])) == (14, 14)
    assert json.loads(json.dumps(both.document))["success"]
    failed = run_gate(
        "shop.lines", frame(spark, EMPTY), SCHEMA.key, [Suite("own.yml", (own(NOT_NULL, column="name"),))]
    )
    joined = joined_reports(both, failed).document
    statistics = {"evaluated_expectations": 15, "successful_expectations": 14, "unsuccessful_expectations": 1}
    assert {**joined["statistics"], "success_percent": 0} == statistics | {"success_percent": 0}
    assert not joined["success"]


@pytest.mark.long("suites on Spark")
def test_a_key_that_two_rows_share_fails(spark: SparkSession) -> None:
    """Both are counted and named by it, also where one part of the key differs elsewhere."""
    found = report(frame(spark, FULL, FULL, EMPTY), 3)
    assert [str(one) for one in found.failures] == [
        "expect_compound_columns_to_be_unique(['id', 'line-no of']) of schema fails on 2 rows, such as "
        "id=1, line-no of=1"
    ]


@pytest.mark.long("suites on Spark")
def test_a_key_of_one_column_is_unique_by_itself(spark: SparkSession) -> None:
    """Whatever else the rows hold."""
    schema = TableSchema(SCHEMA.table, SCHEMA.columns, ("id",))
    rows = frame(spark, *OTHERS)
    [failure] = run_gate("shop.lines", rows, schema.key, [default_suite(schema, 3)]).failures
    assert str(failure) == "expect_column_values_to_be_unique(id) of schema fails on 3 rows, such as id=3"


@pytest.mark.long("suites on Spark")
@pytest.mark.parametrize("expected", [4, 6])
def test_a_row_count_other_than_the_written_one_fails(spark: SparkSession, expected: int) -> None:
    """A lost row and one too many are both noticed, whatever the rows look like."""
    [failure] = report(frame(spark, *WHOLE), expected).failures
    assert str(failure) == f"5 rows are staged, {expected} were written"


@pytest.mark.long("suites on Spark")
def test_an_empty_table_passes_when_nothing_was_written(spark: SparkSession) -> None:
    """No rows are whole rows; but not when some were written."""
    assert report(frame(spark), 0).failures == ()
    assert [str(one) for one in report(frame(spark), 5).failures] == ["0 rows are staged, 5 were written"]


@pytest.mark.long("suites on Spark")
def test_each_gate_judges_its_own_rows(spark: SparkSession) -> None:
    """Nothing is remembered of the gate before, and no rows are kept in memory."""
    for rows in (WHOLE, (FULL,), WHOLE):
        found = report(frame(spark, *rows), len(rows))
        assert found.failures == ()
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()  # noqa: SLF001 - the only way to ask


@pytest.mark.long("suites on Spark")
def test_a_users_expectation_fails_beside_the_default_ones(spark: SparkSession) -> None:
    """It is named by its file; all failures are reported."""
    found = report(
        frame(spark, *WHOLE),
        6,
        own("expect_column_max_to_be_between", column="id", max_value=2),
        own("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch} WHERE id = 3 AND state = ''"),
        own("expect_column_values_to_be_between", column="id", min_value=1),
    )
    assert sorted(map(str, found.failures)) == [
        "5 rows are staged, 6 were written",
        "expect_column_max_to_be_between(id) of own.yml fails",
        "unexpected_rows_expectation() of own.yml fails, observed 1",
    ]


@pytest.mark.long("suites on Spark")
def test_without_samples_no_value_of_a_row_is_stored(spark: SparkSession, tmp_path: Local) -> None:
    """Neither in the document nor on the page: only keys and counts; all that is said elsewhere is that anyway."""
    between = own("expect_column_values_to_be_between", column="amount", min_value=10**6)
    suite = Suite("own.yml", (between, own("expect_column_max_to_be_between", column="amount", max_value=-1)))
    rows = frame(spark, *WHOLE)
    with_values = run_gate("shop.lines", rows, SCHEMA.key, [suite])
    without = run_gate("shop.lines", rows, SCHEMA.key, [suite], samples=False)
    assert list(map(str, with_values.failures)) == list(map(str, without.failures))
    values = {str(row.amount) for row in rows.collect() if row.amount is not None}
    for found, some in ((with_values, True), (without, False)):
        page = save_report(tmp_path, SCHEMA.table, "before publish", 5, found)
        for file in (page, page.with_suffix(".json")):
            assert any(value in file.read().decode() for value in values) == some
    assert without.failures[0].keys


@pytest.mark.long("suites on Spark")
def test_a_failure_of_less_severity_is_a_warning(spark: SparkSession) -> None:
    """It is in the report and stops nothing."""
    found = report(frame(spark, *WHOLE), 5, own(NOT_NULL, "warning", column="state"), own(NOT_NULL, column="note"))
    assert found.failures == ()
    assert [str(one) for one in found.warnings] == [
        f"{NOT_NULL}(state) of own.yml fails on 1 rows, such as id=2, line-no of=0"
    ]


@pytest.mark.long("suites on Spark")
def test_an_expectation_that_cannot_be_evaluated_has_failed(spark: SparkSession) -> None:
    """The reason is one line; the others are evaluated all the same."""
    found = report(
        frame(spark, *WHOLE),
        5,
        own("expect_column_values_to_match_regex", column="name", regex="["),
        own(NOT_NULL, column="name"),
    )
    raised, counted = found.failures
    assert re.match(r"expect_column_values_to_match_regex\(name\) of own\.yml cannot be evaluated: \S.*$", str(raised))
    assert (counted.document["type"], counted.unexpected) == (NOT_NULL, 1)


@pytest.mark.long("suites on Spark")
def test_unreadable_rows_raise_an_error_instead_of_a_finding(spark: SparkSession, tmp_path: Path) -> None:
    """What keeps them from being read is raised, for whoever knows where they are kept to name it."""
    frame(spark, *WHOLE).write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    for file in (tmp_path / "rows").glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="does not exist"):
        report(rows, len(WHOLE))


@pytest.fixture
def stopped() -> Iterator[type[BaseException]]:
    """SIGTERM raises what it raises in a command."""
    before = signal.signal(signal.SIGTERM, termination.terminate)
    yield termination.Terminated
    signal.signal(signal.SIGTERM, before)


@pytest.mark.long("suites on Spark")
def test_sigterm_ends_a_gate(spark: SparkSession, stopped: type[BaseException]) -> None:
    """With what its handler raises, which Great Expectations would note as a finding otherwise."""
    report(frame(spark, FULL), 1)
    from great_expectations.expectations.expectation import BatchExpectation

    class ExpectASignal(BatchExpectation):
        """It arrives while this is evaluated."""

        def _validate(self, *_: Any, **__: Any) -> dict[str, Any]:
            signal.raise_signal(signal.SIGTERM)
            return {"success": True}

    with pytest.raises(stopped):
        report(frame(spark, FULL), 1, own("expect_a_signal"))


def test_the_newest_reports_stay(tmp_path: Local) -> None:
    """Each as a document and a page, per table; one that cannot be written stops the run."""
    found = GateReport((), {"success": True})
    pages = [save_report(tmp_path, SCHEMA.table, "after wave 3", 17, found) for _ in range(REPORTS_PER_TABLE + 2)]
    folder = tmp_path / "quality" / "shop.lines"
    assert folder.listed("*.html") == pages[2:]
    assert [path.with_suffix(".html") for path in folder.listed("*.json")] == pages[2:]
    assert files.document(pages[-1].with_suffix(".json")) == {"success": True}
    assert pages[-1].name.endswith("-after-wave-3.html")


def test_a_page_of_a_person_is_no_report(tmp_path: Local) -> None:
    """Whatever its name is: the next report gets a time of its own."""
    found = GateReport((), {"success": True})
    first = save_report(tmp_path, SCHEMA.table, "after wave 3", 17, found)
    (first.parent / "notes.html").write(b"seen")
    assert save_report(tmp_path, SCHEMA.table, "before publish", 17, found).name > first.name


def test_the_last_report_stays_when_the_clock_was_set_back(tmp_path: Local) -> None:
    """Those of before are not newer, though a clock that was ahead named them."""
    found = GateReport((), {"success": True})
    with clock_ahead(timedelta(days=1)):
        before = [save_report(tmp_path, SCHEMA.table, "after wave 3", 17, found) for _ in range(REPORTS_PER_TABLE)]
    last = save_report(tmp_path, SCHEMA.table, "before publish", 17, found)
    assert (tmp_path / "quality" / "shop.lines").listed("*.html") == [*before[1:], last]


def test_the_page_says_what_failed_where_and_when(tmp_path: Local) -> None:
    """Table, stage, time, rows, failures first, samples; what looks like markup is text, and nothing is fetched."""
    kwargs = {"column": "<amount>", "max_value": 100}
    rows = ("id=7, <amount>=1000.00", "id=8, <amount>=2000.00")
    outcomes = (
        Outcome("schema", {"type": NOT_NULL, "kwargs": {"column": "id"}}, success=True),
        Outcome("own.yml", {"type": BETWEEN, "kwargs": kwargs}, success=False, unexpected=1_234, examples=rows),
        Outcome("own.yml", {"type": "broken", "kwargs": {}}, success=False, error="no column x"),
        Outcome("own.yml", {"type": "mild", "kwargs": {}, "severity": "warning"}, success=False, observed=3),
    )
    path = save_report(tmp_path, SCHEMA.table, "before publish", 5_678, GateReport(outcomes, {"success": False}))
    text = path.read().decode()
    for answer in (
        "shop.lines: gate before publish: 2 of 4 expectations failed",
        "<th>rows</th><td>5,678</td>",
        "2 of 4 expectations failed, 1 warnings",
        "<td class=wide>1,234</td><td class=wide>id=7, &lt;amount&gt;=1000.00<br>id=8, &lt;amount&gt;=2000.00</td>",
        "cannot be evaluated: no column x",
        "observed 3",
    ):
        assert answer in text
    assert re.search(r"<th>time</th><td>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</td>", text)
    assert re.findall(r'<td class="(\w+)">', text) == ["failed", "failed", "warning", "passed"]
    assert "<amount>" not in text
    assert not re.search(r"(?i)https?:|//|<script|<link|<img|src=|@import|url\(", text)
