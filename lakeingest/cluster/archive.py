"""Builds the archives of a job: the packages that lakeingest needs beside Spark, and lakeingest with its pipeline.yml.

Both are for the Python and the machines of EMR 7, also if another machine builds them. The name of an archive ends with
a digest of its content, so that an upload never changes a file that a running job reads.
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
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType

from lakeingest.errors import OperatorNeeded

PACKAGE = Path(__file__).parents[1]
LOCK = Path(__file__).with_name("requirements.lock")  # the hashes of the packages that lakeingest is tested with
PYTHON = "3.11"
PROCESSOR = "generic"  # kernels for any machine that a job gets; the machines find them by this name
_ARCHIVES = 3  # the number of archives of the dependencies
# Files that no job imports. NumPy's tests are not here, because NumPy imports one of their modules.
_LEFT_OUT = (
    "[!n]*/tests/*",
    "numba/tests/*",
    "*.pxd",
    "bin/*",
    "pyarrow/include/*",
    "pyarrow/src/*",
    "pyarrow/libarrow_flight*",
    "pyarrow/_flight*",
    "pyarrow/lib*.so.*.*",  # a second copy
)
_SERVICES = {"dynamodb", "glue", "lakeformation", "rds", "s3", "secretsmanager", "sso", "sso-oidc", "sts"}
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
# Amazon Linux 2023 has glibc 2.34; pip takes each older one by its own name
_WHEELS = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(18, 35)))


def requirements(*more: str) -> list[str]:
    """The pins of all packages that a job needs beside Spark, and of `more`: the versions that are installed here.

    Raises OperatorNeeded if lakeingest or one of these packages is not installed here.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    versions: dict[str, str] = {}
    visited, waiting = set(), [Requirement("lakeingest[aws]"), *map(Requirement, more)]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
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
                if needed.marker is None or needed.marker.evaluate(_MARKERS | {"extra": extra}):
                    needed.marker = None  # the condition is met; without it, messages name only the package
                    waiting.append(needed)
    del versions["lakeingest"]
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def dependencies(folder: Path, pins: list[str]) -> tuple[Path, ...]:
    """The archives of the requirements, in the folder. Pip fetches the packages, unless the folder has the archives.

    Each archive is small enough for a service that takes files of up to 100 MB. Raises OperatorNeeded if pip fails.
    """
    names = dependencies_names(pins)
    if not all((folder / name).exists() for name in names):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as scratch:
            fetched, archive = Path(scratch) / "fetched", Path(scratch) / "archive"
            _fetch(pins, fetched)
            for name, files in zip(names, _parts(fetched, len(names)), strict=True):
                with gzip.open(archive, "wb", compresslevel=6) as file:
                    _pack(file, files)
                archive.rename(folder / name)
    return tuple(folder / name for name in names)


def dependencies_names(pins: list[str]) -> tuple[str, ...]:
    """The names of the archives of these requirements."""
    digest = _digest(" ".join((PYTHON, *_WHEELS, *_LEFT_OUT, *sorted(_SERVICES), *hashed(pins))).encode())
    return tuple(f"dependencies{number}-{digest}.tar.gz" for number in range(1, _ARCHIVES + 1))


def _parts(fetched: Path, count: int) -> list[dict[str, Path]]:
    """The files that a job needs, in parts of about the same size; the files of one package stay together."""
    packages: dict[str, dict[str, Path]] = {}
    for path in fetched.rglob("*"):
        name = path.relative_to(fetched).as_posix()
        if path.is_file() and not _is_left_out(name):
            packages.setdefault(re.split(r"[./-]", name)[0], {})[name] = path
    parts: list[dict[str, Path]] = [{} for _ in range(count)]
    sizes = [0] * count
    by_size = {key: sum(path.stat().st_size for path in files.values()) for key, files in packages.items()}
    for key in sorted(packages, key=lambda key: (-by_size[key], key)):
        smallest = sizes.index(min(sizes))
        parts[smallest] |= packages[key]
        sizes[smallest] += by_size[key]
    return parts


def _is_left_out(name: str) -> bool:
    """Whether a file is left out, because no job imports it. Most of botocore describes services that no job uses."""
    folders = name.split("/")
    if folders[:2] == ["botocore", "data"] and len(folders) > len(("botocore", "data", "endpoints.json")):
        return folders[2] not in _SERVICES
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _LEFT_OUT)


def job(folder: Path, pipeline: bytes, beside: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """Make the archive of lakeingest in the folder, with a pipeline.yml, and the files of `beside` by their names.

    The archive has compiled kernels if this machine can compile them for a job's Python and machines.
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
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return path


def _kernels() -> dict[str, Path]:
    """Compiled kernels, by their path in the archive, beside the sources; none on another Python or kind of machine."""
    from packaging.markers import default_environment

    here = {**default_environment()}
    if any(here[name] != value for name, value in _MARKERS.items() if name != "python_full_version"):
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
    return {f"{PACKAGE.name}/mysql/wire/__pycache__/{path.parent.name}/{path.name}": path for path in modules}


def hashed(pins: list[str]) -> list[str]:
    """The requirements, each with the hashes of its files if LOCK has its version."""
    locked = re.findall(r"(?m)^(\S+==\S+)((?:.*\\\n)+.*)", LOCK.read_text())
    hashes: dict[str, list[str]] = {}
    for pin, lines in locked:
        hashes.setdefault(pin, []).extend(re.findall(r"--hash=\S+", lines))
    return [" ".join((pin, *hashes.get(pin, ()))) for pin in pins]


def _fetch(pins: list[str], folder: Path) -> None:
    """Let pip install packages into the folder: those with hashes, then the others.

    Raises OperatorNeeded if pip fails.
    """
    requirements_file = folder.with_suffix(".txt")
    for options in (["--require-hashes"], []):
        lines = [line for line in hashed(pins) if ("--hash" in line) == bool(options)]
        if lines:
            requirements_file.write_text("\n".join(lines))
            _install([*options, "-r", str(requirements_file)], folder)


def _install(arguments: list[str], folder: Path) -> None:
    """Run pip for Linux and a job's Python, with `arguments`, into the folder. Raises OperatorNeeded if it fails."""
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
    """Write a tar whose bytes depend only on the files' names, contents and executable bits."""
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, source in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            content = source if isinstance(source, bytes) else source.read_bytes()
            entry.size = len(content)
            entry.mode = 0o755 if isinstance(source, Path) and os.access(source, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
