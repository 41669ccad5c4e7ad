"""A job that is sent: its files are uploaded, it is started once and followed to its end, which gives an exit code."""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from lakeingest.cluster.objects import on_amazon
from lakeingest.cluster.service import State
from lakeingest.commands.submit import Submission, job_digest
from lakeingest.core.printable import printable_lines
from lakeingest.errors import OperatorNeeded, Retryable, StorageFailed
from lakeingest.files.stored import Stored
from lakeingest.state import last_run

Say = Callable[[str], None]
_OURS = {2, 3, 70, 75, 130}  # exit codes of lakeingest that other programs hardly use
_PATIENCE_SECONDS = 900.0  # for so long a service may fail to tell the state of a job
_LOG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job: its own exit code, and the error if the code is not 0."""

    job: str
    exit: int
    error: str | None


def send(submission: Submission, say: Say) -> str:
    """Upload the files that the bucket does not have yet, and start the job. Returns the job's id.

    Raises Retryable if the service's answer was lost. If the job was started, the next submission of it finds it.
    """
    service = submission.service
    # Step 1: upload the files, because the job reads them when it starts.
    folder = service.folder(service.bucket)
    for upload in submission.uploads:
        file = folder / upload.uri.rpartition("/")[2]
        size, uploaded = upload.path.stat().st_size, file.look()
        if uploaded is None or uploaded.size != size:
            say(f"upload {upload.path.name} ({size / 1e6:.1f} MB) to {upload.uri}")
            file.put(upload.path)
    # Step 2: store the token before the request, so that a request without an answer can be repeated with it.
    try:
        submission.pending.write_text(json.dumps({"token": submission.job.token, "job": job_digest(submission.job)}))
    except OSError as error:
        raise OperatorNeeded(f"{submission.pending} cannot be written: {error.strerror}") from error
    # Step 3: start the job; its id is the answer, so the token is not needed any more.
    run = service.start(submission.request)
    submission.pending.unlink(missing_ok=True)
    return run


def follow(submission: Submission, run: str, say: Say, every_seconds: float = 10.0) -> Outcome:
    """Wait until the job has ended. `say` gets each change of its state; its driver's log goes to stderr."""
    service, printed, word = submission.service, 0, ""
    answered = logged = time.monotonic()
    while True:
        try:
            state = service.state(run)
            answered = time.monotonic()
        except Retryable:
            if time.monotonic() - answered > _PATIENCE_SECONDS:
                raise
            time.sleep(every_seconds)
            continue
        if state.word != word:
            word = state.word
            say(f"job {run}: {word.lower()}")
        if state.ended or time.monotonic() - logged > _LOG_SECONDS:
            logged = time.monotonic()
            printed = _print_log(submission, run, printed, say)
        if state.ended:
            return _outcome(submission, run, state)
        time.sleep(every_seconds)


def _print_log(submission: Submission, run: str, printed: int, say: Say) -> int:
    """Print the log after its first `printed` characters, if it can be read. Returns how many are printed now."""
    try:
        text = submission.service.log(run)
    except (Retryable, OperatorNeeded) as error:
        say(f"the log cannot be read: {error}")
        return printed
    sys.stderr.write(printable_lines(text[printed:]))
    return max(printed, len(text))


def _outcome(submission: Submission, run: str, state: State) -> Outcome:
    """The result that the job has recorded in its state folder; otherwise the result that the service reports."""
    try:
        recorded = last_run.of_job(_state_folder(submission), submission.job.token)
    except (Retryable, StorageFailed):  # the state may be for the job's role alone
        recorded = None
    if recorded is not None and (recorded["exit"] or state.succeeded):
        return Outcome(run, recorded["exit"], recorded["error"])
    if state.succeeded:
        return Outcome(run, 0, None)
    if "CANCEL" in state.word or state.word == "INTERRUPTED":
        return Outcome(run, Retryable.exit_code, f"the job was ended before its end: {state.word.lower()}")
    why = f"the job has {state.word.lower()}: {state.reason or 'the service gives no reason'}"
    match = re.search(r"(?i)exit ?code:? (\d+)", state.reason)
    code = int(match[1]) if match and int(match[1]) in _OURS else OperatorNeeded.exit_code
    return Outcome(run, code, " ".join(why.split()))


def _state_folder(submission: Submission) -> Stored:
    """The state folder, with this machine's credentials, because only the job may know the file's credentials."""
    config, service = submission.config, submission.service
    if config.state.scheme in {"s3", "s3a"}:
        return on_amazon(
            config.state.written, service.region, config.target.storage.model_copy(update={"properties": {}})
        )
    return service.folder(config.state.written)
