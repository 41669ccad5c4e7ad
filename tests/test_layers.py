"""The arrows of the architecture, as tables: who may import whom, and how large a thing may grow.

An import counts wherever it stands: at the top, in a function, or for types alone, under TYPE_CHECKING.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lakeingest"


def sources_of(package: Path) -> dict[str, str]:
    """The source of each module of a package, by the module's name."""
    return {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): path.read_text()
        for path in package.rglob("*.py")
    }


SOURCES = sources_of(PACKAGE)

MODULES = {name.removesuffix(".__init__") for name in SOURCES}
_NAMED = re.compile(r"(?:(?:import|from) )?(lakeingest(?:\.\w+)+)")  # a string that names a module, or imports one

EDGES = {"mysql", "lake", "spark", "quality", "spool", "state", "cluster"}
BELOW = {"rows", "config", "core", "files", "disk", "latest", "side_by_side", "version"}

# A room may import itself, `errors`, and what stands here. `__init__` is the root with the public names; `api` keeps
# the session of Spark from call to call, and `cli` stops it at the end of a command.
ARROWS: dict[str, set[str]] = {
    "__main__": {"cli"},
    "__init__": {"api", "config", "version"},
    "api": {"api_signals", "notebook", "commands", "pipeline", "drawing", "spark", "config"},
    "api_signals": {"commands", "pipeline", "config"},
    "cli_options": {"commands", "console", "terminal", "config", "core", "disk", "late_imports"},
    "cli_checks": {"cli_options", "commands", "console"},
    "cli_points": {"cli_options", "commands", "console", "terminal"},
    "cli_quarantine": {"cli_options", "commands", "console", "terminal"},
    "cli_signals": {"cli_options", "commands", "console", "terminal", "config"},
    "cli_submit": {"cli_options", "commands", "console", "terminal", "termination"},
    "cli": {
        "__init__",
        "cli_checks",
        "cli_options",
        "cli_points",
        "cli_quarantine",
        "cli_signals",
        "cli_submit",
        "commands",
        "committed",
        "console",
        "demo",
        "exits",
        "late_imports",
        "recording",
        "spark",
        "terminal",
        "termination",
        "config",
    },
    "recording": {"committed", "console", "exits", "terminal", "config", "files", "state"},
    "committed": {"pipeline", "core"},
    "bars": {"pipeline", "core"},
    "console": {"bars", "commands", "monitoring", "pipeline", "terminal", "config", "core"},
    "notebook": {"demo", "commands", "monitoring", "pipeline", "drawing", "config", "core"},
    "demo": {"commands", "console", "pipeline", "mysql", "config", "core", "spark", "disk"},
    "commands": {"monitoring", "pipeline", "workers", "drawing"} | EDGES | BELOW,
    "monitoring": {"exits", "termination", "pipeline", "drawing", "state"} | BELOW,
    "pipeline": EDGES | BELOW,
    **dict.fromkeys(EDGES, BELOW),
    "mysql": {"mysql.wire", "mysql.witness"} | BELOW,
    "spool": {"state"} | BELOW,  # its manifests are files of the state folder
    "spark": {"workers", "late_imports"} | BELOW,  # Spark starts its Python workers by the module's name
    "workers": {"late_imports", "pipeline", "mysql.wire"} | EDGES,
    "cluster": {"mysql.wire"} | BELOW,  # it has the kernels compiled, and ships them
    "mysql.wire": {"rows", "core", "disk"},  # bytes in, Arrow out: it opens no socket
    "mysql.witness": {"mysql.wire", "rows", "core"},
    "lake": {"lake.iceberg", "lake.hudi"} | BELOW,
    "lake.iceberg": {"lake"} | BELOW,  # one format knows nothing of the other
    "lake.hudi": {"lake", "lake.staged"} | BELOW,
    "lake.staged": {"lake"} | BELOW,  # staging for any format without branches: it knows none of them
    "rows": {"core"},
    "config": {"core"},
    "files": {"config", "disk"},
    "drawing": {"core"},
    "core": set(),
    "disk": set(),
    "latest": set(),
    "side_by_side": set(),
    "late_imports": {"late_methods"},
    "late_methods": set(),
    "exits": {"core", "termination"},
    "terminal": {"core"},
    "termination": set(),
    "version": set(),
    "errors": set(),
}

