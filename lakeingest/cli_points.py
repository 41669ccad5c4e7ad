"""The command `points`: lists, shows, creates and drops points, at which readers see all tables as of one moment."""

from typing import Annotated, Literal

import typer
from rich.console import Console

from lakeingest import terminal
from lakeingest.cli_options import PIPELINE, AsJson, ConfigFile, Overrides, loaded_config, print_result
from lakeingest.errors import UsageError

points = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@points.command(name="points")
def points_command(
    action: Annotated[
        Literal["list", "show", "create", "drop"],
        typer.Argument(
            help="list: all points. show: the version of each table at a point. create: keep the version of each table"
            " as of now. drop: let the versions of a point go."
        ),
    ],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The name of the point.")] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="For `create` and `drop`: only store the signal; do not wait.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Keep a version of each copy as of one place in the binlog, so that readers see all tables as of this place."""
    from lakeingest import console
    from lakeingest.commands import points as stage

    if (name is None) != (action == "list"):
        raise UsageError("points list takes no name" if action == "list" else f"points {action} needs a name")
    if no_wait and action in {"list", "show"}:
        raise UsageError("--no-wait goes with points create and points drop")
    loaded, point = loaded_config(config, overrides, offline=action in {"list", "show"}), name or ""
    if action == "list":
        found = stage.points(loaded)
        print_result(found, as_json, repr(found).splitlines())
        return
    if action == "show":
        shown = stage.shown_point(loaded, point)
        print_result(shown, as_json, repr(shown).splitlines())
        return

    def report(document: object) -> None:
        """Print a signal that has changed."""
        terminal.say(str(document))

    if action == "create":
        with console.observer(Console(stderr=True)) as draw:
            results = stage.create_point(loaded, point, wait=not no_wait, report=report, observe=draw)
    else:
        results = stage.drop_point(loaded, point, wait=not no_wait, report=report)
    print_result(results, as_json, console.signal_lines(results))
    results.raise_failure()
