"""How results look on a terminal, in a notebook and in pandas."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from IPython.core.formatters import DisplayFormatter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakeingest.commands.check import CheckResult
from lakeingest.commands.report import Report
from lakeingest.commands.run import RunResult, TableResult
from lakeingest.commands.verification import TableVerification, Verifications
from lakeingest.core.proofs.checksum import Checksum, Difference
from lakeingest.core.tables.condition import Checked
from lakeingest.core.tables.schema import TableId
from lakeingest.drawing.table import cell_text, sides_of

ORDERS = TableId("shop", "orders")


@dataclass(frozen=True, slots=True, repr=False)
class Fruit(Report):
    """A report of whatever rows it is given."""

    rows: tuple[tuple[object, ...], ...]
    note: str = ""

    headers = ("fruit", "how many", "ripe")

    def cells(self) -> Iterator[Sequence[object]]:
        """The rows."""
        yield from self.rows


def test_a_narrow_terminal_has_whole_values_of_the_first_columns() -> None:
    """The others are named below; if there is room, all are there."""
    fruit = Fruit((("granny smith", 1_234, "after the first frost"),), "of two trees")
    for width, wanted in (
        (60, ["after the first frost", "of two trees"]),
        (40, ["too narrow for: ripe", "of two trees"]),
    ):
        out = io.StringIO()
        Console(file=out, width=width).print(fruit)
        assert "granny smith" in out.getvalue()
        assert "1,234" in out.getvalue()
        for text in wanted:
            assert text in out.getvalue()
        assert ("ripe:" in out.getvalue(), "narrow" in out.getvalue()) == (False, width == 40)


@pytest.mark.parametrize(("width", "columns"), [(1_000, 3), (35, 3), (34, 2)])
def test_lines_are_those_that_rich_draws(width: int, columns: int) -> None:
    """Also with signs of two cells and of none, and with the header in bold; for many rows in a tenth of the time."""
    rows = (
        ("äpfel 🍏", 12_345, True),
        ("無花果", None, False),
        ("e\u0301", 1, None),
        ("[b]x[/b]", 22, "after a frost"),
    )
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    with console.capture() as drawn:
        console.print(Fruit(rows))
    table = Table(box=None)
    for name, side in list(zip(Fruit.headers, sides_of(rows, 3), strict=True))[:columns]:
        table.add_column(name, justify=side)
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row[:columns]))
    with console.capture() as wanted:
        console.print(table)
    lines = wanted.get().replace("\x1b[0m\x1b[1m", "").splitlines()  # Rich makes each cell of the header bold
    assert len(lines) == 5
    assert lines[0].startswith("\x1b[1m")
    assert drawn.get().splitlines()[:5] == lines


def test_a_text_is_an_aligned_table_that_no_screen_cuts() -> None:
    """Numbers stand to the right, what is unknown is empty, and a name is never taken for markup."""
    shown = str(Fruit((("[red]apple[/red]", 1_234, True), ("x" * 300, None, False)), "of two trees"))
    head, first, second, note = shown.splitlines()
    assert head.split() == ["fruit", "how", "many", "ripe"]
    assert first.split() == ["[red]apple[/red]", "1,234", "yes"]
    assert second.split() == ["x" * 300, "no"]
    assert first.index("1,234") + len("1,234") == head.index("how many") + len("how many")
    assert note == "of two trees"


def test_a_terminal_shows_the_table_within_its_width() -> None:
    """Rich asks the value itself; a long cell goes on in the next line."""
    out = io.StringIO()
    Console(file=out, width=40).print(Fruit((("apple " * 10, 1, True),)))
    assert max(map(len, out.getvalue().splitlines())) <= 40
    assert out.getvalue().count("apple") == 10


def test_html_is_escaped() -> None:
    """Whatever a name or a finding holds is text, the headers and the note too."""
    html = Fruit((("<script>alert(1)</script>", 2, None),), "a < b & c")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "a &lt; b &amp; c" in html
    assert html.count("<tr>") == 2


def test_a_page_of_its_own_has_the_table_and_loads_nothing() -> None:
    """Its title and its notes are text, too."""
    page = Fruit((("<script>", 2, None),), "a < b").to_html("<title> & more")
    assert page.startswith("<!doctype html>")
    assert page.count("&lt;title&gt; &amp; more") == 2
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert not re.search(r"https?:|src=|href=", page)


def test_html_has_no_colour_of_text_or_page() -> None:
    """It is legible on a light page and on a dark one: both are the page's own."""
    html = Fruit((("apple", 2, None),))._repr_html_()
    assert "style=" in html
    assert "background" not in html
    assert " color:" not in html


