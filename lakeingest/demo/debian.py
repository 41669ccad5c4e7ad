"""A real server from Debian's packages, unpacked into a cache folder. This needs no root and does not touch the system.

The packages may be of another Debian suite than this machine's, with another C library. So the libraries of the server
are unpacked, too, and the unpacked C library's loader starts the server. apt checks signatures as usual, but keeps its
state in a separate folder.
"""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from lakeingest.demo.flavor import Flavor
from lakeingest.disk import is_private
from lakeingest.errors import OperatorNeeded

KEYRINGS = Path("/usr/share/keyrings")
Result = TypeVar("Result")

_PARTIAL = "mysql-partial-"
_SECONDS = 900
# A line of `apt-get install --print-uris`: 'address' name_version_architecture.deb size hash
_LISTED = re.compile(r"^'[^']+' (?P<name>[^_\s]+)_(?P<version>[^_\s]+)_\S+ (?P<size>\d+) ", re.MULTILINE)
# A line of `apt-get update --print-uris` for a suite, but not for its updates: 'archive/dists/suite/InRelease'
_ARCHIVE = re.compile(r"^'(?P<archive>\S+)/dists/[^/'-]+/(?:In)?Release'", re.MULTILINE)

# This configuration is added to the machine's apt settings, such as proxies. It replaces sources, state and hooks.
_APT_CONF = """
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::SourceList "{work}/sources.list";
Dir::Etc::SourceParts "{work}/none";
Dir::Etc::Preferences "{work}/none.pref";
Dir::Etc::PreferencesParts "{work}/none";
Dir::State "{work}/state";
Dir::State::Lists "{work}/lists";
Dir::State::status "{work}/status";
Dir::Cache "{work}/cache";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::Retries "3";
APT::Install-Recommends "false";
APT::Update::Error-Mode "any";
"""


def assert_runs(flavor: Flavor, command: list[str]) -> None:
    """Raise OperatorNeeded if the command does not run a server of this flavor and of a supported version.

    The message begins with a verb, so that callers can put the name of the program before it. The program is asked for
    its version, because its name is not enough: MariaDB's program is sometimes named `mysqld`.
    """
    try:
        answer = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise OperatorNeeded(f"does not run: {error}") from error
    version = re.search(r"Ver (\d+)\.(\d+)\S*", answer.stdout)
    if answer.returncode != 0 or version is None:
        last = (answer.stderr.strip().splitlines() or ["no version given"])[-1]
        raise OperatorNeeded(f"does not run: {last}")
    is_mariadb = "mariadb" in answer.stdout.lower()
    if is_mariadb != flavor.is_mariadb:
        raise OperatorNeeded(f"is {'MariaDB' if is_mariadb else 'MySQL'}")
    numbers = int(version[1]), int(version[2])
    if numbers < flavor.oldest or (flavor.before is not None and numbers >= flavor.before):
        raise OperatorNeeded(f"is of version {version[0].removeprefix('Ver ')}, not {flavor.wanted}")


def unpacked_command(flavor: Flavor, folder: Path, say: Callable[[str], None]) -> list[str]:
    """The command that runs the server in the cache. If the cache has no server, this process or another fills it.

    The cache is in the user's cache folder, or under `folder` if the user's cache folder is not writable. Only one
    process fills it, while the others wait. Raises OperatorNeeded if no cache can be used, or if a server cannot be
    installed.
    """
    kind = flavor.name.lower().replace(" ", "-")
    places = [cache / f"{kind}-{platform.machine()}" for cache in caches(folder)]
    # Step 1: look for a server in all caches, without a lock. A cache that others can write to is not used.
    for place in places:
        if is_private(place) and _is_usable(flavor, place):
            return _command_in(flavor, place)
    # Step 2: fill the first cache that can be written, unless another process filled it while this process waited.
    reasons = []
    for place in places:
        try:
            assert_private(place.parent)
            with locked(place.parent / "mysql.lock"):
                if not _is_usable(flavor, place):
                    _install(flavor, place, say)
            return _command_in(flavor, place)
        except OperatorNeeded as error:
            if is_private(place.parent):  # this cache can be used, so the installation failed: another cache is no help
                raise
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{place.parent} cannot be written: {error.strerror}")
    raise OperatorNeeded("; ".join(reasons))


def caches(folder: Path) -> list[Path]:
    """The folders that can hold the cache, the preferred folder first. The last one is under `folder`.

    A home folder that this user may not enter is left out.
    """
    fallback = folder / "cache"
    if chosen := os.environ.get("LAKEINGEST_CACHE"):
        return [Path(chosen).absolute(), fallback]
    user_caches = Path(os.environ.get("XDG_CACHE_HOME") or ".")  # `.` is not absolute, so it counts as not set
    home = Path(os.environ.get("HOME") or ".")
    if user_caches.is_absolute():
        return [user_caches / "lakeingest", fallback]
    if home.is_absolute() and os.access(home, os.X_OK):
        return [home / ".cache" / "lakeingest", fallback]
    return [fallback]


