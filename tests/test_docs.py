"""What the README, the documents, the runbooks and the sources say is so."""

import ast
import importlib.util
import inspect
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from lakeingest import Pipeline, cli, errors, exits, terminal
from lakeingest.config import Config, parse_config
from lakeingest.errors import LakeIngestError, NotBuiltYet

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RUNBOOKS = {path.stem: path.read_text() for path in (ROOT / "lakeingest" / "runbooks").glob("*.md")}
INDEX = RUNBOOKS.pop("README")
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
README_LINES_MAX, CONTRIBUTING_LINES_MAX = 120, 80
PACKAGE_PAGES = {  # what each of these packages owns, and what must stay true in it
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((ROOT / "lakeingest").rglob("README.md"))
    if path.parent.name != "runbooks"
}
PACKAGE_LINES_MAX, WIDTH_MAX = 75, 120
REFERENCE = "cli", "configuration", "ddl", "metrics", "platforms", "session-variables", "types"
GENERATED = {f"docs/reference/{name}.md" for name in REFERENCE}
TEXTS = {
    name: (ROOT / name).read_text()
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "infra/README.md", "tests/README.md")
} | (PACKAGE_PAGES | PAGES)
SOURCES = sorted(path for path in (ROOT / "lakeingest").rglob("*") if path.suffix in {".py", ".sql", ".yml"})
ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, LakeIngestError) and error.__module__ == errors.__name__
]


CODES = {error.__name__: error.exit_code for error in ERRORS} | {"InternalError": exits.EXIT_INTERNAL}


