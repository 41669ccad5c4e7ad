"""Sends a job: uploads its files, starts the job once, follows it to its end, and finds out its exit code."""

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
# Exit codes of lakeingest that other programs rarely use. Any other code may be that of Spark or of the service.
_OWN_EXIT_CODES = {2, 3, 70, 75, 130}
_PATIENCE_SECONDS = 900.0  # `follow` gives up if the service does not report a job's state within this time
_LOG_SECONDS = 30.0  # the time from one reading of a job's log to the next


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job: the job's id, the exit code of lakeingest, and the error. `error` is None if the code is 0."""

    job: str
    exit: int
    error: str | None


def send(submission: Submission, say: Say) -> str:
    """Upload the files that the bucket does not have yet, and start the job. Returns the job's id.

    Raises Retryable if the service's answer was lost, so that nobody knows whether the job was started. If the same job
    is submitted once more, it is not started a second time.
    """
    service = submission.service
    # Step 1: upload the files, because the job reads them when it starts.
    folder = service.folder(service.bucket)
    for upload in submission.uploads:
        file = folder / upload.uri.rpartition("/")[2]
        size, uploaded = upload.path.stat().st_size, file.look()
        if uploaded is None or uploaded.size != size:  # other contents have another URI, so the size is enough
            say(f"upload {upload.path.name} ({size / 1e6:.1f} MB) to {upload.uri}")
            file.put(upload.path)
    # Step 2: store the token. If the request gets no answer, it can be repeated with this token.
    try:
        submission.pending.write_text(json.dumps({"token": submission.job.token, "job": job_digest(submission.job)}))
    except OSError as error:
        raise OperatorNeeded(f"{submission.pending} cannot be written: {error.strerror}") from error
    # Step 3: send the request. The answer is the job's id. With the answer, the token is not needed any more.
    job_id = service.start(submission.request)
    submission.pending.unlink(missing_ok=True)
    return job_id


def follow(submission: Submission, job_id: str, say: Say, every_seconds: float = 10.0) -> Outcome:
    """Wait until the job has ended. Each change of the job's state goes to `say`, the log of its driver to stderr."""
    service, last_word = submission.service, ""
    printed_length = 0  # so many characters of the log are printed
    answered_at = logged_at = time.monotonic()
    while True:
        try:
            state = service.state(job_id)
            answered_at = time.monotonic()
        except Retryable:  # the service does not answer, but the job goes on
            if time.monotonic() - answered_at > _PATIENCE_SECONDS:
                raise
            time.sleep(every_seconds)
            continue
        if state.word != last_word:
            last_word = state.word
            say(f"job {job_id}: {last_word.lower()}")
        if state.ended or time.monotonic() - logged_at > _LOG_SECONDS:
            logged_at = time.monotonic()
            printed_length = _print_log(submission, job_id, printed_length, say)
        if state.ended:
            return _outcome(submission, job_id, state)
        time.sleep(every_seconds)


def _print_log(submission: Submission, job_id: str, printed_length: int, say: Say) -> int:
    """Print the job's log after the first `printed_length` characters. Returns how many characters are printed now.

    If the log cannot be read, nothing of it is printed.
    """
    try:
        text = submission.service.log(job_id)
    except (Retryable, OperatorNeeded) as error:
        say(f"the log cannot be read: {error}")
        return printed_length
    sys.stderr.write(printable_lines(text[printed_length:]))
    return max(printed_length, len(text))


def _outcome(submission: Submission, job_id: str, state: State) -> Outcome:
    """The outcome that the job has recorded in the state folder; if there is none, what the service reports.

    A recorded exit code of 0 counts only if the service agrees that the job has succeeded.
    """
    try:
        recorded = last_run.of_job(_state_folder(submission), submission.job.token)
    except (Retryable, StorageFailed):  # perhaps only the role of the job has the right to read the state folder
        recorded = None
    if recorded is not None:
        is_contradicted = recorded["exit"] == 0 and not state.succeeded
        if not is_contradicted:
            return Outcome(job_id, recorded["exit"], recorded["error"])
    if state.succeeded:
        return Outcome(job_id, 0, None)
    # the words of the services for a job that somebody has ended
    if "CANCEL" in state.word or state.word == "INTERRUPTED":
        return Outcome(job_id, Retryable.exit_code, f"the job was ended before its end: {state.word.lower()}")
    # a service may write the exit code of lakeingest into its reason
    why = f"the job has {state.word.lower()}: {state.reason or 'the service gives no reason'}"
    match = re.search(r"(?i)exit ?code:? (\d+)", state.reason)
    code = int(match[1]) if match and int(match[1]) in _OWN_EXIT_CODES else OperatorNeeded.exit_code
    return Outcome(job_id, code, " ".join(why.split()))


def _state_folder(submission: Submission) -> Stored:
    """The state folder, opened with the credentials of this machine.

    The credentials in pipeline.yml are not used, because perhaps only the job knows the values of their variables.
    """
    config, service = submission.config, submission.service
    if config.state.scheme in {"s3", "s3a"}:
        return on_amazon(
            config.state.written, service.region, config.target.storage.model_copy(update={"properties": {}})
        )
    return service.folder(config.state.written)
