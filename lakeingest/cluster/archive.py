"""Builds the archives of a job: one with lakeingest and a pipeline.yml, the others with the packages that a job needs.

Spark is not in the archives. They are built for the Python and the machines of EMR 7, whatever machine builds them. The
name of an archive ends with a digest of its content, so that an upload never changes a file that a running job reads.
"""

import fnmatch
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType

from lakeingest.errors import OperatorNeeded

PACKAGE = Path(__file__).parents[1]
LOCK = Path(__file__).with_name("requirements.lock")  # the hashes of the packages that lakeingest is tested with
PYTHON = "3.11"
PROCESSOR = "generic"  # the processor for which kernels are compiled and under whose name a job finds them
_ARCHIVES = 3  # the number of archives into which the packages are divided
# Files that no job imports. The first pattern keeps the tests of NumPy, because NumPy imports one of their modules
_LEFT_OUT = (
    "[!n]*/tests/*",
    "numba/tests/*",
    "*.pxd",
    "bin/*",
    "pyarrow/include/*",
    "pyarrow/src/*",
    "pyarrow/libarrow_flight*",
    "pyarrow/_flight*",
    "pyarrow/lib*.so.*.*",  # copies of the libraries `lib*.so.*`
)
# The services of AWS that jobs use
_SERVICES = {"dynamodb", "glue", "lakeformation", "rds", "s3", "secretsmanager", "sso", "sso-oidc", "sts"}
# The values of pip's environment markers on a job's machines
_MARKERS = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": f"{PYTHON}.0",
    "python_version": PYTHON,
    "sys_platform": "linux",
}
# Amazon Linux 2023 has glibc 2.34, and runs wheels for each older glibc, too. pip needs the name of each platform
_WHEELS = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(18, 35)))


