"""The command line: one short function per command."""

import gc
import io
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

from lakeingest import __version__, terminal
from lakeingest.cli_checks import checks
from lakeingest.cli_options import (
    PIPELINE,
    AsJson,
    ConfigFile,
    LogFormat,
    Names,
    Overrides,
    Table,
    loaded_config,
    not_built,
    print_pipeline,
    print_result,
    write_page,
)
from lakeingest.cli_points import points
from lakeingest.cli_quarantine import quarantines
from lakeingest.cli_signals import signals
from lakeingest.cli_submit import submits
from lakeingest.errors import (
    LakeIngestError,
    Retryable,
    UsageError,
)
from lakeingest.exits import EXIT_INTERRUPTED, exit_code, message, runbook
from lakeingest.late_imports import import_late
from lakeingest.termination import Terminated, terminate, watch_sigterm

if TYPE_CHECKING:
    from lakeingest.committed import Committed  # a command begins without modules that it may not need

_TERMINATED_ERROR = Retryable("stopped by SIGTERM before its end; the same command goes on from the last commit")
# The number of new objects at which the first garbage collection of a command begins, and each later collection. Before
# the first one, nearly all objects are made by imports, and stay. Of the CPU time of a run with nothing to do, the
# collector took a sixth with Python's 700 objects, and a twentieth with 30,000 from the start on.
_FIRST_OBJECTS, _YOUNG_OBJECTS = 400_000, 30_000

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    """Print the version and exit, if the user has set the option."""
    if value:
        typer.echo(f"lakeingest {__version__}")
        raise typer.Exit


Runbook = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The last word of an error's line.")]


