"""The jars of a session that lakeingest starts: fetched once for all sessions of a user, then taken from the disk.

A jar is code. So its folder belongs to this user alone, and a jar is used only if it has the SHA-256 of its release.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from lakeingest.config import FORMATS, Config
from lakeingest.disk import PRIVATE, make_folder
from lakeingest.errors import OperatorNeeded
from lakeingest.spark.pins import SHA256
from lakeingest.spark.settings import ivy_folder, work_folder

PACKAGES, JARS = "spark.jars.packages", "spark.jars"
_RESOLVING = {"spark.jars.ivySettings", "spark.jars.repositories", "spark.jars.excludes"}  # only Spark obeys them
_SECONDS = 900
_MODULE = """<ivy-module version="2.0"><info organisation="lakeingest" module="session"/>
<dependencies>{dependencies}</dependencies></ivy-module>"""


@contextmanager
def fetched(config: Config, settings: Mapping[str, str], java: Path | None = None) -> Iterator[Mapping[str, str]]:
    """The settings with which a session starts within the block. `java` is the home of Java; None: the Java on PATH.

    Jars that are on the disk are named by their paths, because Ivy takes seconds to find them. Ivy fetches a missing
    jar, in one process at a time. Jars that pipeline.yml adds are left to Spark. Raises OperatorNeeded for a jar that
    differs from its release.
    """
    if config.spark.jars != "auto":
        yield settings
        return
    folder, names = ivy_folder(work_folder(config)), FORMATS[config.target.format].jars(config.target)
    is_ours = settings.get(PACKAGES) == ",".join(names) and not settings.keys() & {JARS, *_RESOLVING}
    if not all(_is_whole(folder, name) for name in names):
        make_folder(folder, PRIVATE)
        with (folder / "lakeingest.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_ours or _ivy() is None or not all(name in SHA256 for name in names):
                yield settings
                return
            fetch(folder, [name for name in names if not _is_whole(folder, name)], java)
    yield _by_path(settings, folder, names) if is_ours else settings


def fetch(folder: Path, names: Sequence[str], java: Path | None = None) -> None:
    """Let Ivy, which comes with PySpark, fetch jars into the folder.

    Raises OperatorNeeded if Ivy cannot fetch them, or if they differ from their releases.
    """
    for name in names:
        for file in (_copy(folder, name), _cached(folder, name)):
            file.unlink(missing_ok=True)
    parts = (name.split(":") for name in names)
    # the configuration `master` of a Maven module is its jar alone, without the jars of its sources and documents
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="default->master"/>' for org, name, rev in parts
    )
    program = str(java / "bin" / "java") if java else shutil.which("java") or "java"
    pattern = str(folder / "jars" / "[organisation]_[artifact]-[revision].[ext]")
    with tempfile.TemporaryDirectory(prefix="lakeingest-") as work:
        module = Path(work) / "ivy.xml"
        module.write_text(_MODULE.format(dependencies=dependencies))
        options = ["-ivy", str(module), "-cache", str(folder / "cache"), "-retrieve", pattern]
        result = subprocess.run(
            [program, "-jar", str(_ivy()), *options], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    missing = [name for name in names if not _copy(folder, name).exists()]
    if result.returncode or missing:
        lines = result.stdout.strip().splitlines() or ["no reason given"]
        failures = [line.strip() for line in lines if "UNRESOLVED" in line or "FAILED" in line]
        reason = "; ".join(failures[:3]) or lines[-1]
        raise OperatorNeeded(
            f"Ivy cannot fetch {', '.join(missing or names)}: {reason}; name jars of yours (spark.jars)"
        )
    for name in names:
        assert_released(name, _copy(folder, name))


def _ivy() -> Path | None:
    """The jar of Ivy that Spark brings; None if it brings none."""
    spark = find_spec("pyspark")
    homes = (spark and spark.origin and str(Path(spark.origin).parent), os.environ.get("SPARK_HOME"))
    return next((jar for home in homes if home for jar in Path(home).glob("jars/ivy-*.jar")), None)


def assert_released(name: str, jar: Path) -> None:
    """Raise OperatorNeeded if a jar differs from the release of this name."""
    sha256 = digest(jar)
    if sha256 != SHA256[name]:
        raise OperatorNeeded(
            f"{jar} is not {name} as it was released: its SHA-256 is {sha256}, not {SHA256[name]}; find out who changed"
            " it, or the repository that it comes from"
        )


def digest(jar: Path) -> str:
    """The SHA-256 of a file."""
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _by_path(settings: Mapping[str, str], folder: Path, names: Sequence[str]) -> Mapping[str, str]:
    """The settings with the paths of these jars instead of their names."""
    kept = {key: value for key, value in settings.items() if key != PACKAGES}
    return {**kept, JARS: ",".join(str(_copy(folder, name)) for name in names)}


def _is_whole(folder: Path, jar: str) -> bool:
    """Whether Spark's copy of a jar exists and has the digest of its release.

    If no digest of the jar is known, the copy must be as long as the file that Ivy has fetched.
    """
    copy, cached = _copy(folder, jar), _cached(folder, jar)
    if not copy.exists():
        return False
    if jar in SHA256:
        return digest(copy) == SHA256[jar]
    return cached.exists() and copy.stat().st_size == cached.stat().st_size


def _copy(folder: Path, jar: str) -> Path:
    """The path to which Spark copies a jar that Ivy has fetched for it."""
    group, artifact, version = jar.split(":")
    return folder / "jars" / f"{group}_{artifact}-{version}.jar"


def _cached(folder: Path, jar: str) -> Path:
    """The path at which Ivy keeps a jar."""
    group, artifact, version = jar.split(":")
    return folder / "cache" / group / artifact / "jars" / f"{artifact}-{version}.jar"
