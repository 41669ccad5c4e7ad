"""docs/pins.md is complete: each private name of a library that lakeingest uses is there, and each pinned version."""

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "pins.md").read_text()
# Rows of the tables of private names, and of the table of versions: the cells that have something to prove
NAMES = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (`[^|]+`) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
VERSIONS = re.compile(r"^\| `([^`]*[=<][^`]*)` \| [^|]+ \| (`[^|]+`) \|$", re.MULTILINE)

# Private names of lakeingest's own classes, which other classes of the same package use
OURS = {
    "_adopts",
    "_default",
    "_read_added_column",
    "_entries",
    "_errors",
    "_folder_of",
    "_hash_key",
    "_key_id",
    "_markers",
    "_protect",
    "_shared",
}
OURS |= {"_commit", "_staging", "_table_with", "_timeline"}
# Private names that lakeingest gives to its classes, where these extend a class of a library
ADDED = {
    "AvroInput": {"_records"},
    "AvroOutput": {"_contents", "_text"},
    "BoundedConnection": {"_bytes_left", "_deadline", "_is_open", "_of_each", "_seconds", "_size"},
    "DatabaseCatalog": {"_known", "_next", "_swap_all", "_write"},
    "Driver": {
        "_chosen_context",
        "_context",
        "_first",
        "_is_open",
        "_key",
        "_log_in",
        "_probed_pin",
        "_protect",
        "_sealed",
        "_secret",
        "_settings",
        "_where",
    },
    "EmbeddedCatalog": {
        "_add_properties",
        "_assert_namespace",
        "_file",
        "_has_types",
        "_insert",
        "_is_table",
        "_names",
        "_reading",
        "_swap",
        "_swap_all",
        "_swap_in",
        "_transaction",
    },
    "KeptManifest": {"_read"},
    "OneTransaction": {"_after", "_applied", "_context", "_known"},
    "ParsingOnceSqlCatalog": {"_is_row_of", "_swap_all"},
    "RowDelta": {
        "_added",
        "_after",
        "_deletes",
        "_has_many_vectors",
        "_kind",
        "_manifest",
        "_removed",
        "_snapshot_updates",
    },
    "TimedRestCatalog": {"_change", "_compare_clocks", "_sent"},
    "_CheckedClient": {"_locked_at", "_timed"},
    "_Ended": {"_spans"},
    "_Locator": {"_line"},
    "_Probe": {"_chosen_context", "_log_in", "_protect"},
    "_Session": {"_note", "_status"},
    "_Synced": {"_path"},
    "_Writer": {"_columns"},
}

Touch = tuple[str, str]  # a private name, and the file that uses it


