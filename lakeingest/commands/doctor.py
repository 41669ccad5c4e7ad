"""Doctor: one page about the machine, the installation and the pipeline, to attach to a report.

It names servers, folders and tables. It shows no password, no token and no value of a row.
"""

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from lakeingest.commands.check import check
from lakeingest.commands.report import Report
from lakeingest.config import Config, load_config
from lakeingest.core.printable import printable
from lakeingest.errors import LakeIngestError
from lakeingest.mysql.binlog_source import BinlogSource
from lakeingest.spark.jars import missing_jars
from lakeingest.spark.session import java_home
from lakeingest.spark.settings import needs_session
from lakeingest.version import VERSION

_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "numpy", "numba", "pandas", "PyMySQL", "great_expectations", "boto3")
_ANSWERS = 5  # so many answers of the source are timed, and their median is shown
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1
_WIDTH_MAX = 32  # on a terminal, the greatest width of the column `what`
_UNLIMITED = 1 << 60  # bytes; if there is no limit, version 1 has a greater number


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at. `part`: a part of the page. `is_problem`: a run would not begin, or not work."""

    part: str
    what: str
    found: str
    is_problem: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Report):
    """What a report needs: one finding for each thing that was looked at."""

    findings: tuple[Finding, ...]

    headers = ("part", "what", "found")

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not any(finding.is_problem for finding in self.findings)

    def cells(self) -> Iterator[Sequence[object]]:
        """A row for each finding."""
        for finding in self.findings:
            yield finding.part, finding.what, f"PROBLEM: {finding.found}" if finding.is_problem else finding.found

    def to_json(self) -> dict[str, Any]:
        """A JSON document for programs."""
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    @property
    def lines(self) -> Iterator[str]:
        """The page for a terminal: each part with its findings, and how to get the page for a report."""
        width = min(_WIDTH_MAX, max((len(finding.what) for finding in self.findings), default=0))
        for part, findings in groupby(self.findings, key=lambda finding: finding.part):
            yield part
            for finding in findings:
                mark = "PROBLEM" if finding.is_problem else ""
                yield f"  {mark:7} {finding.what:{width}} {finding.found}"
        yield "for a report: lakeingest doctor > doctor.md"

    @property
    def markdown(self) -> str:
        """The page as a Markdown table."""
        rows = [self.headers, ("---",) * len(self.headers), *self.cells()]
        return "\n".join(f"| {' | '.join(_markdown_cell(str(value)) for value in row)} |" for row in rows)


def _markdown_cell(text: str) -> str:
    """The text, escaped so that a Markdown table shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", printable(text))


def doctor(file: Path, overrides: Sequence[str] = ()) -> Diagnosis:
    """Look at the machine, at the installation, and at the pipeline of this pipeline.yml. Nothing is changed.

    Whatever is broken, no error is raised: the page names what is broken as a problem.
    """
    findings = [*_installation(), *_machine()]
    try:
        config = load_config(file, overrides)
    except LakeIngestError as error:
        return Diagnosis((*findings, Finding("pipeline", str(file), error.line, is_problem=True)))
    return Diagnosis((*findings, *_pipeline(config), *_network(config), *_conditions(config)))


def _installation() -> Iterator[Finding]:
    """Versions of lakeingest, of Python, and of the packages that decide about values."""
    part = "installation"
    yield Finding(part, "lakeingest", VERSION)
    yield Finding(part, "Python", f"{platform.python_version()}, {sys.executable}")
    for package in _PACKAGES:
        try:
            yield Finding(part, package, version(package))
        except PackageNotFoundError:
            yield Finding(part, package, "not installed")
    try:
        home = java_home()
    except LakeIngestError as error:
        yield Finding(part, "Java", error.line)  # a condition of `check` says whether this pipeline needs Java
    else:
        yield Finding(part, "Java", str(home or shutil.which("java")))


