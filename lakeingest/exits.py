"""The end of a command: its exit code, and the line that says why the command failed."""

import sys

from lakeingest.core.printable import printable
from lakeingest.errors import LakeIngestError, Retryable, UsageError
from lakeingest.termination import Terminated

EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130


def exit_code(error: BaseException) -> int:
    """The exit code of a command that raised this error; EXIT_INTERNAL for an error that nobody expects."""
    if isinstance(error, LakeIngestError):
        return error.exit_code
    if _is_usage_error(error):
        return UsageError.exit_code
    if isinstance(error, Terminated):
        return Retryable.exit_code
    if isinstance(error, KeyboardInterrupt) or _is_abort(error):
        return EXIT_INTERRUPTED
    return EXIT_INTERNAL


def _is_abort(error: BaseException) -> bool:
    """Whether the error is the one that Typer raises at Ctrl-C. Only the command line imports Typer."""
    typer = sys.modules.get("typer")
    return typer is not None and isinstance(error, typer.Abort)


def _is_usage_error(error: BaseException) -> bool:
    """Whether Typer did not understand the command line.

    Such errors have no public class, but they are the only ones with a method `format_message`.
    """
    return hasattr(error, "format_message")


def runbook(error: BaseException) -> str:
    """The name of the runbook of an error that ends a command; '' if a person has interrupted the command."""
    if isinstance(error, LakeIngestError):
        return error.runbook
    code = exit_code(error)
    names = {UsageError.exit_code: UsageError.__name__, Retryable.exit_code: Retryable.__name__, EXIT_INTERRUPTED: ""}
    return names.get(code, "InternalError")


def message(error: BaseException) -> str:
    """The message of an error for users, in one line."""
    code = exit_code(error)
    if _is_usage_error(error):
        reason = error.format_message() or "no command given"  # type: ignore[attr-defined]
        text = f"{reason} (lakeingest --help)"
    elif code == EXIT_INTERRUPTED:
        text = str(error) or "interrupted; the last commit stays, and the same command goes on from there"
    elif isinstance(error, LakeIngestError) and code != EXIT_INTERNAL:  # an error of the base class is internal
        text = f"{error} (runbook: {error.runbook})"
    else:
        reason = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
        text = f"{reason} (--debug shows the trace; runbook: InternalError)"
    return printable(" ".join(text.splitlines()))