def blocks(language: str, text: str = README) -> str:
    """All code blocks of a text in one language."""
    found = re.findall(rf"^ *```{language}(?: exit=\d+)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return textwrap.dedent("\n".join(found))


def fences(language: str, text: str) -> list[str]:
    """The code blocks of a text in one language, one by one."""
    return [textwrap.dedent(found) for found in re.findall(rf"(?ms)^ *```{language}\n(.*?)^ *```", text)]


def group() -> TyperGroup:
    """The command line as Typer has built it."""
    built = typer.main.get_command(cli.app)
    assert isinstance(built, TyperGroup)
    return built


WITH_COMMANDS = {"README.md": README, "runbooks": INDEX} | {f"runbooks/{name}": text for name, text in RUNBOOKS.items()}


@pytest.mark.parametrize("name", WITH_COMMANDS | TEXTS)
def test_every_command_of_a_text_exists(name: str) -> None:
    """Each `lakeingest` line of a shell block, and each `lakeingest …` in the text, is a command that is built."""
    commands = group().commands
    text = (TEXTS | WITH_COMMANDS)[name]
    text = re.sub(r"^ *```text\n.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)  # messages name what is not built
    lines = re.findall(r"^ *lakeingest ([a-z][^#\n|>]*)", blocks("sh", text), re.MULTILINE)
    lines += re.findall(r"`lakeingest ([a-z][^`]*)`", text)
    assert lines or name not in WITH_COMMANDS
    for line in lines:
        command, *arguments = shlex.split(line)
        assert command in commands, line
        known = {option for parameter in commands[command].params for option in parameter.opts} | {"--debug"}
        assert {argument for argument in arguments if argument.startswith("-")} <= known, line


@pytest.mark.parametrize("name", TEXTS)
def test_options_that_a_text_names_exist(name: str) -> None:
    """Every `--option` in a text belongs to a command."""
    commands = group().commands.values()
    known = {option for command in commands for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", TEXTS[name])) <= known | {"--version", "--debug", "--help"}


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if blocks("yaml", text)])
def test_a_complete_example_is_a_pipeline(name: str) -> None:
    """The YAML that a reader copies is understood as it is; README and quickstart have such an example."""
    doc = yaml.safe_load(blocks("yaml", TEXTS[name]).replace("${MYSQL_PASSWORD}", "secret"))
    assert Config.model_validate(doc).name == "shop"


def test_readme_and_quickstart_have_a_complete_example() -> None:
    """A reader of only one of them can begin."""
    assert blocks("yaml", README)
    assert blocks("yaml", PAGES["docs/quickstart.md"])


EXAMPLES = [(name, text) for name, page in PAGES.items() for text in fences("yml", page) if "expectations:" not in text]


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_a_part_of_a_pipeline_is_understood(name: str, text: str) -> None:
    """Each part that a page shows is taken by a pipeline.yml; one with `submit` is for a cluster."""
    part = yaml.safe_load(text)
    doc = {"name": "shop", "source": {"host": "db.example.com", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    environment = dict.fromkeys(re.findall(r"\$\{(\w+)", text), "x" * 16)
    assert parse_config(doc | part, ROOT, environment, cluster="submit" in part).tables.include, name


PYTHON = [(name, code) for name, text in TEXTS.items() for code in fences("python", text)]


@pytest.mark.parametrize(("name", "code"), PYTHON, ids=[name for name, _ in PYTHON])
def test_an_example_in_python_uses_what_there_is(name: str, code: str) -> None:
    """It can be parsed, and each attribute of its pipeline is one of Pipeline."""
    used = [
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pipeline"
    ]
    assert used, name
    assert all(hasattr(Pipeline, attribute) for attribute in used)


def test_keys_that_the_limits_name_are_not_built_yet() -> None:
    """Each is refused as such; a key that is built leaves the page."""
    part = PAGES["docs/guarantees.md"].partition("The keys of pipeline.yml that are not built yet:")[2]
    named = {
        key for line in part.splitlines() if line.startswith("- ") for key in re.findall(r"`([a-z_.-]+)[`:]", line)
    }
    options = ("chunk_key",)
    given: dict[str, Any] = {
        "tables.startup": {
            "tables": {"include": ["shop.*"], "startup": "adopt"},
            "target": {"format": "hudi"},
        },
        **{key: {"tables": {"include": ["shop.*"], "options": {"*.*": {key: "x"}}}} for key in options},
        "target.table": {"target": {"table": "lake.orders", "format": "hudi"}},
        "changelog.table": {"changelog": {"table": True}, "target": {"format": "hudi"}},
    }
    assert named - {"adopt", "tables.options"} == given.keys()
    doc = {"name": "shop", "source": {"host": "db.example.com", "user": "lake"}, "tables": {"include": ["shop.*"]}}
    for key, part_of_it in given.items():
        with pytest.raises(NotBuiltYet, match=key.rpartition(".")[2]):
            parse_config(doc | part_of_it, ROOT, {})


def test_keys_that_other_tools_have_are_on_the_page_of_limits() -> None:
    """What the comparison says is not built is refused; a key that is built leaves that page, too."""
    lacking = PAGES["docs/comparison.md"].partition("## What lakeingest does not do")[2].partition("\n## ")[0]
    keys = set(re.findall(r"`([a-z_.]+)`", lacking)) - {"tables.options"}
    assert "chunk_key" in keys
    assert keys <= set(re.findall(r"`([a-z_.-]+)[`:]", PAGES["docs/guarantees.md"].partition("not built yet:")[2]))


def test_the_exit_codes_of_the_documents_are_those_of_the_classes() -> None:
    """The table has every code that a command can end with, and no other."""
    page = PAGES["docs/howto/schedule-runs.md"]
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    raised = {error.exit_code for error in ERRORS}
    assert table == {0} | raised | {exits.EXIT_INTERNAL, exits.EXIT_INTERRUPTED, terminal.EXIT_CLOSED_PIPE}


def test_the_first_pages_are_read_in_minutes() -> None:
    """What needs more room has a page of its own."""
    assert len(README.splitlines()) <= README_LINES_MAX
    assert len(TEXTS["CONTRIBUTING.md"].splitlines()) <= CONTRIBUTING_LINES_MAX


def test_every_variable_that_widens_tests_is_in_their_page() -> None:
    """So that nobody has to search the tests for it."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    read = {*re.findall(r"""environ(?:\.get\(|\[)"(LAKEINGEST_\w+)""", tests)}
    assert len(read) > 30
    assert read - {*re.findall(r"LAKEINGEST_[A-Z_]+", TEXTS["tests/README.md"])} == set()


def script(name: str) -> ModuleType:
    """A script of docs/, which is in no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_reference_page_is_current(name: str) -> None:
    """It is what the code says now; `make docs` makes it anew."""
    made = {f"docs/reference/{page}": make for page, make in script("generate").PAGES.items()}
    assert made.keys() == GENERATED
    assert PAGES[name] == made[name]()


def links(text: str) -> list[str]:
    """Where a text's links and pictures lead, code left out."""
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as forges and Python-Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [*TEXTS, "lakeingest/runbooks/README.md"])
def test_links_lead_somewhere(name: str) -> None:
    """Every link within the repository leads to a file, and to a heading where it names one."""
    for link in links((ROOT / name).read_text()):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            there = (ROOT / name).parent / path if path else ROOT / name
            assert there.is_file(), f"{name}: {link}"
            if there.suffix == ".png":  # the site shows it in this mode alone
                assert anchor in {"", "only-light", "only-dark"}, f"{name}: {link}"
            else:
                assert not anchor or anchor in anchors(there.read_text()), f"{name}: {link}"


def test_every_page_can_be_reached() -> None:
    """From the README, link by link; runbooks are reached through their list."""
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += [page.parent / link.partition("#")[0] for link in links(page.read_text()) if "://" not in link]
    pages = [*PAGES, *PACKAGE_PAGES, *(f"lakeingest/runbooks/{name}.md" for name in RUNBOOKS)]
    assert [page for page in pages if ROOT / page not in reached] == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_says_what_it_means(error: type[LakeIngestError]) -> None:
    """Each class has a sentence of its own: it is what a runbook begins with."""
    assert "__doc__" in vars(error)
    assert (error.__doc__ or "").endswith(".")


TARGETS = {one for text in TEXTS.values() for one in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_of_the_documents_is_in_the_makefile(target: str) -> None:
    """`make target` is known to make itself."""
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


MODULE = re.compile(r"python3? -m ((?:benchmarks|lakeingest)[\w.]*)")
PATH = re.compile(r"`((?:\.ci|benchmarks|docs|infra|lakeingest|notebooks|tests)/[\w./-]*)`")


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if PATH.search(text) or MODULE.search(text)])
def test_files_that_a_text_names_exist(name: str) -> None:
    """A reader who looks for what to change, or for the reason of something, finds it."""
    modules = (one.replace(".", "/") for one in MODULE.findall(TEXTS[name]))
    named = [*PATH.findall(TEXTS[name]), *(one if (ROOT / one).is_dir() else f"{one}.py" for one in modules)]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PACKAGE_PAGES)
