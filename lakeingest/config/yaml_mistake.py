"""A mistake in YAML, for messages: they name its place, but not the text, which may be a password."""

import re

_QUOTED = re.compile(r"(['\"]).*\1")


def yaml_mistake(error: Exception) -> str:
    """The mistake with its line and column, without any of the text."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return "it is not UTF-8, or has characters that YAML does not allow"
    # a problem quotes signs or names from the text
    problem = _QUOTED.sub("…", str(getattr(error, "problem", "") or "a mistake"))
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
