"""Which columns of a table of another tool become columns of a copy."""

import pytest

from lakeingest.core.tables.foreign_columns import Matched, match


@pytest.mark.parametrize(
    ("foreign", "wanted", "drop", "origins", "dropped", "unnamed"),
    [
        pytest.param("id a", "id a", "", "id a", "", "", id="the same"),
        pytest.param("a id", "id a", "", "id a", "", "", id="in another order"),
        pytest.param("id _x _y", "id", "", "id", "", "_x _y", id="columns that nobody names"),
        pytest.param("id _x _y z", "id", "_*", "id", "_x _y", "z", id="a pattern"),
        pytest.param("id", "id a", "", "id -", "", "", id="a column that it lacks"),
        pytest.param("ID", "id", "", "ID", "", "", id="another case"),
        pytest.param("ID id", "id", "", "id", "", "ID", id="the same name comes before another case"),
        pytest.param("Id ID", "id", "", "Id", "", "ID", id="the first of several cases"),
        pytest.param("a", "a A", "", "a -", "", "", id="a column is used once"),
        pytest.param("id at", "id at", "at", "id -", "at", "", id="a dropped column has its name again as a new one"),
        pytest.param("a[1] id", "id", "a[[]1]", "id", "a[1]", "", id="signs of patterns"),
    ],
)
def test_columns_match_by_their_names(
    foreign: str, wanted: str, drop: str, origins: str, dropped: str, unnamed: str
) -> None:
    """Whatever is neither in the copy nor dropped by the user is named."""
    found = match(foreign.split(), wanted.split(), drop.split())
    expected = dict(zip(wanted.split(), (None if one == "-" else one for one in origins.split()), strict=True))
    assert found == Matched(expected, tuple(dropped.split()), tuple(unnamed.split()))
