"""The terminal: lines and pages that commands print besides their results, and what to do if the reader is gone."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

from rich.console import Console

from lakeingest.core.printable import printable, printable_lines

EXIT_CLOSED_PIPE = 141  # the exit code of a process that SIGPIPE has ended


class _Form:
    """The form of the lines on stderr: a text, or a JSON document a line."""

    is_json = False


def use_json(*, chosen: bool) -> None:
    """Let all lines on stderr be JSON documents from now on, or texts again."""
    _Form.is_json = chosen


def is_json() -> bool:
    """Whether the lines on stderr are JSON documents."""
    return _Form.is_json


def log(text: str, level: str, **facts: Any) -> None:
    """Print a line of the log on stderr: with date, time, zone and level; a line in JSON also has the facts."""
    _write(json.dumps(_document(text, level, facts)) if _Form.is_json else log_line(text, level))


def log_line(text: str, level: str) -> str:
    """A line of the log as a text. The time is in UTC."""
    return f"{_now()} {level:<7} {printable(text)}"


def say(text: str) -> None:
    """Print a line on stderr."""
    _write(json.dumps(_document(text, "info", {})) if _Form.is_json else printable(text))


def say_error(text: str, **facts: Any) -> None:
    """Print on stderr the error with which a command ends; a line in JSON also has the facts."""
    _write(json.dumps(_document(text, "error", facts)) if _Form.is_json else f"lakeingest: {printable(text)}")


def _document(text: str, level: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"at": _now(), "level": level, "message": printable(text), **facts}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def say_lines(text: str) -> None:
    """Print a text of several lines on stderr, such as a stack trace. The indent shows where the text ends."""
    for line in text.splitlines():
        say(f"  {line}")


class LogFormatter(logging.Formatter):
    """Formats the log records of libraries, which --debug shows."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as one line, followed by the indented lines of its stack trace; as a JSON document in a JSON log."""
        lines = super().format(record).splitlines()
        if _Form.is_json:
            return json.dumps(_document(" ".join(lines), record.levelname.lower(), {"logger": record.name}))
        return printable_lines("\n  ".join(lines))


def print_page(text: str) -> None:
    """Print a Markdown page: formatted on a terminal, elsewhere as plain text."""
    from rich.markdown import Markdown

    out = Console()
    if out.is_terminal:
        out.print(Markdown(text))
    else:
        sys.stdout.write(text)


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the error means that nobody reads the output any more, as after `| head`.

    Typer and Rich turn this error into an exit.
    """
    return isinstance(error, BrokenPipeError) or (
        isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)
    )


def exit_silently() -> NoReturn:
    """Exit without a message, with the exit code of a Unix tool that SIGPIPE has ended."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)  # at its end Python still writes buffered output, which must not fail
    sys.exit(EXIT_CLOSED_PIPE)
