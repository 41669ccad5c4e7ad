"""Reports: results that are tables of values. They are shown on a terminal, in a notebook, or as a pandas frame."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Literal

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lakeingest.core.printable import printable

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # its types are another package

Side = Literal["left", "right"]
UNBOUNDED = 100_000  # a width that no line reaches, so that Rich cuts no line; Rich does not pad lines to this width
# the style sets no colours, so that those of the notebook's page are used: the page may be light or dark
_CELL = "padding: 2px 12px; vertical-align: top; border-bottom: 1px solid rgba(128, 128, 128, 0.35); text-align: "


class Report(ABC):
    """A result that is a table of values. The cell of an unknown value (None) is empty. Numbers are on the right."""

    __slots__ = ()

    @property
    @abstractmethod
    def headers(self) -> Sequence[str]:
        """The names of the columns."""

    @abstractmethod
    def cells(self) -> Iterable[Sequence[object]]:
        """The values, row by row."""

    @property
    def notes(self) -> Sequence[str]:
        """The lines below the table."""
        return ()

    @property
    def note(self) -> str:
        """The text below the table."""
        return "\n".join(map(printable, self.notes))

    def to_pandas(self) -> "pd.DataFrame":
        """The values as a pandas frame. Integers stay integers, even if some values of the column are unknown."""
        import pandas as pd

        rows = [tuple(row) for row in self.cells()]
        frame = pd.DataFrame(rows, columns=list(self.headers))
        for index, header in enumerate(self.headers):
            values = [row[index] for row in rows]
            # pandas would make floats, which are inexact, of a column of integers and None
            if {type(value) for value in values} == {int, type(None)}:
                frame[header] = pd.array(values, dtype="Int64")
        return frame

    def __rich__(self) -> Group:
        sides, rows = self._layout()
        table = Table(box=None)
        for header, side in zip(self.headers, sides, strict=True):
            table.add_column(Text(printable(header)), justify=side)
        for row in rows:
            table.add_row(*map(Text, row))  # as Text, so that Rich does not take a name for markup
        return Group(table, Text(self.note)) if self.note else Group(table)

    def __repr__(self) -> str:
        out = io.StringIO()
        Console(file=out, width=UNBOUNDED, color_system=None, force_jupyter=False).print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())

    def _repr_html_(self) -> str:
        sides, rows = self._layout()
        head = _html_row("th", map(printable, self.headers), sides)
        body = "".join(_html_row("td", row, sides) for row in rows)
        note = f"<div>{escape(self.note)}</div>" if self.note else ""
        return f'<table style="border-collapse: collapse"><thead>{head}</thead><tbody>{body}</tbody></table>{note}'

    def _layout(self) -> tuple[list[Side], list[list[str]]]:
        """The alignment of each column (right if it has a number), and the rows with their values as texts."""
        rows = [tuple(row) for row in self.cells()]
        columns = [[row[index] for row in rows] for index in range(len(self.headers))]
        sides: list[Side] = ["right" if any(map(_is_number, column)) else "left" for column in columns]
        return sides, [[_cell_text(value) for value in row] for row in rows]


def _html_row(tag: str, texts: Iterable[str], sides: Iterable[Side]) -> str:
    cells = (f'<{tag} style="{_CELL}{side}">{escape(text)}</{tag}>' for text, side in zip(texts, sides, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell_text(value: object) -> str:
    """The text of a value in a cell; '' for None."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
    return printable(str(value))
