"""What is known of a run that ended without a word: it was killed, or its machine stopped.

Such a run records no outcome, sends no notice and prints no error. It leaves the lease that it held. If a command has
taken this lease since and given it back, only last_run.json is left: it says that a run is at work, although none is.
"""

from contextlib import suppress
from datetime import UTC, datetime

from lakeingest.errors import DAMAGED, LakeIngestError
from lakeingest.files.file import File
from lakeingest.state import last_run, lease, store

# A run gives the lease back just before it records its outcome. So a record without outcome tells something only if it
# is older than so many seconds
_LATE_SECONDS = 60.0


def vanished_run(state: File) -> str:
    """A sentence about the last run, if it ended without a word; '' if it did not, or if that is not known."""
    with suppress(OSError, LakeIngestError, *DAMAGED):
        if (owner := lease.left_by(state)) is not None:
            at = last_run.last_progress(state, owner.host, owner.pid)
            return _sentence(owner.since, owner.host, owner.pid, at)
        last = store.read(state / last_run.NAME)
        at = datetime.fromisoformat(last["at"])
        is_late = (datetime.now(UTC) - at).total_seconds() > _LATE_SECONDS
        if last["exit"] is None and is_late and not lease.is_held(state):
            return _sentence(None, str(last["host"]), int(last["pid"]), at)
    return ""


def _sentence(since: str | None, host: str, pid: int, at: datetime | None) -> str:
    """The sentence about a run that began at `since`, and last recorded progress at `at`; None if unknown."""
    began = "" if since is None else f", which began at {since},"
    progress = "" if at is None else f"; its last progress was at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"the last run, pid {pid} on {host}{began} ended without a word, as if it was killed or its machine stopped"
        f"{progress}. What it committed stays, and the next run goes on from there"
    )
