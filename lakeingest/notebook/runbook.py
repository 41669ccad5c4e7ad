"""Runbooks as pages of a notebook."""

from lakeingest.commands.explain import explain
from lakeingest.errors import LakeIngestError


class Runbook(str):
    """The text of a runbook, in Markdown. A notebook shows it as a page."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def runbook(error: LakeIngestError | str) -> Runbook:
    """The runbook of an error, or of the error with this name. Raises UsageError if there is none of this name."""
    return Runbook(explain(error if isinstance(error, str) else type(error).__name__))
