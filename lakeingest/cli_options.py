"""The parts that the commands of the command line share: options, loading pipeline.yml, and printing."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lakeingest.core.printable import printable
from lakeingest.disk import replace_shared, share_like
from lakeingest.errors import NotBuiltYet, UsageError
from lakeingest.terminal import say, use_json

if TYPE_CHECKING:
    from lakeingest.commands.report import Report
    from lakeingest.config import Config

ConfigFile = Annotated[Path, typer.Option("-c", "--config", envvar="LAKEINGEST_CONFIG", help="The pipeline's file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="database.table, quoted as in SQL or not; default: all included tables."),
]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="database.table, quoted as in SQL or not")]
Gtids = Annotated[str | None, typer.Option("--gtid", metavar="GTIDS", help="These transactions, a GTID set of MySQL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
PIPELINE = Path("pipeline.yml")


def choose_log_format(value: str | None) -> str | None:
    """Let the lines on stderr have the form `value`, "text" or "json". None leaves their form as it is."""
    if value is not None:
        use_json(chosen=value == "json")
    return value


LogFormat = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        "--log-format",
        callback=choose_log_format,
        is_eager=True,
        help="The form of the lines on stderr; default: text.",
    ),
]


def not_built(parameter: typer.CallbackParam, value: Any) -> None:
    """Raise NotBuiltYet if the user sets this option, which is not built yet."""
    if value is not None and value is not False:  # 0 is a value that the user has set
        raise NotBuiltYet(f"{parameter.opts[0]} is not built yet")


def loaded_config(path: Path, overrides: list[str] | None, *, offline: bool = False) -> "Config":
    """Load a pipeline.yml. Raises ConfigError, which names the mistakes.

    Afterwards this process creates files with the permissions that the folder of the warehouse has (`share_like`). The
    state folder stays private.
    """
    from lakeingest.config import load_config
    from lakeingest.late_imports import import_pandas_later

    import_pandas_later()
    loaded = load_config(path, overrides or (), offline=offline)
    if loaded.target.warehouse.scheme is None:
        share_like(loaded.target.warehouse.path)
    return loaded


def print_result(result: Any, as_json: bool, lines: Any) -> None:
    """Print `result` as JSON if `as_json`; else print `lines`."""
    from lakeingest import console

    if as_json:
        typer.echo(json.dumps(console.to_document(result), default=str))
    else:
        for text in lines:
            typer.echo(printable(text))


def write_page(path: Path, result: "Report", title: str) -> None:
    """Write a result as a page for a browser. Raises UsageError if the file cannot be written."""
    try:
        replace_shared(path, result.to_html(title).encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def print_pipeline(config: "Config", as_json: bool) -> None:
    """Print a line about the pipeline on a terminal, because the result of the command comes only after seconds."""
    from lakeingest import console

    if sys.stderr.isatty() and not as_json:
        say(console.pipeline_line(config))
