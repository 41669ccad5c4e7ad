"""The jars of a session that lakeingest starts: fetched once for all sessions of a user, then taken from the disk."""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakeingest.config import FORMATS, Config
from lakeingest.spark.settings import ivy_folder, work_folder

PACKAGES, JARS = "spark.jars.packages", "spark.jars"


@contextmanager
def fetched(config: Config, settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The settings with which a session starts within the block.

    Jars that are here are named by their paths, because Ivy takes seconds to find them. If one is missing, Ivy fetches
    it, and one process at a time lets it: Spark would use a jar that another process is still writing.
    """
    if config.spark.jars != "auto":
        yield settings
        return
    folder, names = ivy_folder(work_folder(config)), FORMATS[config.target.format].jars(config.target)
    if all(_is_whole(folder, name) for name in names):
        yield _by_path(settings, folder, names)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lakeingest.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield settings


def _by_path(settings: Mapping[str, str], folder: Path, names: Sequence[str]) -> Mapping[str, str]:
    """The settings with the paths of these jars instead of their names; unchanged if pipeline.yml names other jars."""
    if settings.get(PACKAGES) != ",".join(names) or JARS in settings:
        return settings
    kept = {key: value for key, value in settings.items() if key != PACKAGES}
    return {**kept, JARS: ",".join(str(_copy(folder, name)) for name in names)}


def _is_whole(folder: Path, jar: str) -> bool:
    """Whether Spark's copy of a jar is as long as the file that Ivy fetched."""
    group, artifact, version = jar.split(":")
    copy, fetched = _copy(folder, jar), folder / "cache" / group / artifact / "jars" / f"{artifact}-{version}.jar"
    return copy.exists() and fetched.exists() and copy.stat().st_size == fetched.stat().st_size


def _copy(folder: Path, jar: str) -> Path:
    """Where Spark puts a jar that Ivy has fetched for it."""
    group, artifact, version = jar.split(":")
    return folder / "jars" / f"{group}_{artifact}-{version}.jar"
