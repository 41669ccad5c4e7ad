"""The command quarantine: rows that failed a gate are listed, shown, read again, and their evidence is dropped."""

from typing import Annotated, Literal

import typer
from rich.console import Console

from lakeingest import terminal
from lakeingest.cli_options import PIPELINE, AsJson, ConfigFile, Overrides, loaded_config, print_result
from lakeingest.errors import UsageError

quarantines = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@quarantines.command()
def quarantine(
    action: Annotated[
        Literal["list", "show", "release", "drop"],
        typer.Argument(
            help="list: the keys in quarantine. show: the rows as they failed, of one table. release: read rows again,"
            " and publish them if they are sound now. drop: remove the evidence of keys that have left the quarantine."
        ),
    ],
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="database.table; `list` without it is for all tables.")
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="For `release`: keys in JSON; default: all keys in quarantine."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="For `release`: only store the signal; do not wait.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """List, show and release rows that failed a quality gate, and that readers do not see."""
    from lakeingest import console
    from lakeingest.commands import quarantine as stage
    from lakeingest.commands.resnapshot import key_of

    if table is None and action != "list":
        raise UsageError(f"quarantine {action} needs a table")
    if action != "release" and (keys or no_wait):
        raise UsageError("keys and --no-wait go with quarantine release")
    loaded, name = loaded_config(config, overrides), table or ""
    match action:
        case "list":
            kept = stage.listed(loaded, [name] if name else [])
            print_result(kept, as_json, console.kept_lines(kept))
        case "show":
            kept = stage.shown(loaded, name)
            print_result(kept, as_json, console.kept_lines(kept))
        case "release":
            with console.observer(Console(stderr=True)) as draw:
                results = stage.release(
                    loaded,
                    name,
                    [key_of(key) for key in keys or ()],
                    wait=not no_wait,
                    report=lambda document: terminal.say(str(document)),
                    observe=draw,
                )
            print_result(results, as_json, console.signal_lines(results))
            results.raise_failure()
        case "drop":
            dropped = stage.drop(loaded, name)
            print_result({"dropped": dropped}, as_json, [f"{name}: the evidence of {dropped:,} rows is dropped"])
