"""Notebooks of the repository: how a test executes one from its first cell to its last."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def read(path: Path) -> nbformat.NotebookNode:
    """A notebook as it is in the repository."""
    notebook: nbformat.NotebookNode = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def executed(folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The outputs of each cell by its name, after the notebook was run in the folder."""
    own = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    notebook = read(ROOT / "notebooks" / "onboard_a_table.ipynb")
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    others = {name: value for name, value in os.environ.items() if not name.startswith("LAKEINGEST_")}
    client.execute(env=others | own | dict(variables))
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def text(outputs: Any) -> str:
    """All that a cell says in plain text."""
    return "\n".join(one.get("text") or one["data"].get("text/plain", "") for one in outputs)