@cache
def sources() -> dict[str, tuple[ast.AST, ...]]:
    """All nodes of each file of lakeingest. A function, because it takes seconds: tests are collected without."""
    return {
        str(path.relative_to(ROOT)): tuple(ast.walk(ast.parse(path.read_text())))
        for path in (ROOT / "lakeingest").rglob("*.py")
    }


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def is_library(module: str | None) -> bool:
    """Whether a module belongs to neither lakeingest nor Python."""
    top = (module or "").partition(".")[0]
    return bool(top) and top != "lakeingest" and top not in sys.stdlib_module_names


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """What each name stands for that a file imports: a module, or a name with its module."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
    return found


@cache
def extending() -> set[str]:
    """The classes of lakeingest, with their modules, that extend a class of a library, also one over another.

    Those of pydantic do not count: nothing of it is private there, and a validator of ours has any name.
    """
    bases: dict[str, set[str]] = {}
    for file, nodes in sources().items():
        module, names = ".".join(Path(file).with_suffix("").parts), imported(nodes)
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                parts = [ast.unparse(base).partition("[")[0].partition(".") for base in node.bases]
                bases[f"{module}.{node.name}"] = {
                    names.get(top, f"{module}.{top}") + dot + rest for top, dot, rest in parts
                }
    found = {name for name, over in bases.items() if any(is_library(base) and "pydantic" not in base for base in over)}
    while more := {name for name, over in bases.items() if over & found} - found:
        found |= more
    return found


def defined(node: ast.ClassDef) -> Iterator[str]:
    """The names that a class defines: of its functions and of its own values."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef):
            yield member.name
        elif isinstance(member, ast.Assign | ast.AnnAssign):
            targets = member.targets if isinstance(member, ast.Assign) else [member.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def of_class(node: ast.ClassDef) -> Iterator[str]:
    """The names that a class defines, or uses of itself."""
    yield from defined(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in {"self", "cls"}:
            yield inner.attr


def of_node(node: ast.AST) -> Iterator[str]:
    """The names by which a node may use something private of a library."""
    match node:
        case ast.ImportFrom(module=module, names=names) if is_library(module):
            yield from (module or "").split(".")
            yield from (alias.name for alias in names)
        case ast.Import(names=names):
            yield from (part for alias in names if is_library(alias.name) for part in alias.name.split("."))
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return
        case ast.Attribute(attr=name) if name not in OURS:
            yield name
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"), args=[_, ast.Constant(value), *_]
        ):
            yield str(value)
        case ast.Call(func=func, args=names) if ast.unparse(func).endswith(("attrgetter", "methodcaller")):
            yield from (part for name in names if isinstance(name, ast.Constant) for part in str(name.value).split("."))
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Subscript(slice=ast.Constant(str(name)), ctx=ast.Store()):
            yield name


@cache
def touches() -> set[Touch]:
    """Every private name of a library, with each file that uses it."""
    found = set()
    for file, nodes in sources().items():
        module = ".".join(Path(file).with_suffix("").parts)
        for node in nodes:
            names = set(of_node(node))
            if isinstance(node, ast.ClassDef) and f"{module}.{node.name}" in extending():
                names |= set(of_class(node)) - ADDED.get(node.name, set())
            found |= {(name, file) for name in names if is_private(name)}
    return found


def quoted(cell: str) -> list[str]:
    """What a cell of a table has in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def is_within(file: str, place: str) -> bool:
    """Whether a file is the place, or in that folder."""
    return file == place or (place.endswith("/") and file.startswith(place))


LISTED = [(name, place) for names, where, _ in NAMES.findall(PAGE) for name in quoted(names) for place in quoted(where)]


def test_every_private_name_of_a_library_is_listed() -> None:
    """With the file, or its folder. A name of lakeingest's own belongs to OURS or ADDED above."""
    unlisted = [
        f"{file}: {name}"
        for name, file in sorted(touches())
        if not any(name == listed and is_within(file, place) for listed, place in LISTED)
    ]
    assert unlisted == []


def test_nothing_is_listed_that_is_not_used() -> None:
    """Each row has names of which each is used in one of its places, and each place uses one of them."""
    found = touches()
    for names, where, _ in NAMES.findall(PAGE):
        for name in quoted(names):
            assert any(name == used and is_within(file, place) for used, file in found for place in quoted(where)), name
        for place in quoted(where):
            used_there = {used for used, file in found if is_within(file, place)}
            assert used_there & set(quoted(names)), (names, place)


def test_what_a_class_overrides_is_there_in_its_library() -> None:
    """A private name that a library has given up would be ours alone: nothing would call it, and nothing would fail."""
    lost = {}
    for name in extending():
        module, _, class_name = name.rpartition(".")
        [node] = [
            node
            for node in sources()[f"{module.replace('.', '/')}.py"]
            if isinstance(node, ast.ClassDef) and node.name == class_name
        ]
        parents = getattr(importlib.import_module(module), class_name).__mro__[1:]
        of_library = [parent for parent in parents if not parent.__module__.startswith("lakeingest")]
        overridden = {one for one in defined(node) if is_private(one)} - ADDED.get(class_name, set())
        lost[name] = {one for one in overridden if not any(hasattr(parent, one) for parent in of_library)}
    assert len(lost) > 20
    assert {name: names for name, names in lost.items() if names} == {}


def test_every_version_with_a_limit_is_listed() -> None:
    """As pyproject.toml has it: who raises one reads the reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(one for extra in project["project"]["optional-dependencies"].values() for one in extra),
        *(one for group in project["dependency-groups"].values() for one in group if isinstance(one, str)),
    ]
    limited = {one for one in wanted if "==" in one.partition(";")[0] or "<" in one}
    assert {version for version, _ in VERSIONS.findall(PAGE)} == limited


def test_every_row_names_the_test_that_breaks_first() -> None:
    """A file that exists, or why there is none."""
    cells = [cell for *_, cell in [*NAMES.findall(PAGE), *VERSIONS.findall(PAGE)]]
    assert cells
    for cell in cells:
        files = quoted(cell)
        assert all((ROOT / file).is_file() for file in files), cell
        assert files or cell.startswith("none: "), cell


def test_a_private_name_is_found_however_it_is_used() -> None:
    """Imported, taken from an object or its parent, by its name as text, or as an option."""
    lines = (
        "from pyspark import _a",
        "import numba._b",
        "from numba._c import d",
        "x._d",
        "super()._e()",
        "getattr(x, '_f', None)",
        "attrgetter('a._g')(x)",
        "f(_h=1)",
        "options['_i'] = 1",
    )
    found = {name for node in ast.walk(ast.parse("\n".join(lines))) for name in of_node(node) if is_private(name)}
    assert found == {f"_{letter}" for letter in "abcdefghi"}
    assert not {
        name
        for node in ast.walk(ast.parse("self._a, x.__doc__, from_ + _"))
        for name in of_node(node)
        if is_private(name)
    }
