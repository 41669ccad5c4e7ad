"""What the spool may forget, as a table of cases."""

from lakeingest.core.binlog.position import Place
from lakeingest.core.cascades.cascades import ForeignKey, Rule
from lakeingest.core.copies.trimming import Trim, Watched, trim
from lakeingest.core.tables.schema import TableId

A, B, C = (TableId("d", name) for name in "abc")


def place(byte: int) -> Place:
    """A byte of the first binlog file."""
    return Place(1, 1, byte)


def watched(table: TableId, needed: int | None, *, is_idle: bool = False) -> Watched:
    """A table that stands ten bytes behind what it needs."""
    at = None if needed is None else place(needed)
    return Watched(table, at, set() if needed is None else {place(needed + 10)}, is_idle)


def test_nothing_is_trimmed_where_it_is_not_known_what_a_table_needs() -> None:
    """Nor where no table is watched: the spool belongs to copies that this run cannot load."""
    assert trim([], {}) is None
    assert trim([watched(A, 5), watched(B, None)], {}) is None


def test_the_spool_forgets_what_no_table_needs() -> None:
    """The slowest table decides; while all go on, nothing more is done."""
    assert trim([watched(A, 5), watched(B, 3)], {}) == Trim(place(3), None, {place(15), place(13)})


def test_beside_a_table_that_stands_still_the_rows_of_others_are_dropped() -> None:
    """Each as far as the table itself does not need them."""
    decided = trim([watched(A, 3, is_idle=True), watched(B, 7)], {})
    assert decided is not None
    assert decided.needed == {A: place(3), B: place(7)}


def test_the_rows_of_parents_are_kept_for_their_children() -> None:
    """From where on the slowest child needs them; a child that is not watched needs none."""
    key = ForeignKey(A, ("p",), B, ("id",), Rule.CASCADE, Rule.NONE)
    stranger = ForeignKey(TableId("d", "x"), ("p",), C, ("id",), Rule.CASCADE, Rule.NONE)
    decided = trim([watched(A, 3, is_idle=True), watched(B, 7), watched(C, 9)], {A: (key,)})
    assert decided is not None
    assert decided.needed == {A: place(3), B: place(3), C: place(9)}
    alone = trim([watched(B, 7, is_idle=True), watched(C, 9)], {stranger.table: (stranger,)})
    assert alone is not None
    assert alone.needed == {B: place(7), C: place(9)}
