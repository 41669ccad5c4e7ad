"""Commands that store a signal: resnapshot, pause, resume, cancel, maintain, rollback, approve.

The command adopt is here, too, but stores no signal.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lakeingest import terminal
from lakeingest.cli_options import (
    PIPELINE,
    AsJson,
    ConfigFile,
    Names,
    Overrides,
    Table,
    loaded_config,
    print_result,
)
from lakeingest.errors import UsageError

if TYPE_CHECKING:
    from lakeingest.config import Config

NoWait = Annotated[bool, typer.Option("--no-wait", help="Only store the signal; do not wait until it is carried out.")]
Tables = Annotated[
    list[str], typer.Argument(metavar="TABLE…", help="database.table, quoted as in SQL or not; several allowed")
]
signals = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@signals.command()
def resnapshot(
    tables: Tables,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Read the rows that this condition selects; finds no deletes."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="Read the rows with these keys: one key in each line, in JSON."),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="K", help="Read rows from this key on, in JSON.")
    ] = None,
    stop: Annotated[str | None, typer.Option("--to", metavar="K", help="Read rows before this key, in JSON.")] = None,
    gap: Annotated[
        bool, typer.Option("--gap", help="If changes are lost: compare all rows, and copy those that differ.")
    ] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Read all or some rows of tables again, with or without a run at work; readers never miss rows meanwhile."""
    from lakeingest.commands import resnapshot as stage

    loaded = loaded_config(config, overrides)
    options: dict[str, Any] = {"where": where, "gap": gap}
    if start is not None:
        options["start"] = stage.key_of(start)
    if stop is not None:
        options["stop"] = stage.key_of(stop)
    if keys is not None:
        try:
            options["keys"] = stage.keys_of(keys.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{keys} cannot be read: {error}") from error
    scope = stage.scope_of(loaded, tables, **options)
    _ask(loaded, "resnapshot", tables, no_wait=no_wait, as_json=as_json, scope=scope)


def _add_signal_command(action: str, text: str) -> None:
    """Add a command that stores a signal for tables. The command has the help `text` and no options of its own."""

    @signals.command(action, help=text)
    def signal(
        tables: Names = None,
        no_wait: NoWait = False,
        as_json: AsJson = False,
        config: ConfigFile = PIPELINE,
        overrides: Overrides = None,
    ) -> None:
        _ask(loaded_config(config, overrides), action, tables, no_wait=no_wait, as_json=as_json)


_add_signal_command(
    "pause", "Keep tables at their positions until `resume`: nothing is read, merged or published. Other tables go on."
)
_add_signal_command("resume", "Let paused tables go on, in the run that is at work or in the next run.")
_add_signal_command("cancel", "Cancel the unfinished re-snapshots of tables; rows that are merged already stay.")
_add_signal_command(
    "maintain",
    "Rewrite small files into larger ones, remove old snapshots and files that killed tasks have left; keeps all rows.",
)


@signals.command()
def rollback(
    tables: Tables,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Let readers see the last commit of lakeingest again, after someone else has changed copies."""
    _ask(loaded_config(config, overrides), "rollback", tables, no_wait=no_wait, as_json=as_json)


@signals.command()
def adopt(
    tables: Tables,
    before: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The pipeline that owns the copies now.")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Hand copies of another pipeline over to this pipeline; after that, the other pipeline cannot change them."""
    from lakeingest import console
    from lakeingest.commands.adopt import adopt as hand_over

    results = hand_over(loaded_config(config, overrides), tables, before)
    print_result(results, as_json, console.adopted_lines(results))


@signals.command()
def approve(
    table: Table,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Let a table follow the DDL for which it waits, and which `status` names. Later DDL has to be approved, too."""
    from lakeingest.commands.approve import waiting_ddl

    loaded = loaded_config(config, overrides)
    _ask(loaded, "approve", [table], no_wait=no_wait, as_json=as_json, ddl=waiting_ddl(loaded, table))


def _ask(
    config: "Config",
    action: str,
    tables: list[str] | None,
    *,
    no_wait: bool,
    as_json: bool,
    scope: Any = None,
    ddl: str | None = None,
) -> None:
    """Store signals, report their progress on stderr, and print their results. Raises the error of a failed signal."""
    from lakeingest import console
    from lakeingest.commands.signal import ask

    def report(document: object) -> None:
        """Print a signal that has changed."""
        terminal.say(str(document))

    with console.observer(Console(stderr=True)) as draw:
        results = ask(config, action, tables or (), scope=scope, ddl=ddl, wait=not no_wait, report=report, observe=draw)
    print_result(results, as_json, console.signal_lines(results))
    results.raise_failure()
