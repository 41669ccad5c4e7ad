"""Records in the state folder what becomes of a run: while the run is at work, and when it has ended."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lakeingest import console, terminal
from lakeingest.committed import Committed, is_recorded
from lakeingest.config import Config
from lakeingest.errors import LakeIngestError, LeaseHeld, LeaseLost, NotOurState, StorageAway, StorageFailed
from lakeingest.exits import exit_code, message
from lakeingest.files.file import state_of
from lakeingest.state import last_run, lease

EVERY_SECONDS = 10.0  # between two records of a run that makes progress


class Recorder:
    """Writes `last_run.json`. `committed` collects each event before `take` gets it.

    While a run is at work, its exit code is None. Nothing is written before the run holds the lease, so the record of
    another run stays as it is. `set_keys`: the keys of pipeline.yml that the command line changed, without the values,
    because some values are secrets.
    """

    def __init__(self, config: Config, committed: Committed, set_keys: Sequence[str], *, follow: bool) -> None:
        self._config, self._committed, self._follows = config, committed, follow
        self._constant: dict[str, Any] = {"set": list(set_keys)} if set_keys else {}
        self._recorded: float | None = None  # by the monotonic clock; None if nothing is recorded yet

    def take(self, event: Any) -> None:
        """Record the run's progress every EVERY_SECONDS; if the run follows, also when `is_recorded` says so."""
        if not self._committed.began:
            return
        now = time.monotonic()
        is_due = self._recorded is None or now - self._recorded >= EVERY_SECONDS
        if is_due or (self._follows and is_recorded(event)):
            self._recorded = now
            so_far = {"caught_up": self._committed.caught_up, "tables": console.to_document(self._committed.tables)}
            self._write({"exit": None, "error": None} | so_far)

    def end(self, result: Any) -> None:
        """Record the result of the run. If this run never held the lease, the record of another run at work stays."""
        self._write({"exit": 0, "error": None, **console.to_document(result)}, refused=self._is_refused(None))

    def fail(self, error: BaseException, result: Any) -> None:
        """Record the error that ended the run. `result`: that of the run if it went on with other tables, else None.

        With NotOurState the state folder is another pipeline's, and keeps the outcome of that pipeline's run.
        """
        if isinstance(error, NotOurState):
            return
        progress = {"caught_up": False, "tables": console.to_document(self._committed.tables)}
        outcome = {"exit": exit_code(error), "error": message(error)}
        outcome |= progress if result is None else console.to_document(result)
        self._write(outcome, refused=self._is_refused(error))

    def _is_refused(self, error: BaseException | None) -> bool:
        """Whether another run is at work, so that `last_run.json` is the record of that run."""
        if isinstance(error, LeaseHeld):
            return True
        if self._committed.began and not isinstance(error, LeaseLost):  # this run held the lease until now
            return False
        with suppress(LakeIngestError):  # a state folder that cannot be read cannot be written either
            return lease.is_held(state_of(self._config))
        return False

    def _write(self, outcome: Mapping[str, Any], *, refused: bool = False) -> None:
        """Write the outcome. If the state folder cannot be written, print a line about it.

        `refused`: another run is at work, and `last_run.json` stays its record.
        """
        try:
            whole = {**self._constant, **outcome, **self._committed.so_far}
            last_run.record(state_of(self._config), whole, refused=refused)
        except (StorageAway, StorageFailed) as error:
            terminal.say_error(str(error))
