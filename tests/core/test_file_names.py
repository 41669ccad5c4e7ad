from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeingest.core.file_names import MOST_BYTES, file_name, inside, is_cut, joined

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=130)


@given(NAMES)
@example(".")
@example("..")
def test_a_name_fits_and_a_short_one_is_only_encoded(name: str) -> None:
    """So that files of short names keep theirs. A name of dots alone would lead out of its folder."""
    found = file_name(name)
    assert len(found.encode()) <= MOST_BYTES
    if not is_cut(found):
        assert found == (name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe=" "))


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


@pytest.mark.parametrize(
    ("name", "part"), [(".", "%2E"), ("..", "%2E%2E"), (".x", ".x"), ("a..b", "a..b"), ("/", "%2F")]
)
def test_no_name_stands_for_another_folder(name: str, part: str) -> None:
    """Neither for the one that it is in, nor for the one above."""
    assert file_name(name) == part
    assert joined("/root/", part, "of it") == f"/root/{part}/of it"


@pytest.mark.parametrize("name", ["../x", "/x", "data/../../x", "data/", "", ".."])
def test_a_document_names_only_files_below_its_folder(name: str) -> None:
    """At any depth."""
    assert inside("data/x.parquet") == "data/x.parquet"
    with pytest.raises(ValueError, match="is no part of a path below its folder"):
        inside(name)


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "a\0b"])
def test_a_path_has_only_parts_that_are_names(part: str) -> None:
    """Anything else is a fault of ours."""
    with pytest.raises(ValueError, match="is no part of a path below /root"):
        joined("/root", part)
