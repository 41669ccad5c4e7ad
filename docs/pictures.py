"""The pictures in these pages, of real runs on the sample source: `python docs/pictures.py`. It needs Chromium.

A terminal, the report of a run, the page of `status`, and a notebook, the pages in light and dark mode.
"""

import html
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image
from rich.console import Console
from rich.text import Text

from lakeingest.commands.init import PASSWORD
from lakeingest.demo.sample import sample_source
from lakeingest.drawing.page import page
from tests.servers.browser import Tab, browser

ROOT = Path(__file__).parents[1]
PICTURES = Path(__file__).parent / "images"
WIDTH, COLUMNS = 1_100, 132
_CELLS = ("run", "verify", "compare")  # of notebooks/onboard.ipynb


def said(folder: Path, environment: Mapping[str, str], command: str) -> str:
    """What a command of lakeingest prints, its log among it."""
    words = [sys.executable, "-m", "lakeingest", *command.split()]
    both = subprocess.STDOUT
    return subprocess.run(
        words, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=both, check=True
    ).stdout


def terminal(folder: Path, environment: Mapping[str, str], commands: list[str]) -> str:
    """What these commands print, one after the other, as a picture of a terminal."""
    with (folder / "printed").open("w") as file:
        console = Console(record=True, width=COLUMNS, file=file, force_terminal=True)
        for command in commands:
            console.print(Text(f"$ lakeingest {command}", style="bold green"))
            console.print(Text(said(folder, environment, command)))
    return console.export_svg(title="lakeingest", font_aspect_ratio=0.61)


def notebook(folder: Path) -> str:
    """Some cells of the notebook that onboards a database, with their outputs, as a page."""
    found: Any = nbformat.reads((ROOT / "notebooks" / "onboard.ipynb").read_text(), as_version=4)  # type: ignore[no-untyped-call]
    others = {name: value for name, value in os.environ.items() if not name.startswith("LAKEINGEST_")}
    client = NotebookClient(found, timeout=600, resources={"metadata": {"path": str(folder)}})
    client.execute(env=others | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")})
    return page("onboard.ipynb", "\n".join(_cells(found)))


def _cells(found: Any) -> Iterator[str]:
    for cell in found.cells:
        if cell.cell_type == "code" and cell.id in _CELLS:
            yield f"<pre>{html.escape(cell.source)}</pre>"
            for output in cell.outputs:
                data = output.get("data", {})
                yield data.get("text/html") or f"<pre>{html.escape(output.get('text') or data['text/plain'])}</pre>"


def photograph(tab: Tab, shown: Path, name: str, height: int) -> None:
    """Save the top of a page in light and dark mode."""
    for mode in ("light", "dark"):
        tab.open(shown, WIDTH, dark=mode == "dark")
        picture = PICTURES / f"{name}-{mode}.png"
        tab.screenshot(picture)
        with Image.open(picture) as whole:
            top = whole.convert("RGB").crop((0, 0, whole.width, min(height, whole.height)))
        top.quantize(64).save(picture, optimize=True)


def main() -> None:
    """Make all pictures anew."""
    with tempfile.TemporaryDirectory(prefix="pictures-") as made, browser() as tab:
        folder = Path(made)
        (folder / "notebook").mkdir()
        with sample_source(folder / "server") as sample:
            own = {"PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS), PASSWORD: sample.server.password}
            environment = {**os.environ, **own}
            said(folder, environment, f"init --from-source {sample.url}")
            (PICTURES / "terminal.svg").write_text(terminal(folder, environment, ["run", "verify"]))
            said(folder, environment, "status --html status.html")
        report = max((folder / "state" / "reports").glob("*.html"))
        (folder / "notebook.html").write_text(notebook(folder / "notebook"))
        photograph(tab, report, "run-report", 1_000)
        photograph(tab, folder / "status.html", "status", 320)
        photograph(tab, folder / "notebook.html", "notebook", 1_000)


if __name__ == "__main__":
    main()
