"""The result of a precondition, whichever edge checked it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked precondition, by the name that users see. `finding` names the fault and its fix; None: it is met.

    A finding that is not `fatal` is a warning: a run may begin.
    """

    name: str
    finding: str | None
    fatal: bool = True

    def __str__(self) -> str:
        return self.name if self.finding is None else f"{self.name}: {self.finding}"
