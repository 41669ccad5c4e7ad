"""Tables as HTML. A click on a header sorts the rows; where scripts are forbidden, the table is shown all the same."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from lakeingest.core.printable import printable, printable_lines

Side = Literal["left", "right"]
# No colours: those of the page are used, which may be light or dark
_TABLE = "border-collapse: collapse"
_CELL = "padding: 2px 12px; vertical-align: top; border-bottom: 1px solid rgba(128, 128, 128, 0.35); text-align: "
_BUTTON = "all: unset; cursor: pointer"
# Sorts by the clicked column; a second click turns the order around. Of a number, `data-value` has the digits without
# commas. Empty cells come last. `event.target` is the button in a header.
_SCRIPT = """
const head = event.target.closest('th');
if (head) {
  const up = head.getAttribute('aria-sort') !== 'ascending', body = this.parentNode.tBodies[0];
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const text = row => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
  const order = (a, b) => a !== '' && b !== '' && !isNaN(a) && !isNaN(b)
    ? a - b : a.localeCompare(b, undefined, {numeric: true});
  [...body.rows].sort((one, other) => {
    const a = text(one), b = text(other);
    return a === '' || b === '' ? (a === '') - (b === '') : order(a, b) * (up ? 1 : -1);
  }).forEach(row => body.append(row));
}
"""
SORT = " ".join(_SCRIPT.split())


def html_table(headers: Iterable[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """The rows as an HTML table that can be sorted, and below it the note.

    Headers, values and note are data: they cannot add tags. The cell of an unknown value (None) is empty. The values of
    a column with numbers are aligned to the right.
    """
    names, listed = list(map(printable, headers)), [tuple(row) for row in rows]
    sides = sides_of(listed, len(names))
    head = "".join(
        f'<th style="{_CELL}{side}"><button style="{_BUTTON}" title="sort">{escape(name)}</button></th>'
        for name, side in zip(names, sides, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in listed)
    below = f'<div style="white-space: pre-line">{escape(printable_lines(note))}</div>' if note else ""
    sort = escape(SORT)
    return (
        f'<table style="{_TABLE}"><thead onclick="{sort}"><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}'
    )


def sides_of(rows: Sequence[Sequence[object]], columns: int) -> list[Side]:
    """The alignment of each column: right if the column has a number. `columns`: how many columns there are."""
    return ["right" if any(_is_number(row[index]) for row in rows) else "left" for index in range(columns)]


def cell_text(value: object) -> str:
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


def _cell(value: object, side: Side) -> str:
    """A cell as HTML. A number also has all its digits, by which the script sorts."""
    exact = f' data-value="{value}"' if _is_number(value) else ""
    return f'<td style="{_CELL}{side}"{exact}>{escape(cell_text(value))}</td>'


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
