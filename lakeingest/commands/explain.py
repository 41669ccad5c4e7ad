"""Explain: the runbook of an error. Runbooks are part of the package, so people can read them where a run stopped."""

import difflib
from importlib import resources

from lakeingest.errors import UsageError

_INDEX = "README"


def names() -> list[str]:
    """The names of the errors that have a runbook, sorted."""
    files = resources.files("lakeingest").joinpath("runbooks").iterdir()
    return sorted(file.name.removesuffix(".md") for file in files if file.name != f"{_INDEX}.md")


def explain(name: str | None = None) -> str:
    """The runbook of an error, as Markdown; without a name, the list of all runbooks.

    Raises UsageError if no runbook has this name. The message suggests the most similar name, and lists all names.
    """
    runbooks = names()
    if name is not None and name not in runbooks:
        lowered = {runbook.lower(): runbook for runbook in runbooks}
        nearest = difflib.get_close_matches(name.lower(), lowered, 1)
        hint = f"did you mean {lowered[nearest[0]]}? " if nearest else ""
        raise UsageError(f"no runbook has the name {name}; {hint}known are {', '.join(runbooks)}")
    return resources.files("lakeingest").joinpath("runbooks", f"{name or _INDEX}.md").read_text(encoding="utf-8")
