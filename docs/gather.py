"""Gather the pages of the site: `make docs` runs this before Zensical, which builds the site of them.

The pages are written for a forge. Some are outside of docs/, so that links to them differ on the site. Items of
numbered lists are indented by three spaces, and Python-Markdown wants four, and a blank line between a paragraph within
an item and the next item. `llms.txt` lists all pages, for programs.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
GATHERED = ROOT / "build" / "pages"  # as docs_dir of mkdocs.yml
# What the site has of the repository: a folder or a file, where the site has it, and the endings of the files
PLACES = {
    "docs": (".", {".css", ".md", ".png", ".svg"}),
    "lakeingest/runbooks": ("runbooks", {".md"}),
    "benchmarks/measured": ("measured", {".png"}),
    "infra": ("infra", {"", ".json", ".md", ".py", ".sql", ".yml"}),
    "lakeingest/cluster/templates": ("infra", {".json", ".yml"}),  # links in infra/ lead there
    "lakeingest/shipped/monitoring": ("infra/monitoring", {".json", ".yml"}),  # so does this one
    "CHANGELOG.md": ("changelog.md", {".md"}),
}


def place_of(path: Path) -> Path | None:
    """Where the site has a file of the repository, relative to the site; None if the site does not have it."""
    for name, (place, endings) in PLACES.items():
        if path.is_relative_to(ROOT / name) and path.suffix in endings:
            return place / path.relative_to(ROOT / name)
    return None


def for_site(path: Path, place: Path) -> str:
    """The Markdown of a page as the site has it."""
    parts = re.split(r"(?ms)^(```.*?^```$)", path.read_text())  # code that is no part of a list stays as it is
    text = "".join(part if part.startswith("```") else _for_site(part, path, place) for part in parts)
    return re.sub(r"(?m)^( *```sh) exit=\d+$", r"\1", text)  # the exit code is for the tests


def _for_site(text: str, path: Path, place: Path) -> str:
    """Text of a page without code blocks: links lead to where the site has the file, items have the wanted indent."""

    def led(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / link[1]))
        there = None if "://" in link[1] else place_of(target)
        return link[0] if there is None else f"]({os.path.relpath(there, place.parent)}"

    text = re.sub("(?m)^   (?=.)", " " * 4, re.sub(r"\]\(([^)\s#]+)", led, text))
    # an item after the second paragraph of another one, which Python-Markdown would take for a part of that paragraph
    return re.sub(r"(\n\n(?: {4}.*\n)+)(?=\d+\. )", r"\1\n", text)


def gather(folder: Path) -> None:
    """Write the files of the site into a folder. Removes everything that the folder has before."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted(one for name in PLACES for one in (ROOT / name, *(ROOT / name).rglob("*"))):
        place = place_of(path) if path.is_file() else None
        if place is not None:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                (folder / place).write_text(for_site(path, place))
            else:
                shutil.copyfile(path, folder / place)
    (folder / "llms.txt").write_text(overview())


def overview() -> str:
    """The text of llms.txt: what the site is about, and the pages of each part of its menu, in its order."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}."]
    for part in settings["nav"]:
        [(title, entry)] = part.items()
        lines += ["", f"## {title}", ""]
        for name, page in menu(title, entry):
            url = re.sub(r"(index|README)\.md$", "", page).replace(".md", "/")
            lines.append(f"- [{name}]({url or './'})")
    return "\n".join(lines) + "\n"


def menu(title: str, entry: Any) -> Iterator[tuple[str, str]]:
    """Each page of a part of the menu, with its title there, or the name of its file."""
    if isinstance(entry, str):
        yield title, entry
        return
    for one in entry:
        if isinstance(one, str):
            yield Path(one).stem, one
        else:
            [(name, inner)] = one.items()
            yield from menu(name, inner)


if __name__ == "__main__":
    gather(GATHERED)
