import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeingest.config import Quality
from lakeingest.config.place import Place
from lakeingest.core.tables.schema import Column, Kind, TableId, TableSchema
from lakeingest.errors import ConfigError
from lakeingest.mysql.source_types import source_type
from lakeingest.quality.suites import finding, unknown_columns, user_suites

ROOT = Path(__file__).parents[2]
ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
SCHEMAS = {
    table: TableSchema(
        table, (Column("id", Kind.INT32, source_type("int")), Column("v w", Kind.STRING, source_type("text"))), ("id",)
    )
    for table in (ORDERS, ITEMS)
}
NOT_NULL = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: v w}}]"


def written(folder: Path, **files: str) -> Path:
    """A folder of suites, by their names without `.yml`."""
    for name, text in files.items():
        (folder / f"{name}.yml").write_text(text)
    return folder


def of(folder: Path, **keys: str) -> Quality:
    """What pipeline.yml says of a folder of suites."""
    return Quality.model_validate({"suites": Place.of(folder), **keys})


def found(folder: Path) -> str | None:
    """What is wrong in the folder, where the shop has two tables."""
    return finding(of(folder), [ITEMS, ORDERS]) or unknown_columns(of(folder), SCHEMAS)


def test_a_suite_is_of_the_tables_that_its_file_names(tmp_path: Path) -> None:
    """YAML and JSON, one table and a pattern; other files are no suites, and no folder has none."""
    written(tmp_path, **{"shop.orders": NOT_NULL, "sh*.*": NOT_NULL + "\nname: all\nmeta: {of: us}"})
    (tmp_path / "shop.items.json").write_text(
        '{\t"expectations":\t[{"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1},'
        ' "severity": "warning", "id": "exported"}]}'
    )
    (tmp_path / "README.md").write_text("ours")
    assert found(tmp_path) is None
    assert [suite.name for suite in user_suites(of(tmp_path), ORDERS)] == ["sh*.*.yml", "shop.orders.yml"]
    assert [suite.name for suite in user_suites(of(tmp_path), ITEMS)] == ["sh*.*.yml", "shop.items.json"]
    assert user_suites(of(tmp_path), ITEMS)[1].expectations == (
        {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1}, "severity": "warning"},
    )
    assert user_suites(of(tmp_path), TableId("other", "orders")) == ()
    assert (user_suites(Quality(), ORDERS), finding(Quality(), [ORDERS])) == ((), None)
    assert unknown_columns(Quality(), SCHEMAS) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expectations: [", "cannot be read: line 1, column 16: "),
        ("a: \xff", "cannot be read: "),
        ("", "is no suite"),
        ("[]", "is no suite"),
        ("expectations: []", "is no suite"),
        ("expectations: {type: expect_column_to_exist}", "is no suite"),
        (NOT_NULL + "\nexpectation: []", "unknown key expectation; known are "),
        ("expectations: [expect_column_to_exist]", "expectation 1 is no `type` and `kwargs`"),
        ("expectations: [{kwargs: {column: id}}]", "expectation 1, without type: "),
        (
            "expectations: [{type: expect_wonders, kwargs: {}}]",
            "expectation 1, expect_wonders: expect_wonders not found",
        ),
        ("expectations: [{type: expect_column_to_exist}]", "expectation 1, expect_column_to_exist: "),
        ("expectations: [{type: expect_column_to_exist, kwargs: [id]}]", "kwargs must be a dict"),
        ("expectations: [{type: expect_column_to_exist, kwargs: {colum: id}}]", "colum extra fields not permitted"),
        ("expectations: [{type: expect_column_to_exist, kwargs: {column: id}, sev: warning}]", "'sev'"),
        ("expectations: [{type: expect_column_to_exist, kwargs: {column: id}, severity: bad}]", "severity 'bad'"),
        (
            "expectations: [{type: expect_table_row_count_to_equal, kwargs: {value: {$PARAMETER: n}}}]",
            "parameters have no values here",
        ),
    ],
)
def test_a_suite_that_cannot_be_evaluated_is_named(tmp_path: Path, text: str, said: str) -> None:
    """By its file and expectation, in one line: in preflight, and should it be changed in mid-run."""
    path = tmp_path / "shop.orders.yml"
    path.write_bytes(text.encode("latin-1"))
    finding = found(tmp_path)
    assert finding is not None
    assert finding.startswith(str(path))
    assert said in finding
    assert "\n" not in finding
    with pytest.raises(ConfigError) as refused:
        user_suites(of(tmp_path), ORDERS)
    assert str(refused.value) == finding


