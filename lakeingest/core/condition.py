"""The result of a precondition, whichever package checked it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked precondition, with the name that users see.

    `finding`: what is wrong, and how to fix it; None if the precondition is met. A finding that is not `fatal` is a
    warning: a run can begin.
    """

    name: str
    finding: str | None
    fatal: bool = True

    def __str__(self) -> str:
        return self.name if self.finding is None else f"{self.name}: {self.finding}"