def requirements(*more: str) -> list[str]:
    """Pins of the packages that a job needs besides Spark, with the versions that are installed here.

    `more` are further packages that the job needs. Raises OperatorNeeded if a package is not installed here.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    versions: dict[str, str] = {}  # by the package's name
    visited = set()  # pairs of a package and an extra whose needs are in `waiting` already
    waiting = [Requirement("lakeingest[aws]"), *map(Requirement, more)]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):  # "": what the package needs without extras
            name = canonicalize_name(requirement.name)
            if (name, extra) in visited:
                continue
            visited.add((name, extra))
            try:
                installed = distribution(name)
            except PackageNotFoundError as error:
                raise OperatorNeeded(
                    f"a job needs {requirement}, which is not here: pip install '{requirement}'"
                ) from error
            versions[name] = installed.version
            for line in installed.requires or ():
                needed = Requirement(line)
                condition = needed.marker  # such as a version of Python, or an extra
                if condition is None or condition.evaluate(_MARKERS | {"extra": extra}):
                    needed.marker = None  # messages need not show a condition that holds
                    waiting.append(needed)
    del versions["lakeingest"]  # it is in the archive of the job
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def dependencies(folder: Path, pins: list[str]) -> tuple[Path, ...]:
    """The archives with the pinned packages in `folder`. If one is missing, pip fetches all packages, and all are made.

    Each archive is smaller than 100 MB, the limit of some services for a file. Raises OperatorNeeded if pip fails.
    """
    names = dependencies_names(pins)
    if not all((folder / name).exists() for name in names):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as scratch:
            fetched, archive = Path(scratch) / "fetched", Path(scratch) / "archive"
            _fetch(pins, fetched)
            for name, files in zip(names, _divided_files(fetched, len(names)), strict=True):
                with gzip.open(archive, "wb", compresslevel=6) as file:
                    _pack(file, files)
                archive.rename(folder / name)  # the name exists only once the archive is complete
    return tuple(folder / name for name in names)


def dependencies_names(pins: list[str]) -> tuple[str, ...]:
    """The names of the archives with the pinned packages."""
    digest = _digest(" ".join((PYTHON, *_WHEELS, *_LEFT_OUT, *sorted(_SERVICES), *with_hashes(pins))).encode())
    return tuple(f"dependencies{number}-{digest}.tar.gz" for number in range(1, _ARCHIVES + 1))


def _divided_files(fetched: Path, count: int) -> list[dict[str, Path]]:
    """The fetched files that a job needs, divided into `count` parts of about the same size.

    The files of one package are in the same part. Each part has its files by their names in the archive.
    """
    packages: dict[str, dict[str, Path]] = {}  # by the package's name, its files by their names in the archive
    for path in fetched.rglob("*"):
        name = path.relative_to(fetched).as_posix()
        if path.is_file() and not _is_left_out(name):
            # such as numpy, for the folders numpy, numpy.libs and numpy-2.2.6.dist-info
            package = re.split(r"[./-]", name)[0]
            packages.setdefault(package, {})[name] = path
    parts: list[dict[str, Path]] = [{} for _ in range(count)]
    sizes = [0] * count
    size_of = {package: sum(path.stat().st_size for path in files.values()) for package, files in packages.items()}
    for package in sorted(packages, key=lambda package: (-size_of[package], package)):  # the largest package first
        # each package goes into the part that is the smallest so far
        smallest = sizes.index(min(sizes))
        parts[smallest] |= packages[package]
        sizes[smallest] += size_of[package]
    return parts


def _is_left_out(name: str) -> bool:
    """Whether no job imports the file. Most files of botocore describe services that no job uses."""
    data = "botocore/data/"
    service, slash, _ = name.removeprefix(data).partition("/")
    # a file in a subfolder of `data` belongs to one service; endpoints.json, in no subfolder, to all services
    is_of_service = name.startswith(data) and slash == "/"
    if is_of_service:
        return service not in _SERVICES
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _LEFT_OUT)


def job(folder: Path, pipeline: bytes, beside: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """Make the archive of lakeingest in the folder, and return its path.

    `pipeline` is the content of the pipeline.yml in the archive, and `beside` has the contents of further files beside
    it, by their names. The archive has compiled kernels if this machine can compile them for a job's Python and
    machines.
    """
    packed = io.BytesIO()
    sources: dict[str, Path | bytes] = {
        str(path.relative_to(PACKAGE.parent)): path
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path != LOCK
    }
    _pack(packed, sources | _kernels() | {"pipeline.yml": pipeline} | dict(beside))
    path = folder / f"job-{_digest(packed.getvalue())}.tar.gz"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))  # without a time, the same content has the same bytes
    return path


@cache
def _kernels() -> dict[str, Path]:
    """Compile the kernels for jobs, in a process of its own. Returns their files by their paths in the archive.

    If this machine or its Python differs from a job's, nothing is compiled, and the result is empty.
    """
    from packaging.markers import default_environment

    our_markers = {**default_environment()}
    # of the version of Python, only the first two numbers decide
    if any(our_markers[name] != value for name, value in _MARKERS.items() if name != "python_full_version"):
        return {}
    done = subprocess.run(
        [sys.executable, "-m", "lakeingest.mysql.wire.kernels"],
        env=os.environ | {"NUMBA_CPU_NAME": PROCESSOR, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    modules = [Path(line) for line in done.stdout.splitlines()]
    # the folder of the kernels keeps its name: a job's Python computes the same name, and looks for it in `__pycache__`
    return {f"{PACKAGE.name}/mysql/wire/__pycache__/{path.parent.name}/{path.name}": path for path in modules}


def with_hashes(pins: list[str]) -> list[str]:
    """The lines of a requirements file for the pins. A pin that LOCK has comes with the hashes of its files."""
    locked = re.findall(r"(?m)^(\S+==\S+)((?:.*\\\n)+.*)", LOCK.read_text())
    hashes: dict[str, list[str]] = {}
    for pin, lines in locked:
        hashes.setdefault(pin, []).extend(re.findall(r"--hash=\S+", lines))
    return [" ".join((pin, *hashes.get(pin, ()))) for pin in pins]


def _fetch(pins: list[str], folder: Path) -> None:
    """Let pip install the packages into the folder. Raises OperatorNeeded if pip fails.

    Packages with and without hashes need two calls, because pip demands hashes for all packages of a call, or none.
    """
    requirements_file = folder.with_suffix(".txt")
    for have_hashes in (True, False):
        options = ["--require-hashes"] if have_hashes else []
        lines = [line for line in with_hashes(pins) if ("--hash" in line) == have_hashes]
        if lines:
            requirements_file.write_text("\n".join(lines))
            _install([*options, "-r", str(requirements_file)], folder)


def _install(arguments: list[str], folder: Path) -> None:
    """Let pip install packages into the folder, for a job's Python and machines. `arguments` name the packages.

    Raises OperatorNeeded if pip fails.
    """
    platforms = [f"--platform={name}" for name in _WHEELS]
    target = ["--implementation=cp", f"--python-version={PYTHON}", *platforms, f"--target={folder}"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-compile", "--only-binary=:all:", *target, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module" in line]
        why = " ".join(lines) or f"pip ended with {done.returncode}"
        raise OperatorNeeded(f"pip cannot fetch what a job needs for Linux and Python {PYTHON}: {why}")


def _pack(file: io.BufferedIOBase, files: Mapping[str, Path | bytes]) -> None:
    """Write a tar archive of the files. Its bytes depend only on the names, contents and executable bits."""
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, source in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            content = source if isinstance(source, bytes) else source.read_bytes()
            entry.size = len(content)
            entry.mode = 0o755 if isinstance(source, Path) and os.access(source, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
