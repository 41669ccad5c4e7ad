"""Every notebook, executed from its first cell to its last."""

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import pymysql
import pytest
from nbclient import NotebookClient

from lakeingest.demo.server import LocalServer
from lakeingest.demo.shop import DATABASE, build

pytestmark = [pytest.mark.e2e, pytest.mark.mysql, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ROWS = 2_000


@pytest.fixture(scope="module")
def shop(mysql_server: LocalServer) -> Iterator[LocalServer]:
    """The shared server, with a small shop."""
    server = mysql_server
    with pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    ) as connection:
        build(connection, ROWS, seed=1)
        yield server
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {DATABASE}")


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is in the repository."""
    notebook: nbformat.NotebookNode = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def executed(path: Path, folder: Path, server: LocalServer, lake_format: str) -> dict[str, Any]:
    """The outputs of each cell by its name, after a notebook was run on a pipeline in the folder."""
    doc = {
        "name": "notebook",
        "source": {"host": server.host, "port": server.port, "user": server.user, "password": "${NOTEBOOK_PASSWORD}"},
        "tables": {"include": [f"{DATABASE}.*"], "options": {f"{DATABASE}.*": {"chunk_rows": 40}}},
        "target": {"format": lake_format},
    }
    (folder / "pipeline.yml").write_text(json.dumps(doc))
    variables = {
        "LAKEINGEST_CONFIG": str(folder / "pipeline.yml"),
        "NOTEBOOK_PASSWORD": server.password,
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    notebook = read(path)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute(env=os.environ | variables)
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def text(outputs: Any) -> str:
    """All that a cell says in plain text."""
    return "\n".join(one.get("text") or one["data"].get("text/plain", "") for one in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_not_in_the_repository(path: Path) -> None:
    """A notebook is what it says, not what it once printed."""
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert [cell.id for cell in cells if cell.outputs or cell.execution_count] == []


@pytest.mark.long("runs a notebook with a Spark of its own from end to end")
@pytest.mark.any_format
def test_a_table_is_onboarded(lake_format: str, shop: LocalServer, tmp_path: Path) -> None:
    """No cell fails; waves are drawn, a wrong rule stops the publish, the right one lets it, the copy is equal."""
    answer = executed(ROOT / "notebooks" / "onboard_a_table.ipynb", tmp_path, shop, lake_format)
    drawn, refused = answer["run"]
    picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(drawn["data"]["image/png"])))
    blue, orange = (0.12, 0.47, 0.71), (1.0, 0.5, 0.05)
    for colour in (blue, orange):
        assert (abs(picture[..., :3] - colour).max(axis=-1) < 0.2).mean() > 0.0001, colour
    assert "was not published" in refused["text"]
    assert "amount" in refused["text"]
    assert "published" not in text(answer["status-staged"]).split()
    assert "published" in text(answer["status"]).split()
    assert "source = target" in text(answer["verify"])
    assert "600" in text(answer["verify"]).split()
    assert "<table" in answer["verify"][0]["data"]["text/html"]
