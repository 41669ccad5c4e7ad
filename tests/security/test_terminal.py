"""Names and texts of others on a terminal, in logs, pages and notebooks: each is seen as it is, and does nothing."""

import ast
import io
import json
import logging
import os
import pty
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lakeingest import console, exits, terminal
from lakeingest.cli_options import print_result
from lakeingest.commands.report import Report
from lakeingest.core.copies.signals import Action, Signal, State
from lakeingest.core.tables.schema import TableId
from lakeingest.demo.server import LocalServer
from lakeingest.errors import LakeIngestError
from lakeingest.monitoring.event_lines import line
from lakeingest.pipeline.events import Event, Planned
from lakeingest.quality.gates import GateReport, Outcome
from lakeingest.quality.page import page
from lakeingest.state.signals import SignalDocument
from tests.security.hostile import tables_on

PACKAGE = Path(console.__file__).parent
FORGED = "09:00:00 shop.t: published 7 rows"
TEXT = f"o\x1b[2J\x9b31m[/x][link=http://e]\n{FORGED}\r\u202e\u2028<script>alert(1)</script>:smile:"
SEEN = rf"o\x1b[2J\x9b31m[/x][link=http://e]\n{FORGED}\r\u202e\u2028<script>alert(1)</script>:smile:"
TABLE = TableId("shop", TEXT)
MARKUP = ("oops[/x]", "[link=http://evil.example]click[/link]", "[red]bold[/red]", ":smile: {task}", "%s${HOME}")
UNSEEN = ("esc\x1b[2J\x9b31m", f"line\n{FORGED}", "\u202egnp.exe")
_RICH = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what Rich draws with


def of_type(kind: Any) -> Any:
    """A hostile value of a type."""
    if typing.get_origin(kind) is tuple:
        return ()
    if type(None) in typing.get_args(kind):  # a value that is not known
        return None
    if kind is LakeIngestError:
        return LakeIngestError(TEXT)
    if kind is SignalDocument:
        return SignalDocument(
            Signal(1, Action.PAUSE, TEXT, datetime.now(UTC), (TABLE,), state=State.FAILED, why=TEXT), TEXT, TEXT
        )
    return TABLE if kind is TableId else kind(TEXT) if kind is str else kind(1)


def events() -> Iterator[Event]:
    """An event of each class."""
    kind: Any
    for kind in typing.get_args(Event):
        hints = typing.get_type_hints(kind, localns={"SignalDocument": SignalDocument})
        yield kind(**{field.name: of_type(hints[field.name]) for field in fields(kind)})


def all_errors(kind: type[LakeIngestError] = LakeIngestError) -> Iterator[type[LakeIngestError]]:
    """The classes of errors."""
    yield kind
    for below in kind.__subclasses__():
        yield from all_errors(below)


@pytest.mark.parametrize("event", [*events()], ids=lambda event: type(event).__name__)
def test_each_event_is_one_printable_line(event: Event, capsys: pytest.CaptureFixture[str]) -> None:
    """In a log as on a terminal, where nothing of a name is markup."""
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=1_000)
    for where in (screen, Console(file=io.StringIO())):
        with console.observer(where) as draw:
            draw(Planned(TABLE, 1))
            draw(event)
    drawn = _RICH.sub("", out.getvalue())
    assert SEEN in drawn
    assert "\x1b" not in drawn
    assert all(one.replace("\r", "").isprintable() for one in drawn.split("\n"))
    logged = capsys.readouterr().err
    assert logged.count("\n") == (line(event) is not None) == bool(logged)
    assert logged.rstrip("\n").isprintable()
    assert FORGED not in logged.splitlines()
    terminal.use_json(chosen=True)
    try:
        with console.observer(screen) as draw:
            draw(event)
    finally:
        terminal.use_json(chosen=False)
    documents = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert [document["event"] for document in documents] == ([type(event).__name__] if logged else [])
    assert all(document["message"].isprintable() for document in documents)


@pytest.mark.parametrize("kind", [*all_errors()])
def test_each_error_is_one_printable_line(kind: type[LakeIngestError]) -> None:
    """Whatever the server or the lake said."""
    for error in (kind(f"{TABLE}: {TEXT}"), Exception(TEXT), KeyboardInterrupt(TEXT)):
        assert exits.message(error).isprintable()


class _Hostile(Report):
    headers: Sequence[str] = (TEXT,)
    notes: Sequence[str] = (f"{TABLE}: stopped",)

    def cells(self) -> Iterator[Sequence[object]]:
        """A name."""
        yield (TABLE,)


def test_a_result_is_seen_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """As lines, as a table, and as a table of a notebook; in JSON it is escaped."""
    found = _Hostile()
    print_result(found, False, [str(TABLE), *found.note.splitlines()])
    Console(width=2_000).print(found)
    sys.stdout.write(f"{found!r}\n")
    print_result([str(TABLE)], True, ())
    printed = capsys.readouterr().out
    assert printed.count(SEEN) == 2 + 3 + 3
    assert all(line.isprintable() for line in printed.split("\n"))
    assert FORGED not in printed.splitlines()
    assert_harmless(found._repr_html_(), 3)


