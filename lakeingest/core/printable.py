"""Texts as a terminal, a log or a page shows them: no sign in a name or in a server's message moves the cursor.

A person who may create a table chooses its name, and a server chooses its answers. Such a text may have an escape
sequence that clears the screen, a line feed before a forged line, or a sign that reverses the text after it.
"""

import unicodedata


def printable(text: str) -> str:
    r"""The text as one line. A sign that is not printable becomes an escape, such as `\x1b` or `\u202e`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """As `printable`, for a text of several lines: its line feeds stay."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(sign: str) -> str:
    if sign.isprintable() or unicodedata.category(sign) == "Zs":  # a space, of any width
        return sign
    return sign.encode("unicode_escape").decode()
