"""Every notebook, executed from its first cell to its last."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import matplotlib.image
import pymysql
import pytest

from lakeingest.demo.server import LocalServer
from tests.notebooks.executed import ROOT, executed, read, text

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ROWS = 500
DATABASE = "city library"
SUITE = "expectations: [{type: expect_column_values_to_be_between, kwargs: {column: branch, max_value: 2}}]\n"


@pytest.fixture
def library(mysql_server: LocalServer) -> Iterator[LocalServer]:
    """The shared server, with a table of a user's own: its name has a space, and it has a key of two columns."""
    server = mysql_server
    with pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    ) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{DATABASE}`")
            cursor.execute(
                f"CREATE TABLE `{DATABASE}`.`lent books` (branch INT, number INT, title VARCHAR(40) NOT NULL, due DATE,"
                " PRIMARY KEY (branch, number))"
            )
            rows = ", ".join(f"({number % 3}, {number}, 'Größe {number}', NULL)" for number in range(ROWS))
            cursor.execute(f"INSERT INTO `{DATABASE}`.`lent books` VALUES {rows}")
        yield server
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{DATABASE}`")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_not_in_the_repository(path: Path) -> None:
    """A notebook is what it says, not what it once printed."""
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert [cell.id for cell in cells if cell.outputs or cell.execution_count] == []


def test_the_notebook_runs_as_it_is_shipped(tmp_path: Path) -> None:
    """On its own shop. Waves are drawn, a wrong rule stops the publish, the right one lets it, the copy is equal."""
    answer = executed(tmp_path, {})
    drawn, refused = answer["run"]
    picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(drawn["data"]["image/png"])))
    blue, orange = (0.12, 0.47, 0.71), (1.0, 0.5, 0.05)
    for colour in (blue, orange):
        assert (abs(picture[..., :3] - colour).max(axis=-1) < 0.2).mean() > 0.0001, colour
    assert "was not published" in refused["text"]
    assert "GateFailed" in text(answer["status-staged"])
    assert "GateFailed" not in text(answer["status"])
    assert "source = target" in text(answer["verify"])
    assert "<table" in answer["verify"][0]["data"]["text/html"]


@pytest.mark.any_format
@pytest.mark.long("executes the notebook once more")
def test_it_takes_a_table_and_a_suite_of_a_users_own(lake_format: str, library: LocalServer, tmp_path: Path) -> None:
    """Two variables name them; the suite is used, and stays as it is."""
    doc = {
        "name": "notebook",
        "source": {
            "host": library.host,
            "port": library.port,
            "user": library.user,
            "password": "${NOTEBOOK_PASSWORD}",
        },
        "tables": {"include": [f"{DATABASE}.*"]},
        "target": {"format": lake_format},
        "quality": {"suites": "./rules"},
    }
    (tmp_path / "pipeline.yml").write_text(json.dumps(doc))
    suite = tmp_path / "rules" / f"{DATABASE}.lent books.yml"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    answer = executed(
        tmp_path,
        {
            "LAKEINGEST_CONFIG": str(tmp_path / "pipeline.yml"),
            "LAKEINGEST_TABLE": f"{DATABASE}.lent books",
            "NOTEBOOK_PASSWORD": library.password,
        },
    )
    assert "source = target" in text(answer["verify"])
    assert suite.name in text(answer["gate"])
    assert suite.read_text() == SUITE
    assert list(suite.parent.iterdir()) == [suite]