# The rooms of `pipeline/`, from the top floor down: a room may import itself, `events`, and what stands here.
ROOMS: dict[str, set[str]] = {
    "rounds": {
        "proving",
        "signals",
        "points",
        "catch_up",
        "joining",
        "copying",
        "schema",
        "binlog",
        "preconditions",
        "run",
    },
    "signals": {
        "catch_up",
        "joining",
        "rereads",
        "copying",
        "schema",
        "merging",
        "publishing",
        "binlog",
        "rolling_back",
        "points",
        "run",
    },
    "opening": {"companions", "joining", "schema", "binlog", "preconditions", "rolling_back", "run"},
    "proving": {"rereads", "schema", "run"},
    "catch_up": {"joint_round", "cascades", "schema", "publishing", "binlog", "run"},
    "joint_round": {"cascades", "schema", "publishing", "run"},
    "joining": {"schema", "binlog", "preconditions", "run"},
    "cascades": {"rereads", "schema", "merging", "binlog", "run"},
    "schema": {"merging", "publishing", "binlog", "run"},
    "copying": {"merging", "publishing", "binlog", "run"},
    "rereads": {"binlog", "run"},
    "merging": {"run"},
    "publishing": {"run"},
    "binlog": {"run"},
    "preconditions": {"run"},
    "rolling_back": set(),
    "points": {"run"},
    "companions": {"changelog", "run"},
    "changelog": set(),
    "run": set(),
    "events": set(),
}

# What the pipeline may use of `mysql/`: the port, what its preconditions ask, and what executors read with.
PORT = {"source", "binlog_source", "failover", "preflight", "connection"}
EXECUTORS = {"chunk_reader", "binlog_reader", "key_values", "keyed_rows", "second_reading", "checksum"}

# The driver of MySQL is for its edge, and for the demo's own server.
DRIVER = "pymysql"
MAY_DRIVE = {"mysql", "mysql.witness", "demo"}

# The core has no clock, no log, no chance and no way out of the process.
IMPURE = {"asyncio", "logging", "os", "random", "socket", "subprocess", "tempfile", "threading", "time"}

# What turns bytes into Arrow gets them from its caller. (Of `socket` it may use what formats addresses.)
SOCKETS = {"pymysql", "ssl"}

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
COMMITS = {"create", "start_over", "commit_wave", "mark", "lift", "go_back", "discard", "maintain"}  # of a target
DOCUMENT_WRITERS = {
    *(
        "keep_definition",
        "keep_suspect",
        "keep_found",
        "keep_layout",
        "keep_next",
        "keep_first_position",
        "keep_restart",
    )
}


def test_imports_follow_the_arrows() -> None:
    """Every import of the package, also a late one inside a function, goes where the table allows it."""
    assert [wrong for name, source in SOURCES.items() for wrong in wrong_imports(name, source)] == []


def test_no_files_and_no_folders_import_each_other_in_a_circle() -> None:
    """Whoever reads a file has read all that it needs once he has come to the ground."""
    imports = dict(arrows(SOURCES))
    assert circle(imports) == []
    assert circle(between_siblings(imports)) == []


def test_the_rooms_of_the_pipeline_stand_on_floors() -> None:
    """Each room stands above all that it may import, and each stands in the table."""
    order = list(ROOMS)
    assert [
        (room, below) for room, may in ROOMS.items() for below in may if order.index(below) <= order.index(room)
    ] == []
    assert {pipeline_room(name) for name in MODULES} - {None} == ROOMS.keys()


def test_a_table_run_alone_assigns_its_fields() -> None:
    """Stages say what has happened to a table; what that means for its state stands in one file."""
    pipeline = {name: source for name, source in SOURCES.items() if name.startswith("lakeingest.pipeline.")}
    owner = pipeline.pop("lakeingest.pipeline.run.table_run")
    assert [wrong for name, source in pipeline.items() for wrong in assigned(name, source, fields(owner))] == []


def test_a_stage_commits_only_while_the_lease_is_held() -> None:
    """By `edges.committing`, and by `edges.writing` for documents. A merge asserts it by itself after its work."""
    pipeline = {name: source for name, source in SOURCES.items() if name.startswith("lakeingest.pipeline.")}
    assert [wrong for name, source in pipeline.items() for wrong in unguarded(name, source)] == []


