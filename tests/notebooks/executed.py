"""Notebooks of the repository: how a test executes one from its first cell to its last."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 300


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is in the repository."""
    notebook: nbformat.NotebookNode = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def executed(name: str, folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The outputs of each cell by the cell's id, after the notebook of this name was run in the folder."""
    own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    notebook = read(ROOT / "notebooks" / f"{name}.ipynb")
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(folder)}})
    others = {key: value for key, value in os.environ.items() if not key.startswith("LAKEINGEST_")}
    client.execute(env=others | own | dict(variables))
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def text(outputs: Any) -> str:
    """All that a cell says in plain text."""
    return "\n".join(one.get("text") or one["data"].get("text/plain", "") for one in outputs)


def html(outputs: Any) -> str:
    """All that a cell shows as HTML."""
    return "\n".join(one["data"].get("text/html", "") for one in outputs if "data" in one)
