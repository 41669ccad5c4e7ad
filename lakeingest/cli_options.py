"""What the commands of the command line have in common: options, how the file is loaded, how a result is printed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeingest import console
from lakeingest.core.printable import printable
from lakeingest.disk import share_like
from lakeingest.errors import NotBuiltYet

if TYPE_CHECKING:
    from lakeingest.config import Config

ConfigFile = Annotated[Path, typer.Option("-c", "--config", envvar="LAKEINGEST_CONFIG", help="The pipeline's file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="database.table, quoted as in SQL or not; default: all included tables."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
PIPELINE = Path("pipeline.yml")


def not_built(parameter: typer.CallbackParam, value: Any) -> None:
    """Refuse an option that is not built yet, rather than ignore it."""
    if value is not None and value is not False:  # zero is a value too
        raise NotBuiltYet(f"{parameter.opts[0]} is not built yet")


def loaded_config(path: Path, overrides: list[str] | None, *, offline: bool = False) -> "Config":
    """Load a pipeline.yml. ConfigError names the mistake.

    From now on this process creates files with the permissions of the warehouse's folder. State folders stay private.
    """
    from lakeingest.config import load_config

    loaded = load_config(path, overrides or (), offline=offline)
    if loaded.target.warehouse.scheme is None:
        share_like(loaded.target.warehouse.path)
    return loaded


def print_result(result: Any, as_json: bool, lines: Any) -> None:
    """Print a result as JSON, or the lines that say the same."""
    if as_json:
        typer.echo(json.dumps(console.plain(result), default=str))
    else:
        for text in lines:
            typer.echo(printable(text))
