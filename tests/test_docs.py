"""What the README, the runbooks and the sources say is so."""

import ast
import inspect
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from lakeingest import cli, console, errors, exits
from lakeingest.config import Config
from lakeingest.errors import LakeIngestError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RUNBOOKS = {path.stem: path.read_text() for path in (ROOT / "infra" / "runbooks").glob("*.md")}
INDEX = RUNBOOKS.pop("README")
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


def group() -> TyperGroup:
    """The command line as Typer has built it."""
    built = typer.main.get_command(cli.app)
    assert isinstance(built, TyperGroup)
    return built


@pytest.mark.parametrize("text", [README, INDEX, *RUNBOOKS.values()], ids=["README", "index", *RUNBOOKS])
def test_every_command_of_a_text_exists(text: str) -> None:
    """Each `lakeingest` line of a shell block, and each `lakeingest …` in the text, is a command that is built."""
    commands = group().commands
    told = re.sub(r"^```text\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # messages name what is not built too
    lines = re.findall(r"^ *lakeingest ([a-z][^#\n|>]*)", blocks("sh", told), re.MULTILINE)
    lines += re.findall(r"`lakeingest ([a-z][^`]*)`", told)
    assert lines
    for line in lines:
        name, *arguments = shlex.split(line)
        assert name in commands, line
        assert name not in cli.LATER, line
        known = {option for parameter in commands[name].params for option in parameter.opts} | {"--debug"}
        assert {argument for argument in arguments if argument.startswith("-")} <= known, line


def test_options_that_the_text_names_exist() -> None:
    """Every `--option` in the README's text belongs to a command."""
    commands = group().commands.values()
    known = {option for command in commands for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", README)) <= known | {"--version", "--debug", "--help"}


def test_the_example_of_the_readme_is_a_pipeline() -> None:
    """The YAML that a reader copies is understood as it stands."""
    doc = yaml.safe_load(blocks("yaml").replace("${MYSQL_PASSWORD}", "secret"))
    assert Config.model_validate(doc).name == "shop"


def test_the_exit_codes_of_the_readme_are_those_of_the_classes() -> None:
    """The table has every code that a command can end with, and no other."""
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    raised = {error.exit_code for error in ERRORS}
    assert table == {0} | raised | {exits.EXIT_INTERNAL, exits.EXIT_INTERRUPTED, console.EXIT_CLOSED_PIPE}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_says_what_it_means(error: type[LakeIngestError]) -> None:
    """Each class has a sentence of its own: it is what a runbook begins with."""
    assert "__doc__" in vars(error)
    assert (error.__doc__ or "").endswith(".")


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))))
def test_every_target_of_the_readme_is_in_the_makefile(target: str) -> None:
    """`make target` is known to make itself."""
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_that_the_readme_names_exist() -> None:
    """The reading path leads somewhere."""
    named = re.findall(r"`((?:lakeingest|tests)/[\w/]+\.py)`", README)
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


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
            *(ROOT / "infra").rglob("*.md"),
            ROOT / "README.md",
            ROOT / "Makefile",
            ROOT / "pyproject.toml",
        ]
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert found == []


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
