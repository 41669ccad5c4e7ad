"""The columns of histories: the state folder has them, and so has the commit that readers see."""

from pathlib import Path

from lakeingest.core.companions.history_table import new_history
from lakeingest.core.tables.schema import Column, Kind, SourceType, TableId, TableSchema
from lakeingest.files.local import Local
from lakeingest.state.history_definitions import FOLDER, history_with, keep_history, property_of


def history(*names: str) -> TableSchema:
    """The history of a table with these columns."""
    columns = tuple(Column(name, Kind.INT32, SourceType("int", "int")) for name in ("id", *names))
    return new_history(TableSchema(TableId("shop", "a `b`.c"), columns, ("id",)))


def test_the_last_definitions_are_kept(tmp_path: Path) -> None:
    """That of a commit which readers do not see yet, and that of the commit before it."""
    state, kept = Local(tmp_path), [history(), history("a"), history("a", "b"), history("a", "b", "c")]
    assert history_with(state, kept[0].table, kept[0].fingerprint, {}) is None
    for one in [*kept, kept[-1]]:
        keep_history(state, one)
    found = [history_with(state, one.table, one.fingerprint, {}) for one in kept]
    assert found == [None, *kept[1:]]


def test_what_is_lost_is_in_the_property_of_the_commit(tmp_path: Path) -> None:
    """A property that is damaged, or of another definition, is as good as none."""
    state, one, other = Local(tmp_path), history("a"), history("b")
    keep_history(state, one)
    [file] = (tmp_path / FOLDER).iterdir()
    file.write_text("{")
    assert history_with(state, one.table, one.fingerprint, {}) is None
    assert history_with(state, one.table, one.fingerprint, property_of(one)) == one
    assert history_with(state, one.table, one.fingerprint, property_of(other)) is None
    assert history_with(state, one.table, one.fingerprint, dict.fromkeys(property_of(one), "?")) is None
