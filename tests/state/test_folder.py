import pytest

from lakeingest.files.local import Local
from lakeingest.state.folder import space_finding, write_finding


@pytest.mark.parametrize("below", ["", "state", "a/b/state"])
def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Local, below: str) -> None:
    """Also one that is still to be made: neither it nor a file is there afterwards."""
    assert write_finding("state folder", tmp_path / below) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "state", "a/b"])
def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Local, below: str) -> None:
    """A file stands where it, or a folder above it, should be; the file stays."""
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" / below
    assert f"the state folder {folder} cannot be written: Not a directory; " in str(
        write_finding("state folder", folder)
    )
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_system_that_takes_no_files_is_reported() -> None:
    """Tried, not asked: root may write everywhere, and cannot here."""
    assert "cannot be written" in str(write_finding("state folder", Local("/proc/state")))


def test_too_little_room_is_reported(tmp_path: Local) -> None:
    """Of the disk that the folder is, or will be, on."""
    folder = tmp_path / "not" / "there"
    assert space_finding(folder, 1) is None
    assert "less than 1,073,741,824.0 GiB" in str(space_finding(folder, 2**60))
    assert list(tmp_path.iterdir()) == []
