"""Every notebook, executed from its first cell to its last: as it is shipped, and on a database of a user's own."""

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote as percent_encoded

import pymysql
import pytest

from lakeingest import Pipeline
from lakeingest.commands.unpack import unpack
from lakeingest.core.tables.keys import quote
from lakeingest.demo.server import LocalServer
from lakeingest.notebook import Beside, Workspace
from tests.notebooks.executed import ROOT, executed, html, read, text

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
NUMBERS = range(500)
# A user's own database and table; Hudi allows only letters, digits and _ in names
OWN = {"iceberg": ("city library ☕", "lent books v1.2"), "hudi": ("city_library", "lent_books")}
DATABASE, OTHER = OWN["iceberg"][0], "Leser`innen"
SUITE = "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: branch, max_value: 2}}]\n"


@pytest.fixture
def library(mysql_server: LocalServer) -> Iterator[LocalServer]:
    """The shared server, with tables of a user's own: names with spaces, dots, quotes and signs."""
    server, other = mysql_server, f"{quote(DATABASE)}.{quote(OTHER)}"
    with pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    ) as connection:
        with connection.cursor() as cursor:
            for database, name in OWN.values():
                table = f"{quote(database)}.{quote(name)}"
                cursor.execute(f"CREATE DATABASE {quote(database)}")
                cursor.execute(
                    f"CREATE TABLE {table} (branch INT, number INT, title VARCHAR(40) NOT NULL, due DATE,"
                    " PRIMARY KEY (branch, number))"
                )
                rows = ", ".join(f"({number % 3}, {number}, 'Größe <b>{number}</b> 📚', NULL)" for number in NUMBERS)
                cursor.execute(f"INSERT INTO {table} VALUES {rows}")
            cursor.execute(f"CREATE TABLE {other} (`no. of card` VARCHAR(20) PRIMARY KEY, `e-mail` VARCHAR(80))")
            cursor.execute(f"INSERT INTO {other} VALUES ('ä', NULL), ('B', 'b@example.com')")
        yield server
        with connection.cursor() as cursor:
            for database, _ in OWN.values():
                cursor.execute(f"DROP DATABASE {quote(database)}")


