from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from lakeingest.core.file_names import MOST_BYTES, file_name, is_cut

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=130)


@given(NAMES)
def test_a_name_fits_and_a_short_one_is_only_encoded(name: str) -> None:
    """So that files of short names keep theirs."""
    found = file_name(name)
    assert len(found.encode()) <= MOST_BYTES
    if not is_cut(found):
        assert found == quote(name, safe=" ")


@given(NAMES)
def test_a_long_name_is_cut_between_two_characters_of_its_code(name: str) -> None:
    """What is left of it is the beginning of the encoded name; `%` is followed by two digits."""
    found = file_name(name)
    if is_cut(found):
        beginning, _, digest = found.partition("=")
        assert quote(name, safe=" ").startswith(beginning)
        assert "%" not in beginning[-2:]
        assert len(digest) == 32


@given(NAMES, NAMES)
def test_two_names_have_two_files(one: str, other: str) -> None:
    """Also where one name is made to look like the file of another."""
    assert (file_name(one) == file_name(other)) == (one == other)
    assert file_name(file_name("é" * 99)) != file_name("é" * 99)


def test_names_that_begin_in_the_same_way_have_two_files() -> None:
    """The digest tells them apart."""
    assert file_name("é" * 99 + "a") != file_name("é" * 99 + "b")