def test_a_frame_has_the_values_and_not_their_texts() -> None:
    """Numbers can be reckoned with."""
    frame = Fruit((("apple", 1_234, True), ("pear", 1, False))).to_pandas()
    assert list(frame.columns) == ["fruit", "how many", "ripe"]
    assert frame["how many"].sum() == 1_235


def test_integers_of_a_frame_stay_exact_beside_unknown_ones() -> None:
    """As floats, those above 2**53 would be others."""
    frame = Fruit((("apple", 9_007_199_254_740_993, None), ("pear", None, True))).to_pandas()
    assert int(frame["how many"][0]) == 9_007_199_254_740_993
    assert frame["how many"].isna().tolist() == [False, True]


def test_a_result_without_rows_has_its_headers() -> None:
    """In every form."""
    empty = Fruit(())
    assert str(empty).split() == ["fruit", "how", "many", "ripe"]
    assert "how many" in empty._repr_html_()
    assert list(empty.to_pandas().columns) == ["fruit", "how many", "ripe"]


def test_results_that_are_tuples_stay_tuples() -> None:
    """They are indexed and iterated as ever."""
    [one, other] = found = Verifications(
        (
            TableVerification(ORDERS, Checksum(3, 1, 2), Checksum(3, 1, 2), 1, (), 0.5),
            TableVerification(ORDERS, Checksum(1), Checksum(2), 1, (Difference((7,), "only in the target"),), 0.5),
        )
    )
    assert (found[0], found[1], found.equal) == (one, other, False)
    assert Verifications((one,)).equal
    assert [line.split()[1:4] for line in str(found).splitlines()[1:]] == [["source", sign, "target"] for sign in "=≠"]


@pytest.mark.parametrize("result", [Fruit((("apple", 1, True),)), Verifications(())])
def test_ipython_shows_the_table(result: Report) -> None:
    """In a notebook as HTML, in a terminal as text, of a dataclass and of a tuple."""
    shown, _ = DisplayFormatter().format(result)  # type: ignore[no-untyped-call]
    assert shown == {"text/plain": str(result), "text/html": result._repr_html_()}


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (
            CheckResult(
                (Checked("binary log", None), Checked("room", "low", fatal=False), Checked("user", "no GRANT"))
            ),
            ["binary log ok", "room warning low", "user PROBLEM no GRANT"],
        ),
        (
            RunResult((TableResult(ORDERS, 5_000, 2, None, published=False),), caught_up=False, seconds=1.0),
            ["shop.orders 5,000 2 no", "the time was up before the end of the binlog; the same call goes on from here"],
        ),
        (RunResult((), caught_up=True, seconds=1.25), ["caught up with the source in 1.2 s"]),
        (
            RunResult((), caught_up=True, seconds=1.25, followed=True),
            ["caught up with the source and followed it, 1.2 s in all"],
        ),
        (
            RunResult((), caught_up=False, seconds=1.25, followed=True),
            ["stopped before it had caught up with the source; the next run goes on from here"],
        ),
    ],
)
def test_results_say_what_came_of_it(result: Report, answer: list[str]) -> None:
    """A row each, and a note where a table does not say all."""
    assert [" ".join(line.split()) for line in str(result).splitlines()[1:]] == answer
