"""What ships with lakeingest for other programs, as a user of the package gets it."""

import fnmatch
import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeingest.commands.unpack import FOLDERS, unpack
from lakeingest.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """The umask of the command line; afterwards that of the tests."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_every_file_that_the_pages_tell_users_to_load_is_written(tmp_path: Path) -> None:
    """As the repository has it, and readable for whoever can read the folder, such as Prometheus."""
    folder = tmp_path / "not yet there ☕"
    tmp_path.chmod(0o755)
    files = unpack(folder).files
    assert all(file.is_new for file in files)
    ours = {path.relative_to(ROOT / "infra"): path for path in (ROOT / "infra" / "monitoring").iterdir()}
    ours |= {path.relative_to(ROOT): path for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert len(ours) == 6
    assert {file.path.relative_to(folder): file.path.read_bytes() for file in files} == {
        name: path.read_bytes() for name, path in ours.items()
    }
    assert {stat.S_IMODE(file.path.stat().st_mode) for file in files} == {0o644}
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in (*FOLDERS, "")} == {0o755}


def test_a_file_of_the_user_stays_as_it_is(tmp_path: Path) -> None:
    """It is listed as kept, and the missing ones are written beside it."""
    mine = tmp_path / "monitoring" / "alerts.yml"
    mine.parent.mkdir()
    mine.write_text("mine")
    result = unpack(tmp_path)
    assert mine.read_text() == "mine"
    assert [file.path for file in result.files if not file.is_new] == [mine]
    assert "before, and kept" in repr(result)
    assert (tmp_path / "monitoring" / "dashboard.json").is_file()
    assert not any(file.is_new for file in unpack(tmp_path).files)


@pytest.mark.parametrize("in_the_way", ["file", "link"])
def test_what_is_in_the_way_is_named(tmp_path: Path, in_the_way: str) -> None:
    """A file in place of a folder, or a link that leads nowhere, through which nothing is written."""
    if in_the_way == "file":
        (tmp_path / "notebooks").write_text("mine")
    else:
        (tmp_path / "notebooks").mkdir()
        (tmp_path / "notebooks" / "onboard.ipynb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"onboard\.ipynb cannot be written"):
        unpack(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_the_wheel_has_every_file_that_is_no_code() -> None:
    """Each one beside the modules has an ending that `package-data` names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [patterns] = settings["tool"]["setuptools"]["package-data"].values()
    others = [
        path
        for path in (ROOT / "lakeingest").rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    ]
    assert {path.suffix for path in others} >= {".ipynb", ".json", ".md", ".yml"}
    assert [path for path in others if not any(fnmatch.fnmatch(path.name, one) for one in patterns)] == []
