"""Tables as HTML: data stay data, and a click on a header sorts the rows."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from lakeingest.drawing.table import html_table

HOSTILE = "<script>alert(1)</script>\" onclick='x' \u202e\n"
# As much of a browser's table as the script uses: rows with cells, a head whose cells have attributes
_BROWSER = """
const {script, headers, rows, clicks} = JSON.parse(require('fs').readFileSync(0));
const body = {rows: rows.map(cells => ({cells: cells.map(([text, value]) =>
  ({textContent: text, dataset: value === null ? {} : {value}}))})),
  append(row) { this.rows.splice(this.rows.indexOf(row), 1); this.rows.push(row); }};
const head = {cells: headers.map((_, index) => ({cellIndex: index, attributes: {},
  getAttribute(name) { return this.attributes[name] ?? null; },
  setAttribute(name, value) { this.attributes[name] = value; },
  removeAttribute(name) { delete this.attributes[name]; }}))};
head.cells.forEach(cell => cell.parentNode = head);
const sort = new Function('event', script);
for (const index of clicks)
  sort.call({parentNode: {tBodies: [body]}}, {target: {closest: () => index === null ? null : head.cells[index]}});
console.log(JSON.stringify({order: body.rows.map(row => row.cells[0].textContent),
  sorted: head.cells.map(cell => cell.attributes['aria-sort'] ?? null)}));
"""


class Tags(HTMLParser):
    """The tags of a page, and each one's attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag."""
        self.tags.append((tag, dict(attrs)))


def test_names_and_values_are_data() -> None:
    """No header, value or note of others makes a tag or an attribute, or loads something."""
    page = html_table([HOSTILE], [(HOSTILE,), (1.5,)], HOSTILE)
    tags = Tags(page).tags
    assert {tag for tag, _ in tags} <= {"table", "thead", "tbody", "tr", "th", "td", "button", "div"}
    assert [tag for tag, attributes in tags if "onclick" in attributes] == ["thead"]
    assert not re.search(r"https?:|src=|href=|url\(|@import", page)
    assert page.replace("\n", "").isprintable()


def test_a_table_has_no_colours_of_its_own() -> None:
    """So it is legible on light and dark pages."""
    page = html_table(["a"], [(1,), (None,)], "note")
    assert "background" not in page
    assert " color:" not in page


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js, which runs the script of the page")
@pytest.mark.parametrize(
    ("clicks", "order", "sorted_by"),
    [
        ([1], ["b", "d", "a", "c"], [None, "ascending"]),
        ([1, 1], ["a", "d", "b", "c"], [None, "descending"]),
        ([0], ["a", "b", "c", "d"], ["ascending", None]),
        ([1, 0, 0], ["d", "c", "b", "a"], ["descending", None]),
        ([None], ["b", "a", "c", "d"], [None, None]),
    ],
)
def test_a_click_on_a_header_sorts(clicks: list[int | None], order: list[str], sorted_by: list[str | None]) -> None:
    """Numbers by size although they are shown with commas, unknown values last; the second click turns it around."""
    rows: list[tuple[str, int | None]] = [("b", 9), ("a", 1_000_000), ("c", None), ("d", 20)]
    page = html_table(["name", "size"], rows)
    tags = Tags(page).tags
    [script] = [attributes["onclick"] for tag, attributes in tags if tag == "thead"]
    cells = [
        [html.unescape(text), value or None]
        for value, text in re.findall(r'<td style="[^"]*"(?: data-value="([^"]*)")?>([^<]*)</td>', page)
    ]
    asked = {
        "script": script,
        "headers": ["name", "size"],
        "rows": [cells[at : at + 2] for at in range(0, len(cells), 2)],
        "clicks": clicks,
    }
    done = subprocess.run(["node", "-e", _BROWSER], input=json.dumps(asked), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"order": order, "sorted": sorted_by}
