"""The ending of a run, as reports, metrics and notices tell it."""

from dataclasses import dataclass
from typing import Any, Self

from lakeingest.errors import LakeIngestError
from lakeingest.exits import EXIT_INTERRUPTED, exit_code, runbook
from lakeingest.termination import Terminated


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run has ended: its exit code, and its RunResult, if it has one.

    `error` is the name of the runbook of the error that ended the run, `message` its message; '' if there is none.
    """

    code: int
    error: str = ""
    message: str = ""
    result: Any = None

    @classmethod
    def of(cls, result: Any, error: BaseException | None) -> Self:
        """The ending of a run with this result, or with this error."""
        if error is None:
            return cls(0, result=result)
        message = "stopped by SIGTERM before its end" if isinstance(error, Terminated) else " ".join(str(error).split())
        result = error.result if isinstance(error, LakeIngestError) else None
        return cls(exit_code(error), runbook(error), message, result)

    @property
    def is_interrupted(self) -> bool:
        """Whether a person has interrupted the run."""
        return self.code == EXIT_INTERRUPTED
