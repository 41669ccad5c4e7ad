"""Who copies a table into a lake: lakeingest, and peers, which their own tools build from public registries.

Each is a program with the arguments HOST PORT USER DATABASE TABLE FOLDER. It prints a JSON line when it is ready; one
that prints none has no start-up.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.figures import OURS
from benchmarks.participants import PEERS, run_tool

# what the libraries of the peers reach into; a JVM warns of a package that it does not have
_OPENED = (
    *("lang", "lang.reflect", "io", "net", "nio", "text", "time", "util", "util.concurrent"),
    *("util.concurrent.atomic", "util.concurrent.locks"),
)
_OPENED_MODULES = ("java.base/sun.nio.ch", "java.base/sun.net.util", "java.management/sun.management")

# the packages of each peer that pip installs: first the peer, then what it needs. Each peer has its own environment
_PACKAGES = {
    "rivet": ("rivet-cli==0.32.2",),
    "dlt": (
        *("dlt==1.31.0", "connectorx==0.4.6", "pyarrow==26.0.1", "pyiceberg==0.12.0", "pyiceberg-core==0.11.0"),
        *("pymysql==1.2.4", "sqlalchemy==2.1.9"),
    ),
    "ingestr": ("ingestr==1.1.18",),  # its wheel has the program; that of 1.1.24 fetches it when it first runs
}
_VERSIONS = {name: ", ".join(packages).replace("==", " ") for name, packages in _PACKAGES.items()}
_OLAKE = "v0.9.4"

_NO_SHOW_MASTER_STATUS = (
    "asks SHOW MASTER STATUS, which MySQL 8.4 dropped: a query interceptor of Connector/J answers it"
)


@dataclass(frozen=True, slots=True)
class Copier:
    """A participant; `build` makes it in a folder and answers its command.

    `changes` says how it comes to a backlog: it resumes where it was stopped, has to be frozen meanwhile, or copies
    once and ends by itself. `notes` have to be known beside its figures.
    """

    name: str
    build: Callable[[Path], list[str]]
    changes: Literal["resumes", "frozen", "none"]
    notes: tuple[str, ...] = ()
    ready: str = "ready"  # the event that ends its start-up
    ends: bool = False  # by itself, when it is done
    is_table: bool = True  # it writes an Iceberg table, not mere files


def lakeingest(_folder: Path) -> list[str]:
    """Ours."""
    return [sys.executable, "-m", "benchmarks.as_command"]


def flink_cdc(folder: Path) -> list[str]:
    """Flink CDC."""
    return _java("flink-cdc", "FlinkCdc", folder)


def seatunnel(folder: Path) -> list[str]:
    """Apache SeaTunnel."""
    return _java("seatunnel", "SeaTunnel", folder)


def spark_jdbc(_folder: Path) -> list[str]:
    """Spark's own reader of JDBC."""
    return [sys.executable, "-m", "benchmarks.spark_jdbc"]


def rivet(folder: Path) -> list[str]:
    """Rivet."""
    return [sys.executable, "-m", "benchmarks.rivet", str(_installed("rivet", folder))]


def dlt(folder: Path) -> list[str]:
    """The program dlt."""
    python = _installed("dlt", folder).with_name("python")
    return [str(python), "-I", str(PEERS / "dlt" / "copy_table.py")]


def ingestr(folder: Path) -> list[str]:
    """The program ingestr."""
    return [sys.executable, "-m", "benchmarks.ingestr", str(_installed("ingestr", folder))]


def olake(folder: Path) -> list[str]:
    """OLake, from its sources; they list no checksums of modules, and its workspace has drivers that need more."""
    sources = folder / f"olake-{_OLAKE}"
    driver = sources / "drivers" / "mysql"
    if not sources.exists():
        address = "https://github.com/datazip-inc/olake"
        run_tool("git", "clone", "-q", "--depth", "1", "--branch", _OLAKE, address, str(sources), cwd=folder)
    run_tool("env", "GOWORK=off", "go", "build", "-mod=mod", "-o", "olake", ".", cwd=driver)
    return [sys.executable, "-m", "benchmarks.olake", str(driver / "olake")]


