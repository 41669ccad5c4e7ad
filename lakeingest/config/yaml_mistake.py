"""A mistake in YAML as a text for messages. The message has the line and column, but no text of the file.

The text of the file may be a password.
"""

import re

_QUOTED = re.compile(r"(['\"]).*\1")


def yaml_mistake(error: Exception) -> str:
    """The parser's message, with line and column, but without any text of the file."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return "it is not UTF-8, or has characters that YAML does not allow"
    # the parser's text about a problem quotes characters or names from the file, which are replaced by `…`
    problem = _QUOTED.sub("…", str(getattr(error, "problem", "") or "a mistake"))
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
