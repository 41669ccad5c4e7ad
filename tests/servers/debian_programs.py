"""Programs of Debian's packages that tests use beside a database server, unpacked into the cache folder."""

import shutil
import tempfile
from pathlib import Path

import pytest

from lakeingest.demo import debian
from lakeingest.errors import OperatorNeeded

SUITE = "bookworm"  # its C library is older than that of any machine on which the tests run


def program(package: str, name: str) -> Path:
    """A program of a package: that on PATH, else that of Debian's archive; skips by its name where neither is there."""
    if found := shutil.which(name):
        return Path(found)
    with tempfile.TemporaryDirectory() as folder:
        [cache, *_] = debian.caches(Path(folder))
        cache.mkdir(parents=True, exist_ok=True)
        place = cache / f"{package}-{SUITE}"
        with debian.locked(cache / "programs.lock"):
            if not place.exists():
                try:
                    _fetch(package, place)
                except OperatorNeeded as reason:
                    pytest.skip(f"{name} cannot be had: {reason}")
    return place / "usr" / "bin" / name


def _fetch(package: str, place: Path) -> None:
    """Unpack the package into a folder, which has all of it or is not there. Raises OperatorNeeded."""
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        work = Path(name)
        debian.from_archive(SUITE, work, lambda apt: debian.run_program([*apt, "download", package], work))
        [file] = work.glob("*.deb")
        debian.run_program(["dpkg-deb", "--extract", str(file), str(work / "root")], work)
        (work / "root").rename(place)