def code(path: Path) -> dict[str, ast.Module]:
    """The code of each cell, by the cell's id."""
    return {cell.id: ast.parse(cell.source) for cell in read(path).cells if cell.cell_type == "code"}


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_outputs_are_not_in_the_repository(path: Path) -> None:
    """A notebook is what it says, not what it once printed."""
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert [cell.id for cell in cells if cell.outputs or cell.execution_count] == []


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_a_notebook_has_no_code_but_calls(path: Path) -> None:
    """Functions and classes are in lakeingest, where tests reach them; and each cell is short."""
    defined = ast.FunctionDef | ast.ClassDef | ast.Lambda
    assert [name for name, tree in code(path).items() for node in ast.walk(tree) if isinstance(node, defined)] == []
    assert [cell.id for cell in read(path).cells if cell.cell_type == "code" and cell.source.count("\n") > 8] == []


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_a_notebook_calls_what_there_is_with_what_it_takes(path: Path) -> None:
    """So a method that changes is noticed at once in each notebook."""
    ours = {name: kind for kind in (Pipeline, Workspace, Beside) for name in (kind.__name__, kind.__name__.lower())}
    ours["place"] = Workspace
    found = 0
    for call in (node for tree in code(path).values() for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            name, kind = call.func.attr, ours.get(call.func.value.id)
            if kind is not None:
                method = inspect.getattr_static(kind, name)
                takes = inspect.signature(getattr(method, "__func__", method))
                takes.bind(kind, *call.args, **{str(given.arg): given.value for given in call.keywords})
                found += 1
    assert found > 5


def judge_onboard(cells: dict[str, Any]) -> None:
    """The run is shown, all tables are equal, and the schedule is there."""
    assert "the run has ended" in html(cells["run"])
    assert "GateFailed" not in text(cells["status"])
    assert "source = target" in text(cells["verify"])
    assert "source ≠ target" not in text(cells["verify"])
    assert "source = copy" in text(cells["compare"])
    assert "<table" in html(cells["check"])
    assert "run -c" in text(cells["schedule-files"])


def judge_why(cells: dict[str, Any]) -> None:
    """The race is met by File and Position alone, and the copy is equal although writers changed the table."""
    rows = [line.split() for line in text(cells["race"]).splitlines()]
    assert [int(row[-1].replace(",", "")) > 0 for row in rows[1:3]] == [True, False]
    assert "rows of each wave" in html(cells["copy"])
    assert "source = target" in text(cells["verify"])


def judge_replay(cells: dict[str, Any]) -> None:
    """The changelog leaves the rows of the copy, and the run that was watched has moved on."""
    assert "<svg" in html(cells["watch"])
    assert text(cells["replay"]) == "True"
    assert "versions" in html(cells["history"])
    assert set(re.findall(r"True|False", text(cells["as-of"]))) == {"True"}
    assert "source = target" in text(cells["verify"])


def judge_operate(cells: dict[str, Any]) -> None:
    """Each trouble has its error and its runbook, and after the way out the copy is equal."""
    assert "was not published" in text(cells["gate"])
    assert "GateFailed" in text(cells["gate-status"])
    assert "## Way out" in cells["gate-runbook"][0]["data"]["text/markdown"]
    assert "someone else" in text(cells["foreign-run"])
    assert "## Way out" in cells["foreign-runbook"][0]["data"]["text/markdown"]
    assert "source = target" in text(cells["rollback-verify"])
    assert "source = target" in text(cells["repair"])
    assert "source = copy" in text(cells["both-sides-after"])


JUDGES = {
    "onboard": judge_onboard,
    "why_it_is_exact": judge_why,
    "replay_and_time_travel": judge_replay,
    "operate": judge_operate,
}


def test_each_notebook_is_judged() -> None:
    """A new one needs a judge."""
    assert JUDGES.keys() == NOTEBOOKS.keys()


@pytest.mark.parametrize("name", JUDGES)
def test_a_notebook_runs_as_it_is_shipped(name: str, tmp_path: Path) -> None:
    """On its own shop. What writers change in it arrives, and what is broken is found."""
    cells = executed(name, tmp_path, {})
    JUDGES[name](cells)
    if name == "replay_and_time_travel":
        assert "+U" in text(cells["changes"])
        assert text(cells["travel"]).endswith("False)")
        assert "RESET" in html(cells["log"])
        assert re.search("insert|update", html(cells["audit"]))
        assert text(cells["at-point"]).endswith("False)")
        assert text(cells["as-of"]).count("True") > 2
    if name == "operate":
        assert "source ≠ target" in text(cells["difference"])
        assert "source ≠ copy" in text(cells["both-sides"])


@pytest.mark.long("executes the notebook once more")
def test_the_page_says_how_a_notebook_is_executed_without_a_browser(tmp_path: Path) -> None:
    """Its command takes a notebook that the package has, and leaves the outputs in a file beside it."""
    unpack(tmp_path)
    page = (ROOT / "docs" / "howto" / "notebooks.md").read_text()
    [command] = re.findall("(?m)^jupyter execute (.*)$", page)
    jupyter = Path(sys.executable).with_name("jupyter")
    own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    done = subprocess.run(
        [jupyter, "execute", *shlex.split(command)],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("LAKEINGEST_")} | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = read(tmp_path / "notebooks" / "onboard.done.ipynb")
    judge_onboard({cell.id: cell.outputs for cell in made.cells if cell.cell_type == "code"})


@pytest.mark.any_format
@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.long("executes each notebook once more")
def test_a_notebook_takes_a_table_of_a_users_own(
    lake_format: str, library: LocalServer, tmp_path: Path, name: str
) -> None:
    """Two variables name them. No file of the user's is changed, no lake but the notebook's, and no secret is saved."""
    folder, (database, table) = tmp_path / "mine", OWN[lake_format]
    suite = folder / "rules" / f"{database}.{table}.yml"
    suite.parent.mkdir(parents=True)
    suite.write_text(SUITE)
    doc = {
        "name": "library",
        "source": {
            "host": library.host,
            "port": library.port,
            "user": library.user,
            "password": "${NOTEBOOK_PASSWORD}",
        },
        "tables": {"include": [f"{database}.*"]},
        "target": {"format": lake_format},
        "quality": {"suites": "./rules"},
    }
    config = folder / "pipeline.yml"
    config.write_text(json.dumps(doc))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    variables = {"LAKEINGEST_CONFIG": str(config), "LAKEINGEST_TABLE": f"{database}.{table}"}
    cells = executed(name, tmp_path, variables | {"NOTEBOOK_PASSWORD": library.password})
    JUDGES[name](cells)
    assert {path: path.read_bytes() for path in before} == before
    assert library.password not in json.dumps(cells)
    if name != "onboard":
        assert set(folder.rglob("*")) == {*before, suite.parent}


@pytest.mark.long("executes the notebook once more")
def test_a_database_is_onboarded_from_its_url(library: LocalServer, tmp_path: Path) -> None:
    """Two variables name source and file. The file, a suite and the schedule are new; a second time they stay."""
    url = f"mysql://{library.user}@{library.host}:{library.port}/{percent_encoded(DATABASE)}"
    variables = {"LAKEINGEST_SOURCE": url, "LAKEINGEST_CONFIG": str(tmp_path / "new.yml")}
    cells = executed("onboard", tmp_path, variables | {"MYSQL_PASSWORD": library.password})
    judge_onboard(cells)
    assert "rows of each wave" in html(cells["run"])
    assert "expect_" in text(cells["edit"])
    assert text(cells["verify"]).count("source = target") == 2
    assert library.password not in json.dumps(cells)
    made = [tmp_path / "new.yml", *(tmp_path / "quality").iterdir(), *(tmp_path / "schedule").iterdir()]
    assert len(made) == 4
    before = {path: path.read_bytes() for path in made}
    again = executed("onboard", tmp_path, variables | {"MYSQL_PASSWORD": library.password})
    judge_onboard(again)
    assert "is not overwritten" in text(again["suite"])
    assert {path: path.read_bytes() for path in made} == before
