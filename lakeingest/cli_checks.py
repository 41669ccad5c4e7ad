"""Commands that look at source and copies: check, doctor, verify, profile, sample, query, at, wait.

Only `verify --repair` changes something.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lakeingest.cli_options import (
    PIPELINE,
    AsJson,
    ConfigFile,
    Gtids,
    Names,
    Overrides,
    Table,
    loaded_config,
    print_pipeline,
    print_result,
)
from lakeingest.errors import CheckFailed, UsageError, VerificationFailed

if TYPE_CHECKING:
    from lakeingest.commands.report import Report

checks = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@checks.command()
def check(
    parity: Annotated[
        bool, typer.Option("--parity", help="Also read changed rows from the binlog and by SELECT, and compare them.")
    ] = False,
    suites: Annotated[
        bool, typer.Option("--suites", help="Also ask the quality suites of a sample of each table in the source.")
    ] = False,
    untrusted: Annotated[
        bool,
        typer.Option(
            "--untrusted",
            help="Only validate the file, and list the servers, code and secrets of its runs; connect to nothing.",
        ),
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Check every precondition of a run; exit 1 if one is not met. Changes nothing."""
    from lakeingest import console

    if untrusted and suites:
        raise UsageError("--suites reads the source, and --untrusted connects to nothing")
    if untrusted:
        from lakeingest.commands.untrusted import untrusted as check_untrusted

        result = check_untrusted(config, overrides or ())
    else:
        loaded = loaded_config(config, overrides)
        print_pipeline(loaded, as_json)
        from lakeingest.commands import check as stage

        result = stage.check(loaded, parity=parity, suites=suites)
    print_result(result, as_json, console.check_lines(result))
    if not result.ok:
        error = CheckFailed(f"not ready: {', '.join(problem.name for problem in result.problems)}")
        error.cause = result.runbook
        raise error


@checks.command()
def doctor(
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Show machine, versions, network and every precondition, without secrets. In a file it is Markdown."""
    from lakeingest.commands.doctor import doctor as diagnose

    result = diagnose(config, overrides or ())
    print_result(result, as_json, result.lines if sys.stdout.isatty() else result.markdown.splitlines())
    if not result.ok:
        problems = (finding.what for finding in result.findings if finding.is_problem)
        raise CheckFailed(f"not ready: {', '.join(problems)}")


@checks.command()
def verify(
    tables: Names = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read the rows that differ again, then compare once more.")
    ] = False,
    sample: Annotated[
        float | None,
        typer.Option("--sample", metavar="F", help="Compare this share of each table's chunks (0.1: a tenth)."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Draw the chunks that an earlier report names by its seed."),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", metavar="N", help="Begin no new chunk after this many seconds.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="Compare only the key and these columns.")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Prove source = target, chunk by chunk; exit 1 on a difference. Applications may write meanwhile."""
    from lakeingest import console
    from lakeingest.commands import repair as repairing
    from lakeingest.commands import verify as stage
    from lakeingest.commands.extent import Extent, column_names

    extent = Extent.of(sample, seed, max_seconds, None if columns is None else column_names(columns))
    compare = repairing.repair_tables if repair else stage.compare_tables
    loaded = loaded_config(config, overrides)
    with console.observer(Console(stderr=True)) as draw:
        results = compare(loaded, tables or (), extent=extent, observe=draw)
    print_result(results, as_json, [*console.verification_lines(results), *results.note.splitlines()])
    unequal = [str(result.table) for result in results if result.differs]
    if unequal:
        raise VerificationFailed(f"source ≠ target: {', '.join(unequal)}")
    results.raise_refused()


@checks.command()
def profile(
    table: Table,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Read about so many rows.")] = 10_000,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Draw the rows that an earlier profile names by its seed.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the suite to a new file in the folder of suites.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Propose a quality suite for a table, from a sample of its rows in the source."""
    from lakeingest.commands.profile import profile as propose

    result = propose(loaded_config(config, overrides), table, rows, seed, write=write)
    written = [f"{result.path}: a suite from {result.read}"]
    print_result(result, as_json, result.suite.splitlines() if result.path is None else written)


@checks.command()
def sample(
    table: Table,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Read so many rows.")] = 5,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Show the first rows of a table in the source, read as a run would read a chunk. Changes nothing."""
    from lakeingest.commands.sample import sample as read_sample

    _print_table(read_sample(loaded_config(config, overrides), table, rows))


@checks.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT of tables that are named database.table.")],
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the answer as CSV.")] = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Ask a question in SQL of the rows that readers of the copies see; needs no source and no Spark."""
    from lakeingest.commands.query import query as ask

    if as_json and as_csv:
        raise UsageError("--json and --csv are two forms of the answer: give one of them")
    answer = ask(loaded_config(config, overrides, offline=True), sql)
    if as_csv:
        answer.write_csv(sys.stdout, printed=sys.stdout.isatty())
    else:
        _print_report(answer, as_json)


@checks.command()
def at(
    tables: Names = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="As of this time of the source, or so long ago: 2h.")
    ] = None,
    gtid: Gtids = None,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Name the version of each copy as of a past time, for queries of that version; needs no source and no Spark."""
    from lakeingest.commands.at import moment_of, versions_at

    result = versions_at(loaded_config(config, overrides, offline=True), moment_of(time, gtid), tables or ())
    _print_report(result, as_json)


@checks.command()
def wait(
    tables: Names = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Wait for all changes from before this time.")
    ] = None,
    gtid: Gtids = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", metavar="N", min=0, help="Give up after this many seconds.")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Wait until readers see what the source has written by now, or the changes that an option names."""
    from lakeingest.commands import wait as waiting

    goal = waiting.goal_of(until, gtid)
    _print_report(waiting.wait(loaded_config(config, overrides), tables or (), goal, max_seconds=max_seconds), as_json)


def _print_report(report: "Report", as_json: bool) -> None:
    """Print a report as JSON, or as a table."""
    if as_json:
        print_result(report, as_json, ())
    else:
        _print_table(report)


def _print_table(report: "Report") -> None:
    """Print a report. Without a terminal no line is wrapped, so that no name is cut."""
    if sys.stdout.isatty():
        Console().print(report)
    else:
        print_result(report, False, repr(report).splitlines())
