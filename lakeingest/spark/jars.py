"""The jars of a session that lakeingest starts. They are fetched once, and all later sessions of the user reuse them.

A jar is code. So the folder of jars belongs to this user alone, and a jar is used only if it has the SHA-256 of its
release.
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
_RESOLVING = {"spark.jars.ivySettings", "spark.jars.repositories", "spark.jars.excludes"}  # `fetch` does not obey these
_SECONDS = 900  # the greatest time for which Ivy fetches
_MODULE = """<ivy-module version="2.0"><info organisation="lakeingest" module="session"/>
<dependencies>{dependencies}</dependencies></ivy-module>"""


@contextmanager
def settings_with_jars(
    config: Config, settings: Mapping[str, str], java: Path | None = None
) -> Iterator[Mapping[str, str]]:
    """Fetch missing jars, and yield the settings with which a session must start within the block.

    `java` is the home of Java; None: the Java on PATH. Ivy fetches the jars, in one process at a time. The yielded
    settings have the paths of the jars, because for Maven coordinates Spark would start Ivy, which takes seconds.

    The given settings are yielded, and Spark itself fetches missing jars, if
    - pipeline.yml sets other jars, or another way to resolve them
    - jars are missing, and Ivy is missing or the SHA-256 of a jar is not known

    Raises OperatorNeeded if a jar cannot be fetched, or if it differs from its release.
    """
    if config.spark.jars != "auto":
        yield settings
        return
    folder = ivy_folder(work_folder(config))
    names = FORMATS[config.target.format].jars(config.target)
    # pipeline.yml may set other jars, or another way to resolve them
    has_other_jars = settings.get(PACKAGES) != ",".join(names) or JARS in settings
    has_other_way = bool(settings.keys() & _RESOLVING)
    has_only_our_jars = not has_other_jars and not has_other_way
    if not all(_is_whole(folder, name) for name in names):
        make_folder(folder, PRIVATE)
        with (folder / "lakeingest.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            can_fetch = has_only_our_jars and _ivy() is not None and all(name in SHA256 for name in names)
            if not can_fetch:
                yield settings  # the session starts under the lock, because Spark fetches the jars
                return
            # checked again, because another process may have fetched jars while this process waited for the lock
            fetch(folder, [name for name in names if not _is_whole(folder, name)], java)
    yield _with_paths(settings, folder, names) if has_only_our_jars else settings


def missing_jars(config: Config) -> list[str]:
    """The jars that the next session would fetch first; an empty list if `spark.jars` of pipeline.yml is not `auto`.

    Raises OperatorNeeded if other users can write to the folder of jars.
    """
    if config.spark.jars != "auto":
        return []
    folder = ivy_folder(work_folder(config))
    return [name for name in FORMATS[config.target.format].jars(config.target) if not _is_whole(folder, name)]


def fetch(folder: Path, names: Sequence[str], java: Path | None = None) -> None:
    """Let Ivy, which comes with PySpark, fetch jars into the folder. `names` are Maven coordinates.

    Raises OperatorNeeded if Ivy cannot fetch a jar, or if a jar differs from its release.
    """
    for name in names:  # removed first, because Ivy would keep a damaged file
        for file in (_copy_path(folder, name), _cache_path(folder, name)):
            file.unlink(missing_ok=True)
    parts = (name.split(":") for name in names)
    # Ivy's configuration `master` of a Maven module is the module's jar alone, without sources and documents
    dependencies = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->master"/>'
        for group, artifact, version in parts
    )
    pattern = str(folder / "jars" / "[organisation]_[artifact]-[revision].[ext]")
    has_all, reason = retrieve(_MODULE.format(dependencies=dependencies), folder / "cache", pattern, java)
    missing = [name for name in names if not _copy_path(folder, name).exists()]
    if missing or not has_all:
        raise OperatorNeeded(
            f"Ivy cannot fetch {', '.join(missing or names)}: {reason}; name jars of yours (spark.jars)"
        )
    for name in names:
        assert_released(name, _copy_path(folder, name))


def retrieve(module: str, cache: Path, pattern: str, java: Path | None = None) -> tuple[bool, str]:
    """Let Ivy fetch what a module in its XML needs, to the paths of this pattern.

    Returns whether Ivy has fetched everything, and its messages of failures, or else its last message. `cache`: the
    folder of Ivy's files. `java`: the home of Java; None: the Java on PATH.
    """
    program = (shutil.which("java") or "java") if java is None else str(java / "bin" / "java")
    with tempfile.TemporaryDirectory(prefix="lakeingest-") as work:
        path = Path(work) / "ivy.xml"
        path.write_text(module)
        options = ["-ivy", str(path), "-cache", str(cache), "-retrieve", pattern]
        command = [program, "-jar", str(_ivy()), *options]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return False, f"it has not ended after {_SECONDS} seconds"
    lines = result.stdout.strip().splitlines() or ["no reason given"]
    failures = [line.strip() for line in lines if "UNRESOLVED" in line or "FAILED" in line]
    return result.returncode == 0, "; ".join(failures[:3]) or lines[-1]  # a message has room for a few


def _ivy() -> Path | None:
    """The jar of Ivy in PySpark's folder, or below SPARK_HOME; None if neither has it."""
    spark = find_spec("pyspark")
    in_pyspark = str(Path(spark.origin).parent) if spark and spark.origin else None
    homes = [home for home in (in_pyspark, os.environ.get("SPARK_HOME")) if home]
    return next((jar for home in homes for jar in Path(home).glob("jars/ivy-*.jar")), None)


def assert_released(name: str, jar: Path) -> None:
    """Raise OperatorNeeded if the file `jar` differs from the release with these Maven coordinates, a key of SHA256."""
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


def _with_paths(settings: Mapping[str, str], folder: Path, names: Sequence[str]) -> Mapping[str, str]:
    """The settings with the paths of the jars in place of their Maven coordinates."""
    other_settings = {key: value for key, value in settings.items() if key != PACKAGES}
    return {**other_settings, JARS: ",".join(str(_copy_path(folder, name)) for name in names)}


def _is_whole(folder: Path, jar: str) -> bool:
    """Whether the copy of a jar exists and has the digest of its release.

    If the digest is not known, the copy must have the size of the file in Ivy's cache.
    """
    copy, cached = _copy_path(folder, jar), _cache_path(folder, jar)
    if not copy.exists():
        return False
    if jar in SHA256:
        return digest(copy) == SHA256[jar]
    return cached.exists() and copy.stat().st_size == cached.stat().st_size


def _copy_path(folder: Path, jar: str) -> Path:
    """The path to which Ivy copies a jar from its cache, for Spark or for `fetch`."""
    group, artifact, version = jar.split(":")
    return folder / "jars" / f"{group}_{artifact}-{version}.jar"


def _cache_path(folder: Path, jar: str) -> Path:
    """The path of a jar in Ivy's cache."""
    group, artifact, version = jar.split(":")
    return folder / "cache" / group / artifact / "jars" / f"{artifact}-{version}.jar"