def _machine() -> Iterator[Finding]:
    """The system, its processors, its memory, its clock, and the room for temporary files."""
    part = "machine"
    yield Finding(part, "system", f"{platform.system()} {platform.release()}, {platform.machine()}, {_distribution()}")
    usable, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    yield Finding(part, "processors", f"{usable} of {os.cpu_count()}, load {load:.1f}")
    yield Finding(part, "memory", _memory())
    yield Finding(part, "clock", time.strftime("%Y-%m-%d %H:%M:%S %Z (%z)"))
    yield Finding(part, "locale and file names", f"{sys.getfilesystemencoding()}, LANG={os.environ.get('LANG', '')}")
    yield Finding(part, "room for temporary files", _room(Path(tempfile.gettempdir())))


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown distribution")
    except OSError:
        return "unknown distribution"


def _memory() -> str:
    """The memory of the machine, and the limit of the container if there is one."""
    try:
        stated = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE))
    except OSError as error:
        return f"unknown: {error.strerror}"
    text = f"{_gigabytes(int(stated['MemTotal']) << 10)}, {_gigabytes(int(stated['MemAvailable']) << 10)} available"
    for limit in map(Path, _CGROUP_LIMITS):
        if limit.exists() and (limit_text := limit.read_text().strip()).isdigit() and int(limit_text) < _UNLIMITED:
            text += f", the container may take {_gigabytes(int(limit_text))}"
    return text


def _room(folder: Path) -> str:
    """The free room on the disk of a folder, or why it is unknown."""
    try:
        return f"{_gigabytes(shutil.disk_usage(folder).free)} free in {folder}"
    except OSError as error:
        return f"{folder}: {error.strerror}"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _pipeline(config: Config) -> Iterator[Finding]:
    """What decides how a run works, without any secret."""
    part, target, source = "pipeline", config.target, config.source
    replica = "" if source.replica is None else f", rows from the replica {source.of_rows.host}"
    yield Finding(part, "name", config.name)
    yield Finding(part, "source", f"{source.type} at {source.host}:{source.port}{replica}")
    yield Finding(part, "target", f"{target.format} in {target.warehouse}")
    catalog = target.catalog
    yield Finding(part, "catalog", f"{catalog.type or 'sql'} {catalog.without_secrets}".strip())
    yield Finding(part, "state", str(config.state))
    try:
        missing = ", ".join(missing_jars(config))
    except LakeIngestError as error:
        yield Finding(part, "jars", error.line, is_problem=needs_session(config))  # only Spark needs jars
    else:
        yield Finding(part, "jars", f"the next session of Spark fetches {missing}" if missing else "all there")


def _network(config: Config) -> Iterator[Finding]:
    """How quickly the source answers."""
    part = "network"
    began = time.monotonic()
    try:
        with BinlogSource.open(config.source) as source:
            connected = time.monotonic() - began
            answers = sorted(_seconds_of_answer(source) for _ in range(_ANSWERS))
            yield Finding(part, "source", f"{source.greeting}, {1000 * connected:.0f} ms to connect and log in")
            yield Finding(part, "answer of the source", f"{1000 * answers[_ANSWERS // 2]:.1f} ms")
    except LakeIngestError as error:
        yield Finding(part, "source", error.line, is_problem=True)


def _seconds_of_answer(source: BinlogSource) -> float:
    began = time.monotonic()
    source.clock()
    return time.monotonic() - began


def _conditions(config: Config) -> Iterator[Finding]:
    """Each precondition of a run, as `check` finds it."""
    part = "check"
    try:
        for condition in check(config).checked:
            if condition.finding is None:
                yield Finding(part, condition.name, "ok")
            elif condition.fatal:
                yield Finding(part, condition.name, condition.finding, is_problem=True)
            else:
                yield Finding(part, condition.name, f"warning: {condition.finding}")
    except LakeIngestError as error:
        yield Finding(part, "all conditions", error.line, is_problem=True)