def test_a_page_of_a_gate_shows_names_and_values_as_they_are() -> None:
    """Neither tags, nor signs that turn what follows them."""
    document = {"type": TEXT, "kwargs": {"column": TEXT}}
    outcomes = (
        Outcome(TEXT, document, success=False, unexpected=1, examples=(TEXT,)),
        Outcome(TEXT, document, False, error=TEXT),
    )
    assert_harmless(page(TABLE, TEXT, datetime.now(UTC), 1, GateReport(outcomes, {})), 10)


def assert_harmless(html: str, times: int) -> None:
    """The text is shown so often, and no tag or sign of it has an effect."""
    tags, texts = set[str](), list[str]()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
            """Keep the tag."""
            tags.add(tag)

        def handle_data(self, data: str) -> None:
            """Keep the text."""
            texts.append(data)

    Parser().feed(html)
    assert "script" not in tags
    assert "".join(texts).count(SEEN) >= times
    assert all(line.isprintable() for line in html.split("\n"))


def test_traces_and_logs_of_libraries_have_no_line_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    """With --debug: each line is printable, and those of a text are indented."""
    try:
        int(TEXT)
    except ValueError:
        terminal.say_lines(f"before\n{TEXT}")
        record = logging.LogRecord("a", logging.ERROR, "", 1, TEXT, None, sys.exc_info())
    said = capsys.readouterr().err + terminal.LogFormatter("%(message)s").format(record)
    assert all(line.isprintable() for line in said.split("\n"))
    assert FORGED not in said.splitlines()


def test_nothing_else_prints() -> None:
    """Whoever prints hands the text to one of these, which make it printable, or prints what only we have written."""
    ours = {
        ("terminal", "_write"),  # lines that `log`, `say` and `say_error` have made printable
        ("terminal", "print_page"),
        ("cli_options", "print_result"),
        ("console", "draw"),
        ("cli", "_show_version"),
        ("cli", "init"),  # paths that were typed
        ("cli", "status"),  # a Report
        ("cli_checks", "_print_table"),  # a Report
        ("cli_submit", "submit"),  # JSON, and the id of a job
        ("commands.submitted", "_print_log"),
        ("commands.report", "__repr__"),
        ("demo.play", "say"),
        ("demo.play", "_print_report"),
        ("mysql.wire.kernels", "<module>"),  # for its own process
    }
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found |= {(module, name) for name in _printing(ast.parse(path.read_text()), "<module>")}
    assert found <= ours


def _printing(node: ast.AST, within: str) -> Iterator[str]:
    """The functions of a module that print."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else within
        if isinstance(child, ast.Call):
            called = ast.unparse(child.func)
            if called in {"print", "typer.echo", "sys.stderr.write", "sys.stdout.write"} or called.endswith(".print"):
                yield within
        yield from _printing(child, inside)


def on_terminal(folder: Path, *arguments: str) -> tuple[int, str]:
    """A command on a terminal: its exit code, and what it draws, without Rich's own sequences."""
    pid, terminal_of = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "1000", "PYTHONPATH": str(PACKAGE.parent)}
        os.execve(sys.executable, [sys.executable, "-m", "lakeingest", *arguments], environment)  # noqa: S606
    drawn = b""
    while True:
        try:
            part = os.read(terminal_of, 65_536)
        except OSError:  # it has ended
            break
        if not part:
            break
        drawn += part
    os.close(terminal_of)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, _RICH.sub("", drawn.decode())


@pytest.mark.long("takes seconds")
@pytest.mark.mysql
@pytest.mark.local("runs commands in a folder")
def test_every_command_shows_names_as_they_are(tmp_path: Path, mysql_server: LocalServer) -> None:
    """A name that looks like markup is copied; one of signs that are not seen is refused, and shown by escapes."""
    names = [("markup", name) for name in (*MARKUP, *UNSEEN)]
    with tables_on(mysql_server, tmp_path, *names) as tables:
        tables.write()
        answers = {
            name: on_terminal(tmp_path, *name.split()) for name in ("check", "plan", "run", "status", "run --json")
        }
    assert {name: code for name, (code, _) in answers.items()} == {
        "check": 1,
        "plan": 0,
        "run": 3,
        "status": 0,
        "run --json": 3,
    }
    for _, drawn in answers.values():
        assert all(line.replace("\r", "").isprintable() for line in drawn.split("\n")), drawn
        assert FORGED not in [line.strip() for line in drawn.splitlines()]
    for name in ("plan", "run", "status"):
        assert all(f"markup.{one}" in answers[name][1] for one in MARKUP)
    assert r"markup.esc\x1b[2J\x9b31m: its name has unprintable characters" in answers["check"][1]
    assert "published" in answers["status"][1]
