"""A real server from Debian's packages, unpacked into a cache folder; it needs no root and does not touch the system.

Its suite may differ from the machine's, and so may its C library. Its libraries are unpacked, too, and their loader
runs it: the machine's C library does not matter. apt checks signatures as usual; its state is private.
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
from urllib.parse import unquote

from lakeingest.demo.flavor import Flavor
from lakeingest.disk import is_private
from lakeingest.errors import OperatorNeeded

KEYRINGS = Path("/usr/share/keyrings")

_PARTIAL = "mysql-partial-"
_SECONDS = 900
# A line of `apt-get install --print-uris`: 'address' name_version_architecture.deb size hash
_LISTED = re.compile(r"^'[^']+' (?P<name>[^_\s]+)_(?P<version>[^_\s]+)_\S+ (?P<size>\d+) ", re.MULTILINE)
# A line of `apt-get update --print-uris`, of a suite and not of its updates: 'archive/dists/suite/InRelease'
_ARCHIVE = re.compile(r"^'(?P<archive>\S+)/dists/[^/'-]+/(?:In)?Release'", re.MULTILINE)

# The machine's own apt settings (proxies) stay in force; its sources, state and hooks do not.
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


def require(flavor: Flavor, command: list[str]) -> None:
    """OperatorNeeded unless the command is a server of the flavor; MariaDB's may have the name of MySQL's."""
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
    found = int(version[1]), int(version[2])
    if found < flavor.oldest or (flavor.before is not None and found >= flavor.before):
        raise OperatorNeeded(f"is of version {version[0].removeprefix('Ver ')}, not {flavor.wanted}")


def unpacked(flavor: Flavor, folder: Path, say: Callable[[str], None]) -> list[str]:
    """The command of the server in the cache. An empty cache is filled by one process, others wait.

    The cache is in the user's cache folder, or under `folder` if that is not writable.
    """
    kind = flavor.name.lower().replace(" ", "-")
    places = [cache / f"{kind}-{platform.machine()}" for cache in caches(folder)]
    for place in places:
        if is_private(place) and _runs(flavor, place):
            return _command(flavor, place)
    reasons = []
    for place in places:
        try:
            assert_private(place.parent)
            with locked(place.parent / "mysql.lock"):
                if not _runs(flavor, place):
                    _install(flavor, place, say)
            return _command(flavor, place)
        except OperatorNeeded as error:
            if is_private(place.parent):
                raise
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{place.parent} cannot be written: {error.strerror}")
    raise OperatorNeeded("; ".join(reasons))


def caches(folder: Path) -> list[Path]:
    """The folders that may hold the cache, the best first. A HOME that we cannot enter is left out."""
    fallback = folder / "cache"
    if own := os.environ.get("LAKEINGEST_CACHE"):
        return [Path(own).absolute(), fallback]
    shared = Path(os.environ.get("XDG_CACHE_HOME") or ".")
    home = Path(os.environ.get("HOME") or ".")
    if shared.is_absolute():
        return [shared / "lakeingest", fallback]
    if home.is_absolute() and os.access(home, os.X_OK):
        return [home / ".cache" / "lakeingest", fallback]
    return [fallback]


def assert_private(cache: Path) -> None:
    """Make the folder of a cache; OperatorNeeded where others could change the programs in it."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(cache):
        raise OperatorNeeded(f"others than this user can write to {cache}, which is for programs; set LAKEINGEST_CACHE")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among processes; the kernel releases it when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _command(flavor: Flavor, root: Path) -> list[str]:
    """The command of the server that is unpacked in `root`; OperatorNeeded if there is none."""
    usr = root / "usr"
    program = str(usr / "sbin" / flavor.program)
    loaders = sorted(found for top in (root, usr) for found in top.glob("lib/*/ld-linux*.so.*"))
    if not loaders:
        raise OperatorNeeded("is not unpacked")
    own = loaders[0].parent
    libraries = [own, usr / "lib" / own.name, usr / "lib" / "mysql" / "private"]
    loader = [str(loaders[0]), "--argv0", program, "--library-path", ":".join(map(str, libraries))]
    return [*loader, program, "--no-defaults", f"--basedir={usr}"]


