"""The page about the architecture: the files of its journeys lead to each other, and it has each file of the state."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.structure import PIPELINE, floors
from tests.test_layers import SOURCES, arrows, between_siblings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PARTS = PAGE.partition("## Five journeys, file by file\n")[2].partition("\n## ")[0].split("\n\n")
JOURNEYS = {title[1]: part for part in PARTS if (title := re.match(r"\*\*(.+?)\.\*\*", part))}
FILE = re.compile(r"`((?:lakeingest|docs|infra)/[\w./-]+)`")


@cache
def imports() -> dict[str, set[str]]:
    """Whom each file of the package imports. A function, because it takes seconds: tests are collected without."""
    return dict(arrows(SOURCES))


def files_of(journey: str) -> list[str]:
    """The files that a paragraph names, in its order."""
    return FILE.findall(journey)


def leads(one: str, other: str, names: set[str]) -> bool:
    """Whether one of two neighbours imports the other; if one is no module, whether it is named, or shares a name.

    A module names such a file if it has the name of its folder as a text.
    """
    if one.endswith(".py") and other.endswith(".py"):
        ours, theirs = (path.removesuffix(".py").replace("/", ".") for path in (one, other))
        return theirs in imports()[ours] or ours in imports()[theirs]
    texts = [(ROOT / path).read_text() for path in (one, other)]
    folders = {f'"{Path(path).parent.name}"' for path in (one, other) if not path.endswith(".py")}
    return any(name in texts[0] + texts[1] for name in folders) or any(
        all(name in text for text in texts) for name in names
    )


def broken(journey: str) -> Iterator[str]:
    """The neighbours in a journey that do not lead to each other."""
    names = set(re.findall(r"`(\w+)`", journey))
    for one, other in pairwise(files_of(journey)):
        if not leads(one, other, names):
            yield f"{one} and {other}"


def test_the_page_has_the_five_journeys() -> None:
    """Of a run, a change, an option, an error and a metric; each is long enough to be one."""
    assert [title.split()[1].strip(",") for title in JOURNEYS] == ["run", "change", "option", "error", "metric"]
    assert min(len(files_of(journey)) for journey in JOURNEYS.values()) >= 7


def test_every_file_of_the_page_exists() -> None:
    """Also those in the tables; a folder is named with a slash at its end."""
    assert [name for name in FILE.findall(PAGE) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("title", JOURNEYS)
def test_each_file_of_a_journey_leads_to_the_next(title: str) -> None:
    """By an import, or by a name."""
    assert list(broken(JOURNEYS[title])) == []


@pytest.mark.parametrize(
    "journey",
    [
        "`lakeingest/cli.py` and `lakeingest/core/waves/wave.py`",  # two modules that do not know each other
        "`lakeingest/errors.py` and `infra/monitoring/dashboard.json` by `lag_bytes`",  # a name that one of them lacks
        "`lakeingest/exits.py` and `lakeingest/runbooks/UnsupportedValue.md`",  # the module names no runbooks
    ],
)
def test_a_wrong_journey_is_found(journey: str) -> None:
    """So the test above can fail."""
    assert len(list(broken(journey))) == 1


def test_every_room_of_the_package_is_in_the_tables() -> None:
    """So is each room of the pipeline. Files whose names begin with `__` say nothing that the others do not."""
    rooms = PAGE.partition("## Packages\n")[2].partition("\n## The journey of a chunk")[0]
    named = {name.rstrip("/").rpartition("/")[2] for name in re.findall(r"`([\w./]+)`", rooms)}
    folders = ROOT / "lakeingest", ROOT / "lakeingest" / "pipeline"
    there = {path.name for folder in folders for path in folder.iterdir() if not path.name.startswith("__")}
    assert {name for name in there if not name.endswith((".md", ".typed"))} - named == set()


def test_every_room_of_the_pipeline_stands_on_the_floor_that_the_page_says() -> None:
    """`tests.structure` tells the floors."""
    table = PAGE.partition("## The rooms of a run\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d) \| (.+?) \|", table, re.MULTILINE)
    said = {name: int(floor) for floor, rooms in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", rooms)}
    rooms = {room: others for room, others in between_siblings(imports()).items() if room.startswith(PIPELINE)}
    stands = floors({room: others for room, others in rooms.items() if room.count(".") == PIPELINE.count(".")})
    assert said == {room.removeprefix(PIPELINE): floor for room, floor in stands.items()}


def test_every_file_of_the_state_is_on_the_page() -> None:
    """By the constants in which the modules of the state have the names."""
    modules = [source for name, source in SOURCES.items() if name.startswith("lakeingest.state.")]
    assigned = [node for source in modules for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    names = {
        str(value.value)
        for node in assigned
        for name, value in pairs(node.targets[0], node.value)
        if ast.unparse(name) in {"FOLDER", "NAME", "BUDGET", "AUDIT", "DIFFERENCES"} and isinstance(value, ast.Constant)
    }
    named = set(re.findall(r"`([\w.]+)/?`", PAGE.partition("## State\n")[2]))
    assert len(names) > 15
    assert names - named == set()


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The names of an assignment with their values, of which there may be several."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value
