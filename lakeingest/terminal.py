"""The terminal: lines and pages that commands print besides their results, and what to do if the reader is gone."""

import logging
import os
import sys
from typing import NoReturn

from rich.console import Console

from lakeingest.core.printable import printable, printable_lines

EXIT_CLOSED_PIPE = 141  # the exit code of a process that SIGPIPE has ended


def say(text: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def say_lines(text: str, indent: str = "  ") -> None:
    """Print a text of several lines on stderr, such as a stack trace. The indent shows where the text ends."""
    for line in text.splitlines():
        say(indent + line)


class LogFormatter(logging.Formatter):
    """Formats the log records of libraries, which --debug shows."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as one line, followed by the indented lines of its stack trace."""
        return printable_lines("\n  ".join(super().format(record).splitlines()))


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