def _runs(flavor: Flavor, place: Path) -> bool:
    try:
        require(flavor, _command(flavor, place))
    except (OperatorNeeded, OSError):  # the second: a folder that we may not enter
        return False
    return True


def _install(flavor: Flavor, place: Path, say: Callable[[str], None]) -> None:
    """Fetch and unpack the server; `place` is complete afterwards or not touched. The caller holds the lock."""
    for left in place.parent.glob(f"{_PARTIAL}*"):
        shutil.rmtree(left, ignore_errors=True)  # left by a killed process
    with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=place.parent) as name:
        work = Path(name)
        root = work / "root"
        for package in _fetch(flavor, work, say):
            _run(["dpkg-deb", "--extract", str(package), str(root)], work)
        shutil.rmtree(root / "usr" / "bin", ignore_errors=True)  # unused tools, a third of the size
        try:
            require(flavor, _command(flavor, root))
        except OperatorNeeded as reason:
            raise OperatorNeeded(f"the unpacked server {reason}") from reason
        if place.exists():
            shutil.rmtree(place)  # a server that does not run: otherwise nothing would be fetched
        root.rename(place)


def _fetch(flavor: Flavor, work: Path, say: Callable[[str], None]) -> list[Path]:
    """Download the server's package and its libraries from the first archive that has them."""
    keyring = next(iter(sorted(KEYRINGS.glob("debian-archive-keyring.*"))), None)
    if keyring is None:
        raise OperatorNeeded("Debian's keyring (package debian-archive-keyring) is missing")
    archives = dict.fromkeys(_ARCHIVE.findall(_run(["apt-get", "update", "--print-uris"], work)))
    if not archives:
        raise OperatorNeeded("apt is set up with no archive")
    say(f"asking Debian's archive for {flavor.name}")
    reasons = []
    # The machine's apt knows which archive is near. Any other than Debian's fails at the signature.
    for archive in sorted(archives, key=lambda uri: not uri.rstrip("/").endswith("debian")):
        try:
            apt = _private_apt(work, f"deb [signed-by={keyring}] {archive} {flavor.suite} main\n")
            _run([*apt, "update"], work)
            return _download(flavor, apt, work, say)
        except OperatorNeeded as reason:
            reasons.append(str(reason))
    raise OperatorNeeded(reasons[0])


def _private_apt(work: Path, source: str) -> list[str]:
    """The apt-get command with one source and, so far, an empty state."""
    for part in ("state", "lists", "cache"):
        shutil.rmtree(work / part, ignore_errors=True)
    for part in ("state", "lists/partial", "cache/archives/partial", "none"):
        (work / part).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    (work / "sources.list").write_text(source)
    # root's apt would fetch as a user who cannot enter our folders
    sandbox = 'APT::Sandbox::User "root";\n' if os.geteuid() == 0 else ""
    (work / "apt.conf").write_text(_APT_CONF.format(work=work) + sandbox)
    return ["apt-get", "-q", f"-c={work / 'apt.conf'}"]


def _download(flavor: Flavor, apt: list[str], work: Path, say: Callable[[str], None]) -> list[Path]:
    """The packages of the server and of all that it depends on, but not Perl, which only scripts need."""
    listed = _run([*apt, "install", "--yes", "--print-uris", flavor.package], work)
    wanted = [found for found in _LISTED.finditer(listed) if "perl" not in found["name"]]
    megabytes = sum(int(found["size"]) for found in wanted) / 1e6
    say(f"fetching {flavor.name} from Debian's packages ({megabytes:.0f} MB, once)")
    packages = work / "packages"
    packages.mkdir(exist_ok=True)
    _run([*apt, "download", *(f"{found['name']}={unquote(found['version'])}" for found in wanted)], packages)
    return sorted(packages.glob("*.deb"))


def _run(command: list[str], folder: Path) -> str:
    """What a program prints; OperatorNeeded with its first error line if it is missing or fails."""
    program = shutil.which(command[0])
    if program is None:
        raise OperatorNeeded(f"{command[0]} is missing")
    try:
        done = subprocess.run(
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
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        errors = [line for line in lines if line.startswith("E:")] or lines[-1:] or ["no reason given"]
        raise OperatorNeeded(f"{command[0]} failed: {errors[0]}")
    return done.stdout