@pytest.mark.parametrize(
    "kwargs", ["column: ID", "column_A: id, column_B: ID", "column_list: [id, ID]", "column_list: [ID, v w]"]
)
def test_a_missing_column_is_named(tmp_path: Path, kwargs: str) -> None:
    """With the table that lacks it; names are compared as they are written."""
    kinds = {"column:": "expect_column_to_exist", "column_A:": "expect_column_pair_values_to_be_equal"}
    kind = kinds.get(kwargs.split(maxsplit=1)[0], "expect_compound_columns_to_be_unique")
    written(tmp_path, **{"shop.orders": f"expectations: [{{type: {kind}, kwargs: {{{kwargs}}}}}]"})
    assert found(tmp_path) == f"{tmp_path}/shop.orders.yml: expectation 1, {kind}: shop.orders has no column ID"


def test_a_file_that_names_no_table_is_named(tmp_path: Path) -> None:
    """A slip in a name would leave a table unasked; all that is wrong is reported together."""
    written(tmp_path, **{"shop.order": NOT_NULL, "shop": NOT_NULL, "shop.items": "expectations: ["})
    finding = found(tmp_path)
    assert finding is not None
    assert "shop.order.yml names no table that is copied; call it <database>.<table>.yml, or remove it; " in finding
    assert "shop.yml names no table" in finding
    assert "shop.items.yml cannot be read" in finding
    assert unknown_columns(of(tmp_path), SCHEMAS) is None


QUERY = "{type: unexpected_rows_expectation, kwargs: {unexpected_rows_query: 'SELECT 1 FROM {batch}'}}"
CONDITION = "{type: expect_column_values_to_not_be_null, kwargs: {column: id, row_condition: %s, condition_parser: %s}}"


@pytest.mark.parametrize(
    ("expectation", "named"),
    [
        (QUERY, "expectation 1, unexpected_rows_expectation: unexpected_rows_query is SQL"),
        (CONDITION % ("id > 1", "spark"), "row_condition is SQL"),
        (CONDITION % ("'col(\"id\") > 1'", "great_expectations"), None),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sql_in_suites_is_refused_unless_it_is_allowed(tmp_path: Path, expectation: str, named: str | None) -> None:
    """SQL can call Java and read files; the conditions of Great Expectations cannot."""
    written(tmp_path, **{"shop.orders": f"expectations: [{expectation}]"})
    finding = found(tmp_path)
    assert (finding is None) == (named is None)
    assert named is None or named in str(finding)
    assert len(user_suites(of(tmp_path, sql="allow"), ORDERS)) == 1


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """It was written down, so it is missed."""
    assert found(tmp_path / "none") == (
        f"quality.suites: {tmp_path}/none: No such file or directory; make the folder, or leave the key out"
    )


QUIET = """
import sys

def watch(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        print(event, arguments)

sys.addaudithook(watch)
import lakeingest, lakeingest.cli, lakeingest.commands.run, lakeingest.commands.check, lakeingest.commands.status
from lakeingest.quality import great_expectations as library, suites
suites.finding(lakeingest.config.Quality(), [])
assert not {"great_expectations", "pandas"} & set(sys.modules)
library.expectation({"type": "expect_column_to_exist", "kwargs": {"column": "id"}})
context = library._context()
assert context.mode == "ephemeral", context.mode
assert context.config.analytics_enabled is False
assert context.progress_bars["globally"] is False
import logging, warnings
assert warnings.showwarning.__module__ == "warnings"
logging.getLogger("great_expectations.any").error("nobody reads this")
"""


@pytest.mark.long("starts Python and imports Great Expectations several times")
def test_great_expectations_is_late_quiet_and_without_network() -> None:
    """Whatever the environment says: imported when asked for, no line, no connection, no warnings redirected."""
    invited = {
        "GX_ANALYTICS_ENABLED": "true",
        "GX_CLOUD_BASE_URL": "http://127.0.0.1:9",
        "GX_CLOUD_ACCESS_TOKEN": "token",
        "GX_CLOUD_ORGANIZATION_ID": "00000000-0000-0000-0000-000000000000",
        "GX_CLOUD_WORKSPACE_ID": "00000000-0000-0000-0000-000000000000",
    }
    done = subprocess.run(
        [sys.executable, "-c", QUIET],
        cwd=ROOT,
        env=os.environ | invited,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