def assert_private(cache: Path) -> None:
    """Make the folder of a cache. Raises OperatorNeeded if other users could change the programs in this folder."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(cache):
        raise OperatorNeeded(f"others than this user can write to {cache}, which is for programs; set LAKEINGEST_CACHE")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that only one process can hold at a time. The kernel releases the lock if the process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _command_in(flavor: Flavor, root: Path) -> list[str]:
    """The command that runs the server unpacked in `root`. Raises OperatorNeeded if no server is there."""
    usr = root / "usr"
    program = str(usr / "sbin" / flavor.program)
    loaders = sorted(loader for top in (root, usr) for loader in top.glob("lib/*/ld-linux*.so.*"))
    if not loaders:
        raise OperatorNeeded("is not unpacked")
    loader_folder = loaders[0].parent  # it has the C library, too, and the name of the architecture
    libraries = [loader_folder, usr / "lib" / loader_folder.name, usr / "lib" / "mysql" / "private"]
    loader = [str(loaders[0]), "--argv0", program, "--library-path", ":".join(map(str, libraries))]
    return [*loader, program, "--no-defaults", f"--basedir={usr}"]


def _is_usable(flavor: Flavor, place: Path) -> bool:
    """Whether a server of the flavor is unpacked in `place`, and runs."""
    try:
        assert_runs(flavor, _command_in(flavor, place))
    except (OperatorNeeded, OSError):  # OSError: a folder that we may not enter
        return False
    return True


def _install(flavor: Flavor, place: Path, say: Callable[[str], None]) -> None:
    """Download and unpack the server into `place`. If this fails, `place` is not changed. The caller holds the lock."""
    for partial in place.parent.glob(f"{_PARTIAL}*"):
        shutil.rmtree(partial, ignore_errors=True)  # a killed process has left it: nobody else has the lock now
    with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=place.parent) as name:
        work = Path(name)
        root = work / "root"
        say(f"asking Debian's archive for {flavor.name}")
        for package in from_archive(flavor.suite, work, lambda apt: _download_from(flavor, apt, work, say)):
            run_program(["dpkg-deb", "--extract", str(package), str(root)], work)
        shutil.rmtree(root / "usr" / "bin", ignore_errors=True)  # unused tools, which take a third of the space
        try:
            assert_runs(flavor, _command_in(flavor, root))
        except OperatorNeeded as reason:
            raise OperatorNeeded(f"the unpacked server {reason}") from reason
        if place.exists():
            shutil.rmtree(place)  # the caller has found that it holds no usable server
        root.rename(place)


def from_archive(suite: str, work: Path, download: Callable[[list[str]], Result]) -> Result:
    """Call `download` for each archive of the machine's apt until a call succeeds, and return the result of this call.

    `download` gets the apt-get command whose only packages are those of this archive's `suite`; the command keeps its
    state in `work`. Raises OperatorNeeded if no archive has what `download` wants.
    """
    keyring = next(iter(sorted(KEYRINGS.glob("debian-archive-keyring.*"))), None)
    if keyring is None:
        raise OperatorNeeded("Debian's keyring (package debian-archive-keyring) is missing")
    archives = dict.fromkeys(_ARCHIVE.findall(run_program(["apt-get", "update", "--print-uris"], work)))
    if not archives:
        raise OperatorNeeded("apt is set up with no archive")
    reasons = []
    # The archives are those of the machine's apt, because they are near. If an archive is not Debian's, its signature
    # is wrong, and the next archive is tried. The archive that is most likely Debian's comes first.
    for archive in sorted(archives, key=lambda uri: not uri.rstrip("/").endswith("debian")):
        try:
            apt = _private_apt(work, f"deb [signed-by={keyring}] {archive} {suite} main\n")
            run_program([*apt, "update"], work)
            return download(apt)
        except OperatorNeeded as reason:
            reasons.append(str(reason))
    raise OperatorNeeded(reasons[0])  # the reason of the archive that is most likely Debian's


def _private_apt(work: Path, source: str) -> list[str]:
    """The apt-get command with an empty state in `work`, and with the line `source` as its only source of packages."""
    for part in ("state", "lists", "cache"):
        shutil.rmtree(work / part, ignore_errors=True)
    for part in ("state", "lists/partial", "cache/archives/partial", "none"):
        (work / part).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    (work / "sources.list").write_text(source)
    # without this option, apt run by root would download as the user `_apt`, who cannot enter these folders
    sandbox = 'APT::Sandbox::User "root";\n' if os.geteuid() == 0 else ""
    (work / "apt.conf").write_text(_APT_CONF.format(work=work) + sandbox)
    return ["apt-get", "-q", f"-c={work / 'apt.conf'}"]


def _download_from(flavor: Flavor, apt: list[str], work: Path, say: Callable[[str], None]) -> list[Path]:
    """Download the server's package and its dependencies, except Perl, which only scripts need. Returns the files."""
    listing = run_program([*apt, "install", "--yes", "--print-uris", flavor.package], work)
    packages_listed = [package for package in _LISTED.finditer(listing) if "perl" not in package["name"]]
    megabytes = sum(int(package["size"]) for package in packages_listed) / 1e6
    say(f"fetching {flavor.name} from Debian's packages ({megabytes:.0f} MB, once)")
    download_folder = work / "packages"
    download_folder.mkdir(exist_ok=True)
    versions = (f"{package['name']}={unquote(package['version'])}" for package in packages_listed)
    run_program([*apt, "download", *versions], download_folder)
    return sorted(download_folder.glob("*.deb"))


def run_program(command: list[str], folder: Path) -> str:
    """Run a program in `folder`, and return its output.

    Raises OperatorNeeded if the program is missing, takes too long, or fails. If it fails, the message has the first
    error that it has printed.
    """
    program = shutil.which(command[0])
    if program is None:
        raise OperatorNeeded(f"{command[0]} is missing")
    try:
        result = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OperatorNeeded(f"{command[0]} was not done in {_SECONDS} s") from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        errors = [line for line in lines if line.startswith("E:")] or lines[-1:] or ["no reason given"]
        raise OperatorNeeded(f"{command[0]} failed: {errors[0]}")
    return result.stdout