COPIERS = (
    Copier(
        OURS,
        lakeingest,
        "resumes",
        (
            "quality gates on, as by default; start-up ends when preflight has passed and every table was looked at;"
            " worker processes start beside",
        ),
        ready="Opened",
        ends=True,
    ),
    Copier(
        "flink-cdc",
        flink_cdc,
        "resumes",
        (
            f"Flink CDC 3.5.0 {_NO_SHOW_MASTER_STATUS}",
            "Flink 1.20.3, Iceberg 1.10.1, a checkpoint each 3 s, a task each core; start-up ends when its job runs",
            "what it wrote is not compacted: equality deletes are left to readers",
        ),
    ),
    Copier(
        "seatunnel",
        seatunnel,
        "frozen",
        (
            f"SeaTunnel 2.3.8 {_NO_SHOW_MASTER_STATUS}",
            "its engine in one process cannot resume: it is frozen while the changes are made, so its catch-up has no"
            " start-up, and a warm JVM",
            "a checkpoint each 3 s; upserts, so each row of the snapshot has an equality delete too",
        ),
    ),
    Copier(
        "spark-jdbc",
        spark_jdbc,
        "none",
        ("PySpark 3.5.9, Connector/J 8.4.0, 8 partitions by key, cursors of 10,000 rows; a full copy, no changes",),
        ends=True,
    ),
    Copier(
        "rivet",
        rivet,
        "none",
        (
            f"{_VERSIONS['rivet']} in chunked mode: plain Parquet files, no table of a lake",
            "its values are not compared",
        ),
        ends=True,
        is_table=False,
    ),
    Copier(
        "dlt",
        dlt,
        "none",
        (
            f"{_VERSIONS['dlt']}; ConnectorX streams Arrow; a full copy, no changes",
            "it writes unsigned numbers, which Spark does not read: they are cast to signed ones",
            "its start-up ends when it is imported",
        ),
        ends=True,
    ),
    Copier(
        "ingestr",
        ingestr,
        "none",
        (
            f"{_VERSIONS['ingestr']}, a program in Go that pip installs; a full copy: its CDC refuses tables with ENUM",
            "one query reads the table: its parallel ranges of a key are refused for BIGINT UNSIGNED",
        ),
        ends=True,
    ),
    Copier(
        "olake",
        olake,
        "none",
        (
            f"OLake {_OLAKE} in full-refresh mode: plain Parquet files, because its Iceberg needs a store and a catalog"
            " server; its values are not compared; DECIMAL becomes double",
            "OLake refuses an account without a password, so it has another account; its start-up ends when it has the"
            " table's definition",
        ),
        ends=True,
        is_table=False,
    ),
)


def _installed(name: str, folder: Path) -> Path:
    """The program of a peer. Its own environment is made if there is none of this version."""
    packages = _PACKAGES[name]
    environment = folder / packages[0].replace("==", "-")
    program = environment / "bin" / name
    if not program.exists():
        run_tool(sys.executable, "-m", "venv", "--clear", str(environment), cwd=folder)
        run_tool(str(environment / "bin" / "pip"), "install", "-q", *packages, cwd=folder)
    return program


def _java(name: str, main: str, folder: Path) -> list[str]:
    """Compile a peer's program; its libraries are searched in Maven's order, in which some hide classes of others."""
    target, libraries = folder / name, folder / f"{name}.classpath"
    goals = ("compile", "dependency:build-classpath")
    run_tool("mvn", "-q", "-B", f"-Dfolder={target}", f"-Dmdep.outputFile={libraries}", *goals, cwd=PEERS / name)
    packages = (*(f"java.base/java.{package}" for package in _OPENED), *_OPENED_MODULES)
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in packages]
    options = ["-Xmx3g", "-Duser.timezone=UTC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return ["java", *opened, *options, "-cp", f"{target / 'classes'}:{libraries.read_text().strip()}", main]
