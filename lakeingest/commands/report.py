"""Reports: results that are tables of values. They are shown on a terminal, in a notebook, or as a pandas frame."""

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from lakeingest.core.figures.shown import iso_time
from lakeingest.core.printable import printable
from lakeingest.drawing.page import page, shown, wide
from lakeingest.drawing.table import Side, cell_text, html_table, sides_of

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # its types are another package

UNBOUNDED = 100_000  # a width that no line reaches, so that Rich cuts no line; Rich does not pad lines to this width

_COLUMNS_MIN = 2  # so many columns are shown in any case
_PADDING = 2  # a space before each cell, and one behind it


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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table and the notes. The last columns are left out if the terminal has no room; a line names them."""
        sides, rows = self._layout()
        headers = [printable(header) for header in self.headers]
        widths = [max(map(cell_len, column)) for column in zip(headers, *rows, strict=True)]
        count = len(headers)
        while count > _COLUMNS_MIN and _width(widths[:count]) > options.max_width:
            count -= 1
        if _width(widths[:count]) <= options.max_width:
            yield from _lines([headers, *rows], widths[:count], sides, console.get_style("table.header"))
        else:  # Rich breaks the values of the two columns into lines
            table = Table(box=None)
            for header, side in zip(headers[:count], sides, strict=False):
                table.add_column(Text(header), justify=side)
            for row in rows:
                table.add_row(*map(Text, row[:count]))  # as Text, so that Rich does not take a name for markup
            yield table
        if left_out := headers[count:]:
            yield Text(f"the terminal is too narrow for: {', '.join(left_out)}")
        if self.note:
            yield Text(self.note)

    def __repr__(self) -> str:
        out = io.StringIO()
        Console(file=out, width=UNBOUNDED, color_system=None, force_jupyter=False).print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return html_table(self.headers, self.cells(), self.note)

    def to_html(self, title: str) -> str:
        """The report as a page of its own, with this title and the present time. The page loads nothing."""
        table = wide(html_table(self.headers, self.cells()))
        notes = "".join(f"<li>{shown(note)}</li>" for note in self.notes)
        listed = f"<ul>{notes}</ul>" if notes else ""
        return page(title, f"<h1>{shown(title)}</h1><p>as of {iso_time(time.time())}</p>{table}{listed}")

    def _layout(self) -> tuple[list[Side], list[list[str]]]:
        """The alignment of each column (right if it has a number), and the rows with their values as texts."""
        rows = [tuple(row) for row in self.cells()]
        return sides_of(rows, len(self.headers)), [[cell_text(value) for value in row] for row in rows]


def _width(widths: Sequence[int]) -> int:
    """The width of a line with columns of these widths."""
    return sum(widths) + _PADDING * len(widths)


def _lines(
    rows: Sequence[Sequence[str]], widths: Sequence[int], sides: Sequence[Side], header: Style
) -> Iterator[Segment]:
    """The lines of a table, as Rich draws it without a box. For thousands of rows Rich itself takes seconds."""
    for number, row in enumerate(rows):
        cells = []
        for text, width, side in zip(row, widths, sides, strict=False):
            filled = " " * (width - cell_len(text))
            cells.append(f" {filled}{text} " if side == "right" else f" {text}{filled} ")
        yield Segment("".join(cells), header if number == 0 else None)
        yield Segment.line()