def test_one_place_chooses_the_decoder() -> None:
    """Nothing else knows the slow ones, or the variable that selects them; they are imported where they are used."""
    chooser = "lakeingest.mysql.decoders"
    slow = ("lakeingest.mysql.witness", "lakeingest.mysql.text_rows", "lakeingest.mysql.second_rows")
    users = {name for name, used in arrows(SOURCES) for one in used if one.startswith(slow)}
    assert {name for name in users if not name.startswith(slow)} == {chooser}
    at_the_top = [node for node in ast.parse(SOURCES[chooser]).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [one for node in at_the_top for one in imported([node], chooser) if one.startswith(slow)]
    assert [name for name, source in SOURCES.items() if '"LAKEINGEST_WIRE"' in source] == [chooser]


def test_files_and_functions_stay_small() -> None:
    """No file has more than 400 lines and no function more than 70."""
    assert [wrong for name, source in SOURCES.items() for wrong in too_large(name, source)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("lakeingest.mysql.chunk_reader", "from lakeingest.lake.target import Target"),
        ("lakeingest.lake.iceberg.target", "def write():\n    import lakeingest.spark.session"),
        ("lakeingest.spark.scatter", "from lakeingest import core, pipeline"),
        ("lakeingest.quality.gates", "from ..state import lease"),
        ("lakeingest.cluster.archive", "from lakeingest.spark.session import settings"),
        ("lakeingest.spool.spool", "import importlib\nimportlib.import_module('lakeingest.mysql')"),
        ("lakeingest.demo.__init__", "from .. import lake"),
        ("lakeingest.cli", "from lakeingest.core.tables.keys import Key"),
        ("lakeingest.mysql.wire.rows", "from lakeingest import config"),
        ("lakeingest.mysql.wire.rows", "import pymysql"),
        ("lakeingest.mysql.wire.rows", "from lakeingest.mysql.connection import query"),
        ("lakeingest.spark.session", "DAEMON = 'lakeingest.pipeline.merging.merge'"),
        ("lakeingest.spark.session", "COMMAND = ['-c', 'import lakeingest.pipeline.merging.merge']"),
        ("lakeingest.spark.session", "ENTRY = 'lakeingest.mysql.connection:connect'"),
        ("lakeingest.spark.session", "ROOM = 'lakeingest.mysql'"),
        ("lakeingest.lake.hudi.target", "from lakeingest.lake.iceberg.commits.commit import commit"),
        ("lakeingest.lake.iceberg.target", "from lakeingest.lake.hudi import timeline"),
        ("lakeingest.lake.staged.staging", "from lakeingest.lake.hudi.timeline import Instant"),
        ("lakeingest.lake.target", "from lakeingest.lake.staged.target import StagedTarget"),
        ("lakeingest.pipeline.opening.opening", "from lakeingest.commands.check import check"),
        ("lakeingest.pipeline.run.table_run", "from lakeingest.pipeline.signals.resnapshot import Reading"),
        (
            "lakeingest.pipeline.merging.merge",
            "if TYPE_CHECKING:\n    from lakeingest.pipeline.schema.lifting import reload",
        ),
        ("lakeingest.pipeline.joining.over_gap", "from lakeingest.pipeline import catch_up"),
        ("lakeingest.pipeline.signals.documents", "def look():\n    import lakeingest.pipeline.rounds.due"),
        ("lakeingest.pipeline.rereads.tasks", "from ..copying import planner"),
        ("lakeingest.pipeline.attic.boxes", "import time"),
        ("lakeingest.mysql.wire.rows", "from lakeingest import Pipeline"),
        ("lakeingest.core.waves.wave", "import pyarrow as pa"),
        ("lakeingest.core.waves.wave", "from time import monotonic"),
        ("lakeingest.core.waves.wave", "from ...wire import rows"),
        ("lakeingest.config", "from lakeingest.mysql.wire import rows"),
        ("lakeingest.pipeline.copying.planner", "from lakeingest.mysql.key_space import estimated_rows"),
        ("lakeingest.pipeline.copying.planner", "from lakeingest.mysql.wire.rows import Rows"),
        ("lakeingest.pipeline.copying.planner", "import pymysql"),
        ("lakeingest.commands.plan", "from pymysql.err import Error"),
        ("lakeingest.errors", "import lakeingest.config"),
        ("lakeingest.unheard_of", "from lakeingest.errors import Retryable"),
    ],
)
def test_a_wrong_arrow_is_found(module: str, source: str) -> None:
    """A forbidden import is reported in whatever form it is written, and nothing beside it."""
    assert len(wrong_imports(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "lakeingest.commands.run",
            "from lakeingest import config, mysql\nfrom lakeingest.lake.target import Target",
        ),
        ("lakeingest.mysql.chunk_reader", "import time, pymysql\nfrom lakeingest.errors import Retryable"),
        ("lakeingest.lake.hudi.target", "from lakeingest.lake.staged.target import StagedTarget"),
        ("lakeingest.core.waves.wave", "import enum\nfrom . import keys\nfrom lakeingest import errors"),
        ("lakeingest.core.__init__", "from .keys import Key"),
        ("lakeingest.cli", "from lakeingest import __version__"),
        ("lakeingest.pipeline.copying.planner", "from lakeingest.mysql.source import Source"),
        ("lakeingest.pipeline.preconditions", "from lakeingest.mysql.preflight.server import Server"),
        ("lakeingest.pipeline.rounds.follow", "from lakeingest.pipeline import catch_up, events, preconditions"),
        ("lakeingest.pipeline.schema.lifting", "from ..merging.merge import merge\nfrom . import unseen_ddl"),
    ],
)
def test_a_right_arrow_passes(module: str, source: str) -> None:
    """What the table allows is not reported."""
    assert wrong_imports(module, source) == []


