"""Texts as a terminal, a log or a page shows them: no character in a name or a server's message moves the cursor.

A person who is allowed to create a table chooses the table's name, and a server chooses its messages. Such a text may
have an escape sequence that clears the screen, a line feed before a forged line, or a character that reverses the text
after it.
"""

import unicodedata


def printable(text: str) -> str:
    r"""The text as one line. Characters that are neither printable nor spaces become escapes, as `\x1b` or `\u202e`."""
    return text if text.isprintable() else "".join(map(_printable_character, text))


def printable_lines(text: str) -> str:
    """The text with each of its lines as `printable` gives it. The line feeds stay."""
    return "\n".join(map(printable, text.split("\n")))


def _printable_character(character: str) -> str:
    """The character; its escape if it is neither printable nor a space."""
    if character.isprintable() or unicodedata.category(character) == "Zs":  # Zs: spaces of any width
        return character
    return character.encode("unicode_escape").decode()
