"""The settings of a Spark session, and the folders and the Python that it uses."""

import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import BinaryIO

from lakeingest.config import FORMATS, Config
from lakeingest.config.catalogs import SECRETS, is_secret
from lakeingest.config.formats import spark_properties
from lakeingest.config.spark import MASTER, is_on_this_machine
from lakeingest.disk import PRIVATE, is_private, make_folder, private_folder
from lakeingest.errors import OperatorNeeded, StorageFailed
from lakeingest.spark.package import DIGEST, digest

SUBMITTED = "PYSPARK_GATEWAY_PORT"  # the variable that spark-submit sets for its program, which must start a session
PYTHON = "spark.pyspark.python"
_ARCHIVES, _EXECUTOR = "spark.archives", "spark.executorEnv."
# Java's optimising compiler begins after ten times as many calls as by default: in a run of a minute or two, it takes
# more time than it saves
_JAVA_OPTIONS = " ".join(
    f"-XX:Tier4{name}Threshold={calls}"
    for name, calls in {
        "Invocation": 50_000,
        "MinInvocation": 6_000,
        "Compile": 150_000,
        "BackEdge": 400_000,
    }.items()
)


def settings(config: Config, master: str | None = None) -> dict[str, str]:
    """All settings of the session. Settings in pipeline.yml override ours.

    `master` is the master of a running session. None: a new session will have the master that `config` names, or the
    master of the submitted job.
    """
    our_settings = {
        "spark.redaction.regex": f"(?i){SECRETS}",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "lakeingest.workers",
        "spark.sql.session.timeZone": "UTC",
    }
    our_settings |= _settings_of_this_machine(config) if runs_here(config, master) else _settings_of_executors(config)
    if config.spark.jars == "auto":
        our_settings["spark.jars.packages"] = ",".join(FORMATS[config.target.format].jars(config.target))
        our_settings["spark.jars.ivy"] = str(ivy_folder(work_folder(config)))
    elif config.spark.jars != "provided":  # the user's own jars; "provided" means that Spark has the jars
        our_settings["spark.jars"] = ",".join(config.spark.jars)
    return our_settings | spark_properties(config.target) | config.spark.conf


def public_settings(config: Config, session_settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without secrets: none of catalogs and stores, and none whose name indicates a secret."""
    private = spark_properties(config.target)
    return {key: value for key, value in session_settings.items() if key not in private and not is_secret(key)}


def runs_here(config: Config, master: str | None = None) -> bool:
    """Whether the session's tasks run on this machine.

    `master` is the master of a running session; None: the master that `config` names. If no master is known, the tasks
    run on this machine, unless this run is a submitted job.
    """
    master = master or config.spark.master
    return is_on_this_machine(master) if master is not None else SUBMITTED not in os.environ


def needs_session(config: Config) -> bool:
    """Whether runs need a session of Spark: if tasks run on other machines, if there are suites, or if Spark writes.

    Other runs start a session only for rows that were not checked while they were copied, which are few.
    """
    by_spark = config.target.format != "iceberg" or config.target.way_of_merging == "statement"
    return by_spark or config.quality.suites is not None or not runs_here(config)


def local_slots() -> int:
    """The number of parallel tasks on this machine, if pipeline.yml does not set it: the number of processors."""
    return os.cpu_count() or 1


def _settings_of_this_machine(config: Config) -> dict[str, str]:
    """The settings of a Spark on this machine. On a cluster, the cluster or Spark itself sets them."""
    cores = local_slots()
    is_one_process = not (config.spark.master or "").startswith("local-cluster")
    temporary = _temporary_folder()
    return {
        MASTER: f"local[{cores}]",
        # without it, every user of this machine could read tasks, which have the source's password, from Spark's ports;
        # a `local-cluster` has to do without it: its executors are other processes, which do not have the secret for it
        **({"spark.authenticate": "true"} if is_one_process else {}),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        **({} if temporary is None else {"spark.local.dir": str(temporary)}),
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.warehouse.dir": (work_folder(config) / "spark-warehouse").as_uri(),
    }


def _settings_of_executors(config: Config) -> dict[str, str]:
    """The settings for executors on other machines: environment variables for the digest, the kernels and modules."""
    folders = [archive.partition("#")[2] for archive in config.spark.conf.get(_ARCHIVES, "").split(",")]
    unpacked = ":".join(f"./{folder}" for folder in folders if folder)
    return {
        f"{_EXECUTOR}{DIGEST}": digest(),
        f"{_EXECUTOR}NUMBA_CPU_NAME": "generic",  # the name under which a job's archive has its compiled kernels
        **({f"{_EXECUTOR}PYTHONPATH": unpacked} if unpacked else {}),
    }


def executors_python(config: Config) -> str:
    """The Python program that runs the tasks, as pipeline.yml, or else the environment, sets it.

    If neither sets it, tasks on this machine use the driver's program. Tasks on other machines use the program of the
    driver's version on PATH, such as `python3.12`.
    """
    configured = config.spark.conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON")
    if configured:
        return configured
    return sys.executable if runs_here(config) else f"python{sys.version_info.major}.{sys.version_info.minor}"


def work_folder(config: Config) -> Path:
    """The folder of Spark's files on this machine: the state folder, or a folder in the user's cache.

    If the state is in an object store, the folder is in the cache. If the cache is lost, only Spark's log is lost.
    Raises OperatorNeeded if the folder can only be in the temporary folder, and other users can write to it there.
    """
    if config.state.scheme is None:
        return config.state.path
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    if not _is_creatable(cache):
        cache = Path(tempfile.gettempdir()) / f"lakeingest-{os.getuid()}"
        if private_folder(cache) is None:
            raise OperatorNeeded(f"others than this user can write to {cache}; remove it, or set XDG_CACHE_HOME")
    return cache / "lakeingest" / config.name


def open_log(path: Path) -> BinaryIO:
    """A log in the `work_folder`, open to write to its end. Raises StorageFailed if it cannot be written."""
    folder = path.parent
    try:
        make_folder(folder, PRIVATE)
        return path.open("ab")
    except OSError as error:
        raise StorageFailed(
            f"the state folder cannot be written: {folder}: {error.strerror}; repair it, or set state in pipeline.yml"
        ) from error


def ivy_folder(folder: Path) -> Path:
    """The folder of Spark's jars: in the user's home, or in `folder` if the home cannot be used.

    Raises OperatorNeeded if other users can write to the folder of jars in `folder`: Spark runs the code in it.
    """
    in_home, in_folder = Path("~/.ivy2").expanduser(), folder / "cache" / "ivy"
    if private_folder(in_home) and os.access(in_home, os.W_OK):
        return in_home
    if in_folder.exists() and not is_private(in_folder):
        raise OperatorNeeded(
            f"others than this user can write to {in_folder}, from which Spark would take code; let nobody else"
            " write to it and the folders above, or set spark.jars in pipeline.yml"
        )
    return in_folder


@cache
def _temporary_folder() -> Path | None:
    """A folder that only this user can read: for Spark's temporary files, which have rows of the source.

    None: no temporary folder can be written, which Spark itself reports.
    """
    try:
        folder = private_folder(Path(tempfile.gettempdir()) / f"lakeingest-{os.getuid()}")
        # `folder` is None, for example if someone else has made the folder of this name
        return folder or Path(tempfile.mkdtemp(prefix="lakeingest-"))
    except OSError:
        return None


def _is_creatable(folder: Path) -> bool:
    """Whether this user can write to the folder, or to the nearest folder above it that exists."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return os.access(nearest, os.W_OK)
