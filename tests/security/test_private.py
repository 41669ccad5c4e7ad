"""Other users of the same machine: they read nothing of a pipeline, and nothing that they made is executed."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lakeingest import disk
from lakeingest.commands.check import check
from lakeingest.config import parse_config
from lakeingest.demo.debian import assert_private
from lakeingest.demo.server import LocalServer
from lakeingest.errors import OperatorNeeded
from lakeingest.mysql.wire import cache
from lakeingest.spark import settings
from tests.security.hostile import tables_on

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
DOC = {"name": "p", "source": {"host": "h", "user": "u"}, "tables": {"include": ["a.*"]}}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder as the one for temporary files: everybody can make something in it, and remove what is his own."""
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)  # pytest makes them for its user alone
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared


def given_away(folder: Path, *, mode: int = 0o755) -> Path:
    """A folder that another user has made."""
    folder.mkdir(parents=True)
    folder.chmod(mode)
    os.chown(folder, NOBODY, NOBODY)
    return folder


def test_a_private_folder_is_made_for_this_user_alone(shared: Path) -> None:
    """Below a folder that all can write, too."""
    made = disk.private_folder(shared / "ours" / "below")
    assert made is not None
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert disk.is_private(made)


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_not_private(shared: Path, mode: int) -> None:
    """Nor one below it, unless the sticky bit lets nobody take its place; nor a link."""
    ours = shared / "ours"
    ours.mkdir()
    ours.chmod(mode)
    (ours / "below").mkdir(mode=0o700)
    assert not disk.is_private(ours)
    assert disk.is_private(ours / "below") == bool(mode & stat.S_ISVTX)
    (shared / "link").symlink_to(disk.private_folder(shared / "other") or "")
    assert not disk.is_private(shared / "link")
    assert disk.private_folder(shared / "link") is None
    assert not disk.is_private(shared / "nothing")


@as_root
def test_who_owns_a_folder_above_can_put_another_one_there(shared: Path) -> None:
    """Also where its sticky bit is set."""
    theirs = given_away(shared / "theirs", mode=0o1777)
    (theirs / "ours").mkdir(mode=0o700)
    assert not disk.is_private(theirs / "ours")
    os.chown(theirs, 0, 0)
    assert disk.is_private(theirs / "ours")


@as_root
def test_no_folder_of_another_user_is_taken_for_ours(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, jars, programs and temporary files: each has another folder then, or is refused."""
    theirs = given_away(shared / f"lakeingest-{os.getuid()}")
    name = cache._name()  # noqa: SLF001 - the folder that the other user guesses
    (theirs / name).mkdir()
    (theirs / name / "complete").touch()
    os.chown(theirs / name, NOBODY, NOBODY)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(theirs))
    monkeypatch.setenv("HOME", str(theirs))
    cache.folder.cache_clear()
    settings._temporary_folder.cache_clear()  # noqa: SLF001
    try:
        assert cache.folder() is None
        temporary = settings._temporary_folder()  # noqa: SLF001
        assert temporary is not None
        assert disk.is_private(temporary)
        assert not temporary.is_relative_to(theirs)
        ours = shared / "work"
        ours.mkdir(mode=0o700)
        assert settings.ivy_folder(ours) == ours / "cache" / "ivy"
        given_away(theirs / "cache" / "ivy")
        with pytest.raises(OperatorNeeded, match="others than this user can write"):
            settings.ivy_folder(theirs)
        with pytest.raises(OperatorNeeded, match="others than this user can write"):
            assert_private(theirs)
    finally:
        cache.folder.cache_clear()
        settings._temporary_folder.cache_clear()  # noqa: SLF001


@pytest.mark.long("takes seconds")
@pytest.mark.mysql
@pytest.mark.local("looks at files of this machine")
def test_another_user_reads_nothing_of_a_pipeline(shared: Path, mysql_server: LocalServer) -> None:
    """Its state, its warehouse, what it prints into files: rows of the source are in them."""
    folder = shared / "pipeline"
    folder.mkdir()
    folder.chmod(0o755)
    with tables_on(mysql_server, folder) as tables:
        tables.write()
        run = [sys.executable, "-c", "import os; os.umask(0o022); from lakeingest.cli import main; main()", "run"]
        subprocess.run(run, cwd=folder, check=True, capture_output=True, timeout=300)
    made = [path for name in ("state", "warehouse") for path in (folder / name, *(folder / name).rglob("*"))]
    assert len(made) > 10
    assert [path for path in made if path.stat().st_mode & 0o077] == []
    if os.geteuid() == 0:
        look = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "find", "state", "warehouse"]
        found = subprocess.run(look, cwd=folder, capture_output=True, text=True, check=False)
        assert found.stdout.splitlines() == ["state", "warehouse"]


def test_what_a_warehouse_shares_is_shared(tmp_path: Path) -> None:
    """Other users may read the tables of a folder that its owner has opened to them, as before."""
    before = os.umask(0o077)
    try:
        for mode, umask in ((0o755, 0o022), (0o2770, 0o007), (0o700, 0o077)):
            (tmp_path / "warehouse").mkdir(exist_ok=True)
            (tmp_path / "warehouse").chmod(mode)
            disk.share_like(tmp_path / "warehouse")
            assert os.umask(0o022) == umask
        disk.share_like(tmp_path / "none yet")
        assert os.umask(0o022) == 0o077
    finally:
        os.umask(before)


@pytest.mark.mysql
def test_check_names_a_state_folder_that_others_can_look_into(shared: Path, mysql_server: LocalServer) -> None:
    """One of an earlier version, or of someone who made it by hand; a run makes it for its user alone."""
    with tables_on(mysql_server, shared) as tables:
        config = tables.config()
        state = shared / "state"
        state.mkdir()
        for mode, warned in ((0o755, True), (0o710, True), (0o700, False)):
            state.chmod(mode)
            found = [one for one in check(config).warnings if one.name == "privacy of the state folder"]
            assert bool(found) == warned
        assert parse_config(DOC, shared, {}).state.path == state