@app.callback()
def lakeingest(
    config: Annotated[Path | None, typer.Option("-c", "--config", help="The pipeline's file.")] = None,
    log_format: LogFormat = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the stack trace of an error; may also follow the command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Exact copies of MySQL tables in a lake."""
    # the other options have acted already: in their callbacks, and `--debug` in `main`
    if config is not None:
        os.environ["LAKEINGEST_CONFIG"] = str(config)  # each command takes its default from this variable


@app.command()
def demo(
    target: Annotated[Literal["iceberg", "hudi"], typer.Option(help="The format of the lake.")] = "iceberg",
    rows: Annotated[int, typer.Option(min=10, help="Rows of the sample shop.")] = 100_000,
    folder: Annotated[Path, typer.Option("--dir", help="The folder for warehouse and state, which is kept.")] = Path(
        "demo-lake"
    ),
    place: Annotated[
        Literal["local", "s3"],
        typer.Option(help="Keep tables and state in a folder, or in a local S3 (Iceberg: with a REST catalog)."),
    ] = "local",
    show_race: Annotated[bool, typer.Option("--show-race", callback=not_built, hidden=True)] = False,
    seed: Annotated[int, typer.Option(hidden=True)] = 1,
) -> None:
    """Copy a sample shop from a local MySQL while writers change it, and prove that the copy is equal."""
    from lakeingest.demo.play import play

    play(folder.resolve(), target, rows, seed, Console(), place)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="The file to write.")] = PIPELINE,
    source: Annotated[
        str | None,
        typer.Option(
            "--from-source",
            metavar="URL",
            help="Fill in the file from the source mysql://user:password@host:port/database. Append ?tls.ca=FILE or"
            " ?tls.pin=sha256:… if needed. The default password is $MYSQL_PASSWORD.",
        ),
    ] = None,
) -> None:
    """Write a commented pipeline.yml; an existing file is never overwritten."""
    from lakeingest.commands import init as stage

    written = stage.init(path, source, os.environ)
    if source is None:
        typer.echo(f"{path}: an example; set source and tables in it")
    else:
        left_out = f", left out: {len(written.refused)} (it says why)" if written.refused else ""
        proposed = f", partitions proposed: {len(written.partitions)} (in comments)" if written.partitions else ""
        typer.echo(f"{path}: tables to copy: {len(written.tables)}{left_out}{proposed}")
    export = "" if stage.PASSWORD in os.environ else f"export {stage.PASSWORD}, then "
    typer.echo(f"next: {export}lakeingest check -c {path}")


@app.command()
def plan(
    tables: Names = None, as_json: AsJson = False, config: ConfigFile = PIPELINE, overrides: Overrides = None
) -> None:
    """Show what a run would do with each table; reads one chunk of each table, changes nothing.

    More than five tables get one line each; name tables for all details.
    """
    from lakeingest import console
    from lakeingest.commands import plan as stage

    plans = stage.plan(loaded_config(config, overrides), tables or ())
    # without the first note, which says that these are estimates: the lines say so, too
    print_result(plans, as_json, [*console.plan_lines(plans, named=bool(tables)), *plans.notes[1:]])


@app.command()
def run(
    tables: Names = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop at the first commit after this many minutes.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep following the source until SIGTERM.")] = False,
    log_format: LogFormat = None,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Copy new tables, apply the binlog, and publish."""
    from lakeingest import console
    from lakeingest.commands import run as stage
    from lakeingest.committed import Committed
    from lakeingest.recording import Recorder

    loaded = loaded_config(config, overrides)
    committed = Committed()
    set_keys = [override.partition("=")[0] for override in overrides or ()]
    recorder = Recorder(loaded, committed, set_keys, follow=follow)

    stopping = watch_sigterm() if follow else lambda: False
    try:
        # forked before the observer, which may start a thread
        with stage.forked_nursery(loaded) as nursery, console.observer(Console(stderr=True)) as draw:

            def draw_and_record(event: Any) -> None:
                draw(event)
                recorder.take(event)

            observe = committed.collecting_before(draw_and_record)
            result = stage.run(
                loaded, tables or (), max_minutes, observe, follow=follow, stopping=stopping, nursery=nursery
            )
    except BaseException as error:
        ending_error = _ending_error(error, committed)
        # None if the error ended the run at once; otherwise the run went on with other tables, and has a RunResult
        run_result = error.result if isinstance(error, LakeIngestError) else None
        recorder.fail(ending_error, run_result)
        if run_result is not None:
            print_result(run_result, as_json, console.run_lines(run_result))
            for line in console.stopped_lines(run_result, error):
                terminal.say_error(line)
        if ending_error is error:
            raise
        raise ending_error from error
    recorder.end(result)
    print_result(result, as_json, console.run_lines(result))


@app.command()
def status(
    tables: Names = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not connect to the source; needs no password.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page for a browser to this file.")
    ] = None,
    as_json: AsJson = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Show the state of each table; needs no Spark. If the source does not answer, only the lake is read."""
    loaded = loaded_config(config, overrides, offline=offline)
    print_pipeline(loaded, as_json)
    from lakeingest.commands import status as stage

    results = stage.status(loaded, tables or (), offline=offline)
    if html is not None:
        write_page(html, results, f"{loaded.name}: status")
    if as_json:
        print_result(results, as_json, ())
    else:
        # without a terminal no line is wrapped, so that no name is cut
        Console(width=None if sys.stdout.isatty() else 1000).print(results)
    if results.source_error is not None:
        raise results.source_error


@app.command()
def changelog(
    table: Table,
    form: Annotated[
        Literal["changelog-json", "debezium-json", "cloudevents"] | None,
        typer.Option("--format", help="The form of the lines; default: changelog-json."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Print only changes after a position or a time, or of a duration such as 2h.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Also print later changes, until SIGTERM.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Write Parquet files into this path or URI instead; go on behind its files."
        ),
    ] = None,
    file_rows: Annotated[
        int | None, typer.Option(min=1, help="With --to: finish a file that has so many rows; default: 100000.")
    ] = None,
    file_seconds: Annotated[
        float | None, typer.Option(min=0, help="With --to: finish a file after so many seconds; default: 60.")
    ] = None,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Print every row of a table and then its changes, one JSON document a line; needs no source and no Spark."""
    if to is not None and form is not None:
        raise UsageError("--format is the form of lines, and --to writes Parquet files; leave one of them out")
    if to is None and (file_rows is not None or file_seconds is not None):
        raise UsageError("--file-rows and --file-seconds need --to")
    loaded = loaded_config(config, overrides, offline=True)
    stopping = watch_sigterm() if follow else lambda: False
    if to is not None:
        from lakeingest.commands.changelog_files import Limits, write_files

        limits = Limits.of(file_rows, file_seconds)
        write_files(loaded, table, to, typer.echo, since, limits=limits, follow=follow, stopping=stopping)
        return
    from lakeingest.commands.feed import feed

    out = sys.stdout.buffer
    feed(loaded, table, form or "changelog-json", out, since, version=__version__, follow=follow, stopping=stopping)


@app.command()
def explain(name: Runbook = None) -> None:
    """Print the runbook of an error; without NAME, the list of all runbooks."""
    from lakeingest.commands import explain as stage

    terminal.print_page(stage.explain(name))


@app.command()
def unpack(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The folder to write into.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write the notebooks, the rules for Prometheus and the dashboard for Grafana; no file is overwritten."""
    from lakeingest.commands.unpack import unpack as stage

    files = stage(folder)
    print_result(files, as_json, repr(files).splitlines())


app.add_typer(checks)
app.add_typer(submits)
app.add_typer(signals)
app.add_typer(quarantines)
app.add_typer(points)


def main() -> NoReturn:
    """Run a command. An error is printed as one line, and its class decides the exit code."""
    signal.signal(signal.SIGTERM, terminate)
    collect_rarely()
    import_late()
    os.umask(0o077)  # until `share_like` sets the umask by the permissions of the warehouse
    if isinstance(sys.stdout, io.TextIOWrapper):  # the locale's encoding may not have all characters of a table's name
        sys.stdout.reconfigure(errors="backslashreplace")
    debug = "--debug" in sys.argv
    # libraries log errors, too; without --debug their logs are dropped, so that the user gets a single line
    handler = logging.StreamHandler() if debug else logging.NullHandler()
    handler.setFormatter(terminal.LogFormatter("%(levelname)s:%(name)s:%(message)s"))
    logging.basicConfig(handlers=[handler])
    try:
        code = _run_command()
    except typer.Exit as error:
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - the outermost level: every error becomes a line and an exit code
        if terminal.is_closed_pipe(error):
            terminal.exit_silently()
        code = exit_code(error)
        if debug:
            terminal.say_lines(traceback.format_exc())
        terminal.say_error(message(error), error=runbook(error), exit=code)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        terminal.exit_silently()
    if code == 0 and "pyspark" in sys.modules:
        from lakeingest.spark.session import stop_active_session

        stop_active_session()
    gc.freeze()  # else the interpreter, as it ends, looks at all objects several times, which takes a third of a second
    sys.exit(code)  # Spark's JVM ends with this process; after an error it is not stopped, for it may not answer


def collect_rarely() -> None:
    """Let the first garbage collection wait until the imports of a command are done."""
    gc.set_threshold(_FIRST_OBJECTS)

    def collect_sooner(*_: object) -> None:
        """From the first collection on, which calls this function, collect more often."""
        gc.callbacks.remove(collect_sooner)
        gc.set_threshold(_YOUNG_OBJECTS)

    gc.callbacks.append(collect_sooner)


def _run_command() -> int:
    """Run the command of the command line. Returns the exit code: 0, or with `submit --wait` that of the job."""
    words = [word for word in sys.argv[1:] if word != "--debug"]  # `--debug` is allowed anywhere in the line
    try:
        result = app(words, standalone_mode=False)
    except Terminated:
        raise _TERMINATED_ERROR from None
    if result == EXIT_INTERRUPTED:  # Typer returns this value after Ctrl-C
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _ending_error(error: BaseException, committed: "Committed") -> BaseException:
    """The error to raise for the error that ended a run. The message of some errors gets the commits of this run.

    Ctrl-C, SIGTERM and errors of the class Retryable itself always get them: the message says so if there are none. An
    error of a subclass of Retryable gets them if there are any. All other errors stay as they are.
    """
    if isinstance(error, Terminated):
        error = _TERMINATED_ERROR
    if isinstance(error, KeyboardInterrupt):  # not KeyboardInterrupt itself, because Typer would drop the message
        return typer.Abort(f"interrupted; {committed}; the same command goes on from it")
    is_plain = type(error) is Retryable  # such as `_TERMINATED_ERROR`
    if isinstance(error, Retryable) and (committed.tables or is_plain):
        return type(error)(f"{error}; {committed}")
    return error
