"""The result of a precondition, whichever package checked it."""

from dataclasses import dataclass
from typing import Self

from lakeingest.errors import LakeIngestError


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked precondition, with the name that users see.

    `finding`: what is wrong, and how to fix it; None if the precondition is met. A finding that is not `fatal` is a
    warning: a run can begin. `runbook`: the name of the runbook of the error that was found; '' if none was.
    """

    name: str
    finding: str | None
    fatal: bool = True
    runbook: str = ""

    @classmethod
    def failed(cls, name: str, *errors: LakeIngestError) -> Self:
        """A fatal finding: the messages of these errors. If they have several runbooks, none is named."""
        runbooks = {error.runbook for error in errors}
        return cls(name, "; ".join(map(str, errors)), runbook=runbooks.pop() if len(runbooks) == 1 else "")

    def __str__(self) -> str:
        return self.name if self.finding is None else f"{self.name}: {self.finding}"