def test_a_page_of_a_package_names_files_that_are_beside_it(name: str) -> None:
    """As `file.py` or `folder/file.py`; a path from the root is checked like those of all texts."""
    named = re.findall(r"`((?!lakeingest/|tests/)[\w/]+\.py)`", PACKAGE_PAGES[name])
    assert named
    assert [file for file in named if not ((ROOT / name).parent / file).is_file()] == []


@pytest.mark.parametrize("name", PACKAGE_PAGES)
def test_a_page_of_a_package_is_read_in_minutes(name: str) -> None:
    """It is short, and an editor shows its lines whole; rows of tables have no breaks."""
    lines = PACKAGE_PAGES[name].splitlines()
    assert len(lines) <= PACKAGE_LINES_MAX
    assert [line for line in lines if len(line) > WIDTH_MAX and not line.startswith("|")] == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"/(?:home|Users|work|root)/\w+",  # a path of the machine that it was written on
        r"\b(?:TODO|FIXME|XXX|HACK)\b",
    ],
)
def test_nothing_unfinished_or_local_is_in_the_sources(pattern: str) -> None:
    """No note to oneself and no path of one machine is left."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [
            *SOURCES,
            *(ROOT / "lakeingest").rglob("*.md"),
            *(path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".py", ".svg", ".yml"}),
            *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")),
        ]
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert found == []


@pytest.mark.long("takes seconds")
def test_every_error_that_is_raised_has_its_runbook() -> None:
    """Each class has one, a class of classes where it is raised itself; no other runbook is there."""
    made = {
        node.func.id
        for path in SOURCES
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    bases = {base.__name__ for error in ERRORS for base in error.__bases__}
    wanted = {error.__name__ for error in ERRORS if error.__name__ in made or error.__name__ not in bases}
    assert set(RUNBOOKS) == wanted - {LakeIngestError.__name__} | {"InternalError"}


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_a_runbook_has_its_exit_code_and_its_four_sections(name: str) -> None:
    """In this order, and the way out ends with what is healthy."""
    title, _, code, *_ = RUNBOOKS[name].splitlines()
    assert title == f"# {name}"
    assert code.startswith(f"Exit code {CODES[name]}. Acts: ")
    headings = re.findall(r"^## (.*)$", RUNBOOKS[name], re.MULTILINE)
    assert headings == ["Meaning", "Impact", "Diagnosis", "Way out"]
    assert "Healthy is " in RUNBOOKS[name].partition("## Way out")[2]


def test_the_index_has_every_runbook_with_its_exit_code() -> None:
    """One line each, by exit code and name, with a link that leads to it."""
    rows = re.findall(r"^\| (\d+) \| \[(\w+)\]\((\w+)\.md\) \| \S.* \| \S.* \|$", INDEX, re.MULTILINE)
    assert rows == [(str(code), name, name) for code, name in sorted((CODES[name], name) for name in RUNBOOKS)]


def test_runbooks_lead_to_runbooks_that_exist() -> None:
    """Wherever one names another."""
    named = {found for text in [INDEX, *RUNBOOKS.values()] for found in re.findall(r"(\w+)\.md", text)}
    assert named == set(RUNBOOKS)
