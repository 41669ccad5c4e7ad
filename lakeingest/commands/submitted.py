"""A job that is sent: its files uploaded, the job started once, followed to its end, and the exit code that it had."""

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
_OURS = {2, 3, 70, 75, 130}  # exit codes that no other program gives by chance
_PATIENCE_SECONDS = 900.0  # of a service that does not answer questions about a job
_LOG_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: its own exit code, and why if it is not 0."""

    job: str
    exit: int
    error: str | None


def send(submission: Submission, say: Say) -> str:
    """Upload what is not there yet, and start the job; its id.

    Retryable where the answer was lost: the next submission of the same job finds it, if it was started.
    """
    service = submission.service
    folder = service.folder(service.bucket)
    for upload in submission.uploads:
        file = folder / upload.uri.rpartition("/")[2]
        size, there = upload.path.stat().st_size, file.look()
        if there is None or there.size != size:
            say(f"upload {upload.path.name} ({size / 1e6:.1f} MB) to {upload.uri}")
            file.put(upload.path)
    try:
        submission.pending.write_text(json.dumps({"token": submission.job.token, "job": job_digest(submission.job)}))
    except OSError as error:
        raise OperatorNeeded(f"{submission.pending} cannot be written: {error.strerror}") from error
    run = service.start(submission.request)
    submission.pending.unlink(missing_ok=True)
    return run


def follow(submission: Submission, run: str, say: Say, every_seconds: float = 10.0) -> Outcome:
    """Wait until the job has ended; `say` gets each change of its state, and what its driver printed."""
    service, shown, word = submission.service, 0, ""
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
            shown = _print_log(submission, run, shown, say)
        if state.ended:
            return _outcome(submission, run, state)
        time.sleep(every_seconds)


def _print_log(submission: Submission, run: str, shown: int, say: Say) -> int:
    """Print what is new in the log, if the log can be had; how much of it is printed."""
    try:
        text = submission.service.log(run)
    except (Retryable, OperatorNeeded) as error:
        say(f"the log cannot be read: {error}")
        return shown
    sys.stderr.write(printable_lines(text[shown:]))
    return max(shown, len(text))


def _outcome(submission: Submission, run: str, state: State) -> Outcome:
    """What the job has recorded, else what the service says."""
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
    found = re.search(r"(?i)exit ?code:? (\d+)", state.reason)
    code = int(found[1]) if found and int(found[1]) in _OURS else OperatorNeeded.exit_code
    return Outcome(run, code, " ".join(why.split()))


def _state_folder(submission: Submission) -> Stored:
    """The state, with the credentials of this machine: those of the file may be known to the job alone."""
    config, service = submission.config, submission.service
    if config.state.scheme in {"s3", "s3a"}:
        return on_amazon(
            config.state.written, service.region, config.target.storage.model_copy(update={"properties": {}})
        )
    return service.folder(config.state.written)
