"""What the ledger still lacks: kept in the order of its time, and removed by name."""

from pathlib import Path

from lakeingest.core.proofs.ledger import Row
from lakeingest.files.local import Local
from lakeingest.state.ledger import given_proofs, note_proofs, note_results, noted_results, remove_results

FIRST, SECOND, THIRD = ([{"id": name}] for name in "abc")


def test_rows_are_kept_in_their_order_until_they_are_removed(tmp_path: Path) -> None:
    """Rows that were noted meanwhile stay."""
    state = Local(tmp_path)
    assert noted_results(state) == ([], [])
    note_results(state, "20260102", SECOND)
    note_results(state, "20260101", FIRST)
    paths, rows = noted_results(state)
    assert rows == [*FIRST, *SECOND]
    note_results(state, "20260102", THIRD)
    remove_results(state, paths)
    assert noted_results(state)[1] == THIRD


def test_a_damaged_file_has_no_rows(tmp_path: Path) -> None:
    """The others are written, and it is removed with them."""
    state, rows = Local(tmp_path), list[Row](FIRST)
    note_results(state, "20260101", rows)
    for name, contents in (("1", b"{"), ("2", b"[]"), ("3", b"{}")):
        (state / "ledger" / "quality" / f"{name}.json").write(contents)
    paths, found = noted_results(state)
    assert (len(paths), found) == (4, rows)
    remove_results(state, paths)
    assert noted_results(state) == ([], [])


def test_what_the_table_of_proofs_was_given_is_known(tmp_path: Path) -> None:
    """Or not, and then the table is looked at."""
    state = Local(tmp_path)
    assert given_proofs(state) == ""
    note_proofs(state, "digest")
    assert given_proofs(state) == "digest"
    (state / "ledger" / "proofs.json").write(b"{")
    assert given_proofs(state) == ""