def test_a_circle_is_found() -> None:
    """Of files, also where a type alone closes it; and of folders, of which no two files import each other."""
    files = {
        "lakeingest.core.a": "from lakeingest.core.b import B",
        "lakeingest.core.b": "if TYPE_CHECKING:\n    from lakeingest.core.a import A",
    }
    assert sorted(set(circle(dict(arrows(files))))) == sorted(files)
    folders = {
        "lakeingest.core.left.a": "import lakeingest.core.right.b",
        "lakeingest.core.right.b": "",
        "lakeingest.core.right.c": "def f():\n    from lakeingest.core.left import d",
        "lakeingest.core.left.d": "",
    }
    imports = dict(arrows(folders))
    assert circle(imports) == []
    assert set(circle(between_siblings(imports))) == {"lakeingest.core.left", "lakeingest.core.right"}


def test_an_assignment_from_outside_is_found() -> None:
    """Alone, in a tuple, with a type, and added to; one to a name, or to an own field, is none."""
    names = {"watch", "copy"}
    source = "table.watch = 1\nx, run.tables[0].copy = 2, 3\ntable.copy: int = 4\nother.watch += 5\n"
    found = {f"a: {one}" for one in ("table.watch", "run.tables[0].copy", "table.copy", "other.watch")}
    assert set(assigned("a", source, names)) == found
    assert assigned("a", "watch = 1\nself.copy = table.copy\ntable.other = 2", names) == []


def test_a_commit_without_the_lease_is_found() -> None:
    """One that is guarded is right, and so is what commits nothing."""
    source = "edges.target.mark(a, b)\nself._edges.target.lift(a)\nedges.committing.mark(a, b)\nedges.target.read(a)\n"
    source += (
        "keep_first_position(edges.state, a)\nkeep_first_position(edges.writing, a)\ndefinition_of(edges.state, a)\n"
    )
    assert unguarded("a", source) == [
        "a: edges.target.mark",
        "a: self._edges.target.lift",
        "a: keep_first_position(edges.state, a)",
    ]


def test_a_thing_too_large_is_found() -> None:
    """The size rules see the one line too many, in a file and in a method."""
    method = "class A:\n    def f(self):\n" + "        pass\n" * (FUNCTION_LINES_MAX - 1)
    assert too_large("a", method) == []
    assert too_large("a", method + "        pass\n") == ["a.f: 71 lines"]
    assert too_large("a", "\n" * FILE_LINES_MAX) == []
    assert too_large("a", "\n" * (FILE_LINES_MAX + 1)) == ["a: 401 lines"]


@cache
def nodes(source: str, module: str) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a module's source, which nobody changes."""
    return tuple(ast.walk(ast.parse(source, module)))


def wrong_imports(module: str, source: str) -> list[str]:
    """The imports of a module's source that no arrow allows, as `module -> imported`."""
    room = room_of(module)
    if room not in ARROWS:
        return [f"{module}: no arrows are drawn for it"]
    inner = pipeline_room(module)
    if inner is not None and inner not in ROOMS:
        return [f"{module}: the room {inner} stands on no floor"]
    tree = nodes(source, module)
    names = dict.fromkeys(chain(imported(tree, module), named(tree)))
    return [f"{module} -> {name}" for name in names if not (is_allowed(room, name) and is_below(inner, name))]


def room_of(module: str) -> str:
    """The part of the package that a module is in; what is not drawn is a name of the root."""
    below = module.split(".")[1:]
    inner = ".".join(below[:2])
    return inner if inner in ARROWS else below[0] if below else "__init__"


def pipeline_room(module: str) -> str | None:
    """The room of `pipeline/` that a module is in; None outside, and for the folder itself."""
    parts = module.removesuffix(".__init__").split(".")
    return parts[2] if parts[:2] == ["lakeingest", "pipeline"] and len(parts) > 2 else None


