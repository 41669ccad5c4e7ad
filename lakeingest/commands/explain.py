"""Explain: the runbooks ship with the package, so that they can be read where a run stopped."""

import difflib
from importlib import resources

from lakeingest.errors import UsageError

_INDEX = "README"


def names() -> list[str]:
    """The errors that have a runbook, sorted."""
    files = resources.files("lakeingest").joinpath("runbooks").iterdir()
    return sorted(file.name.removesuffix(".md") for file in files if file.name != f"{_INDEX}.md")


def explain(name: str | None = None) -> str:
    """The runbook of an error, as Markdown; without a name, the list of all runbooks.

    UsageError if no runbook has this name. The message lists all names, the nearest name first.
    """
    runbooks = names()
    if name is not None and name not in runbooks:
        lowered = {runbook.lower(): runbook for runbook in runbooks}
        near = difflib.get_close_matches(name.lower(), lowered, 1)
        hint = f"did you mean {lowered[near[0]]}? " if near else ""
        raise UsageError(f"no runbook has the name {name}; {hint}known are {', '.join(runbooks)}")
    return resources.files("lakeingest").joinpath("runbooks", f"{name or _INDEX}.md").read_text(encoding="utf-8")
