import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.printable import printable, printable_lines


@given(st.text())
def test_no_sign_is_left_that_is_not_seen(text: str) -> None:
    """Also in a text of lines, but for its line feeds."""
    assert printable(text).replace("\N{NO-BREAK SPACE}", " ").isprintable() or any(sign.isspace() for sign in text)
    assert "\n" not in printable(text)
    assert printable_lines(text).count("\n") == text.count("\n")
    assert "\x1b" not in printable_lines(text)


@pytest.mark.parametrize(
    "text", ["", "shop.orders", "café", "客户订单", "a\u3000b\N{NO-BREAK SPACE}c", "[red]x[/red]", r"a\b"]
)
def test_what_is_seen_stays_as_it_is(text: str) -> None:
    """Spaces of any width, too."""
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\u2028b\u200bc\ufeff", r"a\u2028b\u200bc\ufeff"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_moves_a_cursor_or_is_not_seen_is_an_escape(text: str, shown: str) -> None:
    """Of the terminal's own, of lines, of directions, of no width, and halves of a sign."""
    assert printable(text) == shown
