"""The command `submit`: it sends a pipeline to a service as a job. With --wait, it has the exit code of the job."""

import json
from typing import Annotated, Literal

import typer

from lakeingest import terminal
from lakeingest.cli_options import PIPELINE, ConfigFile, Overrides, print_result
from lakeingest.errors import Retryable, UsageError
from lakeingest.termination import Terminated

Name = Literal["emr", "emr-serverless", "dataproc", "dataproc-serverless"]
submits = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@submits.command()
def submit(
    service: Annotated[
        Name, typer.Argument(metavar="SERVICE", help="emr, emr-serverless, dataproc, or dataproc-serverless.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build the job and check it; send nothing.")] = False,
    init: Annotated[
        bool,
        typer.Option(
            "--init",
            help="Write the missing files of a scheduled job (emr-serverless, dataproc); send nothing.",
        ),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job, and exit with its exit code.")] = False,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="JOB", help="End the job with this id; start none.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON: the job's id and exit code, or the request of a dry run.")
    ] = False,
    config: ConfigFile = PIPELINE,
    overrides: Overrides = None,
) -> None:
    """Run this pipeline on a cluster: upload its files, start a job, and with --wait follow the job."""
    from lakeingest import console
    from lakeingest.commands import submit as stage
    from lakeingest.commands import submitted

    goes_alone = init or cancel is not None
    if goes_alone and sum((dry_run, init, wait, cancel is not None)) > 1:
        raise UsageError("--init and --cancel go with no other of --dry-run, --init, --wait and --cancel")
    if init:
        from lakeingest.commands.deployment import deploy

        deployment = deploy(config, service, overrides or ())
        print_result(deployment, as_json, repr(deployment).splitlines())
        return
    if cancel is not None:
        stage.load_service(config, service, overrides or ()).cancel(cancel)
        _say(f"job {cancel} is asked to end; what it has committed stays")
        return
    submission = stage.submit(config, service, overrides or ())
    if dry_run:
        result = submission.request if as_json else submission
        print_result(result, as_json, console.submission_lines(submission))
        return
    job = submitted.send(submission, _say)
    cancel_line = f"lakeingest submit {service} -c {config} --cancel {job}"
    _say(f"job {job} is started on {submission.service.title}; to end it: {cancel_line}")
    if not wait:
        typer.echo(json.dumps({"service": service, "job": job}) if as_json else job)
        return
    try:
        outcome = submitted.follow(submission, job, _say)
    except KeyboardInterrupt:
        raise typer.Abort(f"interrupted; job {job} goes on; to end it: {cancel_line}") from None
    except Terminated:
        raise Retryable(f"stopped by SIGTERM; job {job} goes on; to end it: {cancel_line}") from None
    if as_json:
        typer.echo(json.dumps({"service": service, "job": job, "exit": outcome.exit, "error": outcome.error}))
    if outcome.error is not None:
        _say(f"job {job}: {outcome.error}")
    raise typer.Exit(outcome.exit)


def _say(text: str) -> None:
    terminal.say(f"lakeingest: {text}")