def is_below(room: str | None, name: str) -> bool:
    """Whether a room of `pipeline/` may import a module, as far as that is of `pipeline/`, too."""
    other = pipeline_room(name)
    return room is None or other is None or other in ROOMS[room] | {room, "events"}


def is_allowed(room: str, name: str) -> bool:
    """Whether a room may import a module; third parties are for all but the pure rooms."""
    top = name.partition(".")[0]
    if top == "lakeingest":
        target = room_of(name)
        if room == "pipeline" and target.partition(".")[0] == "mysql" and not is_of_port(name):
            return False
        return (target if target in ARROWS else "__init__") in ARROWS[room] | {room, "errors"}
    if room == "mysql.wire":
        return top not in SOCKETS
    if top == DRIVER:
        return room in MAY_DRIVE
    return room != "core" or (top in sys.stdlib_module_names and top not in IMPURE)


def is_of_port(name: str) -> bool:
    """Whether a module of `mysql/` is one that the pipeline may use."""
    parts = name.split(".")
    return len(parts) > 2 and parts[2] in PORT | EXECUTORS


def imported(tree: Iterable[ast.AST], module: str, modules: Collection[str] = MODULES) -> Iterator[str]:
    """Every module that a source imports, absolute and at any depth."""
    for node in tree:
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(name, names, level):
                parents = module.split(".")[:-level] if level else []
                base = ".".join([*parents, *([name] if name else [])])
                full = [f"{base}.{alias.name}" for alias in names]
                yield from full if base == "lakeingest" else (one if one in modules else base for one in full)
            case ast.Call(
                ast.Attribute(attr="import_module") | ast.Name("import_module"), [ast.Constant(str(name)), *_]
            ):
                yield name


def named(tree: Iterable[ast.AST]) -> Iterator[str]:
    """Each module of ours that a string of a source names."""
    for node in tree:
        match node:
            case ast.Constant(str(text)) if found := _NAMED.match(text):
                yield from [found[1]] if found[1] in MODULES or found[1].rpartition(".")[0] in SOURCES else []


def arrows(sources: Mapping[str, str]) -> Iterator[tuple[str, set[str]]]:
    """Each file of these, and the ones that it imports; the file of a package is `package.__init__`."""
    files = {name.removesuffix(".__init__"): name for name in sources}
    for name, source in sources.items():
        asked = imported(nodes(source, name), name, files)
        yield name, {files.get(one) or files.get(one.rpartition(".")[0]) or name for one in asked} - {name}


def between_siblings(imports: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Whom each file or folder imports of those that are in the same folder as itself."""
    found: dict[str, set[str]] = {}
    for name, others in imports.items():
        for other in others:
            parts = list(zip(name.split("."), other.split("."), strict=False))
            depth = next(at for at, (one, two) in enumerate(parts) if one != two) + 1
            ours, theirs = (".".join(one.split(".")[:depth]) for one in (name, other))
            found.setdefault(ours, set()).add(theirs)
    return found


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """A circle of these arrows, from one to the next and back to the first; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def fields(source: str) -> set[str]:
    """The fields of the class TableRun, as its source declares them."""
    [owner] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "TableRun"]
    declared = (node.target for node in owner.body if isinstance(node, ast.AnnAssign))
    return {target.id for target in declared if isinstance(target, ast.Name)}


def assigned(module: str, source: str, names: Collection[str]) -> list[str]:
    """The attributes with these names that a source assigns, but not those of `self`."""
    stored = (node for node in nodes(source, module) if isinstance(node, ast.Attribute))
    outside = (node for node in stored if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self")
    return [f"{module}: {ast.unparse(node)}" for node in outside if node.attr in names]


def unguarded(module: str, source: str) -> list[str]:
    """The calls of a source that commit or write a document, and before which nobody asserts that the lease is held."""
    calls = [node for node in nodes(source, module) if isinstance(node, ast.Call)]
    commits = (call.func for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in COMMITS)
    found = [ast.unparse(func) for func in commits if ast.unparse(func.value).endswith(".target")]
    writes = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in DOCUMENT_WRITERS)
    found += [ast.unparse(call) for call in writes if ast.unparse(call.args[0]).endswith(".state")]
    return [f"{module}: {call}" for call in found]


def too_large(module: str, source: str) -> list[str]:
    """The file and the functions of a module's source that are longer than they may be."""
    found = [(module, len(source.splitlines()), FILE_LINES_MAX)]
    for node in nodes(source, module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found.append((f"{module}.{node.name}", lines, FUNCTION_LINES_MAX))
    return [f"{name}: {lines} lines" for name, lines, most in found if lines > most]
