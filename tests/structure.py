"""Prints the structure of a checkout, to compare two of them: `python -m tests.structure [FOLDER]`.

Rooms are the files and folders directly in `lakeingest/pipeline/`. A room stands one floor above the highest one that
it imports. Two rooms that import each other in a circle have no floor.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.test_layers import arrows, assigned, between_siblings, circle, fields, sources_of

PIPELINE = "lakeingest.pipeline."


def floors(below: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """The floor of each room; `below` has no circle."""
    known: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in known:
            known[room] = max((floor(other) + 1 for other in below.get(room, ())), default=0)
        return known[room]

    for room in below:
        floor(room)
    return known


def longest(sources: Mapping[str, str]) -> list[tuple[int, str]]:
    """Each function with its number of lines, the longest first."""
    functions = (
        (node.end_lineno - node.lineno + 1, f"{name}.{node.name}")
        for name, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    )
    return sorted(functions, reverse=True)


def figures(folder: Path) -> Iterator[tuple[str, object]]:
    """What is counted in a checkout, each figure with its name."""
    sources = sources_of(folder / "lakeingest")
    imports = dict(arrows(sources))
    siblings = between_siblings(imports)
    rooms = {room: others for room, others in siblings.items() if room.startswith(PIPELINE) and room.count(".") == 2}
    yield "lines of Python", sum(len(source.splitlines()) for source in sources.values())
    yield "rooms of the pipeline", len(rooms.keys() | {other for others in rooms.values() for other in others})
    yield "arrows between them", sum(map(len, rooms.values()))
    yield "floors", "none, because of a circle" if circle(rooms) else max(floors(rooms).values()) + 1
    yield "a circle of files", circle(imports) or "none"
    yield "a circle of folders", circle(siblings) or "none"
    asking = [name for name in sources if name.startswith(("lakeingest.pipeline", "lakeingest.commands"))]
    uses_edge = [name for name in asking if any(".mysql." in other for other in imports[name])]
    yield "files of pipeline/ and commands/ that import the source edge", len(uses_edge)
    outside = [name for name in sources if not name.startswith(("lakeingest.mysql", "lakeingest.demo"))]
    drives = [name for name in outside if re.search(r"^\s*(import|from) pymysql", sources[name], re.MULTILINE)]
    yield "files outside mysql/ and demo/ that import the driver", len(drives)
    [run] = [name for name in sources if name.endswith(".table_run")]
    own = fields(sources[run])
    yield "fields of TableRun", len(own)
    stored = [target for name in sources if name != run for target in assigned(name, sources[name], own)]
    yield "assignments to fields of these names in other files", len(stored)
    port = ast.walk(ast.parse(sources["lakeingest.lake.target"]))
    protocols = [node for node in port if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)]
    members = {node.name: sum(isinstance(part, ast.FunctionDef) for part in node.body) for node in protocols}
    yield "members of the protocols in lake/target.py", members
    yield "longest functions", longest(sources)[:5]


if __name__ == "__main__":
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sys.stdout.writelines(f"{name}: {figure}\n" for name, figure in figures(checkout))
