"""A mistake in YAML as messages name it: by its place, for the text itself may be a password."""

import re

_QUOTED = re.compile(r"(['\"]).*\1")


def yaml_mistake(error: Exception) -> str:
    """Where the mistake is, and which; nothing of the text."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return "it is not UTF-8, or has characters that YAML does not allow"
    # what is quoted in a problem is a sign or a name of the text
    problem = _QUOTED.sub("…", str(getattr(error, "problem", "") or "a mistake"))
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
