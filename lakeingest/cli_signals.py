"""The commands that make a signal: read rows again, pause, resume, cancel, maintain, approve."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from lakeingest import console, terminal
from lakeingest.cli_options import (
    PIPELINE,
    AsJson,
    ConfigFile,
    Names,
    Overrides,
    loaded_config,
    print_result,
)
from lakeingest.errors import UsageError

if TYPE_CHECKING:
    from lakeingest.config import Config

NoWait = Annotated[bool, typer.Option("--no-wait", help="Only make the signal; do not wait until it is carried out.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="database.table, quoted as in SQL or not")]
Tables = Annotated[
    list[str], typer.Argument(metavar="TABLE…", help="database.table, quoted as in SQL or not; several allowed")
]
signals = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@signals.command()
def resnapshot(
    tables: Tables,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Read the rows that this condition holds for; finds no deletes."),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="Read the keys of a file: one a line, in JSON.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="K", help="Read from this key on, in JSON.")] = None,
    stop: Annotated[str | None, typer.Option("--to", metavar="K", help="Read up to this key, without it.")] = None,
    gap: Annotated[
        bool, typer.Option("--gap", help="Changes are lost: compare all rows, and copy those that differ.")
    ] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Read rows of tables again, all or some, beside a run or without one; readers never see a hole."""
    from lakeingest.commands import resnapshot as stage

    loaded = loaded_config(config, overrides)
    parts: dict[str, Any] = {"where": where, "gap": gap}
    parts |= {name: stage.key_of(key) for name, key in (("start", start), ("stop", stop)) if key is not None}
    if keys is not None:
        try:
            parts["keys"] = stage.keys_of(keys.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{keys} cannot be read: {error}") from error
    scope = stage.scope_of(loaded, tables, **parts)
    _ask(loaded, "resnapshot", tables, no_wait=no_wait, as_json=as_json, scope=scope)


def _of_tables(action: str, text: str) -> None:
    """Add a command that makes a signal for tables, with this help text. It has only the options of all signals."""

    @signals.command(action, help=text)
    def signal(
        tables: Names = None,
        no_wait: NoWait = False,
        as_json: AsJson = False,
        config: ConfigFile = PIPELINE,
        overrides: Overrides = None,
    ) -> None:
        _ask(loaded_config(config, overrides), action, tables, no_wait=no_wait, as_json=as_json)


_of_tables(
    "pause", "Keep tables where they are until `resume`: nothing is read, merged or published; the others go on."
)
_of_tables("resume", "Let paused tables go on, with the run that is at work or the next one.")
_of_tables("cancel", "Cancel the re-snapshots of tables that have not ended; merged rows stay.")
_of_tables(
    "maintain", "Put small files together, remove old snapshots and what killed tasks left; the rows stay the same."
)


@signals.command()
def rollback(
    tables: Tables,
    no_wait: NoWait = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """After someone else changed copies: let readers see the last commit of lakeingest again; the tables go on."""
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
    """Hand copies of another pipeline over to this one, which goes on with them; the other one is refused then."""
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
    """Let a table go on after the DDL that it waits before, as `status` names it; the next one waits again."""
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
    """Make the signal, report its progress on stderr, and print its result."""
    from lakeingest.commands.signal import ask

    def report(document: object) -> None:
        terminal.say(str(document))

    with console.observer(Console(stderr=True)) as draw:
        results = ask(config, action, tables or (), scope=scope, ddl=ddl, wait=not no_wait, report=report, observe=draw)
    print_result(results, as_json, console.signal_lines(results))
    results.raise_failure()
