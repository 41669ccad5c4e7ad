"""Counting what a run takes: CPU seconds of its processes on this machine, and its traffic with object stores."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lakeingest.config import Config
from lakeingest.core.figures.bill import Bill
from lakeingest.files import traffic
from lakeingest.files.traffic import NONE, Traffic
from lakeingest.pipeline.run.profile import Profile
from lakeingest.spark.settings import runs_here

_PROCESSES = Path("/proc")  # only Linux has it
_PPID, _CPU = 1, slice(11, 15)  # fields of proc(5) after the name: user, system, and both of ended children
OTHER_CLIENTS = (
    "requests of PyIceberg and Spark for files of tables",
    "repeated requests, further pages and parts",
    "requests of tasks that read rows again or lift them",
    "bytes of Iceberg's files in stores",
)
OTHER_FILES = "files that Spark writes, and those of tasks that read rows again or lift them"
OTHER_MACHINES = "CPU seconds of executors outside of the stages of `profile`"
NO_PROCESSES = "CPU seconds: this system does not list processes as Linux does"


@dataclass(frozen=True, slots=True)
class Meter:
    """The counters when a run, or a part of it, began. `cpu` is None where CPU seconds cannot be read.

    `elsewhere`: what the run's profile had counted, up to that time, of tasks in other processes.
    """

    cpu: float | None
    traffic: Traffic
    elsewhere: tuple[float, Traffic] = (0.0, NONE)

    @classmethod
    def begin(cls, profile: Profile | None = None) -> Self:
        """The present counters. `profile`: that of the run, unless the run begins now."""
        return cls(cpu_seconds(), traffic.so_far(), (0.0, NONE) if profile is None else profile.elsewhere)

    def bill_of(self, config: Config, profile: Profile) -> Bill:
        """The bill of a run with this config; see `bill`."""
        in_store = any(place.scheme for place in (config.state, config.target.warehouse))
        return self.bill(profile, here=runs_here(config), in_store=in_store)

    def bill(self, profile: Profile, *, here: bool, in_store: bool) -> Bill:
        """The bill of what this process and the tasks took since `begin`. The run's own workers must still be alive.

        `here`: the tasks run on this machine, in processes that this process has started. `in_store`: tables or the
        state are in an object store.
        """
        cpu, now = None, cpu_seconds()
        all_seconds, all_traffic = profile.elsewhere
        in_tasks, moved = all_seconds - self.elsewhere[0], all_traffic - self.elsewhere[1]
        if self.cpu is not None and now is not None:
            cpu = now - self.cpu + (0.0 if here else in_tasks)  # `cpu_seconds` counts the tasks that run here
        total = traffic.so_far() - self.traffic + moved
        missing = [
            *(() if cpu is not None else (NO_PROCESSES,)),
            *(() if here else (OTHER_MACHINES,)),
            *(OTHER_CLIENTS if in_store else ()),
            OTHER_FILES,
        ]
        store = total.requests, total.read, total.written
        return Bill(cpu, *store, tuple(missing), files=total.files, bytes_of_files=total.of_files)


def cpu_seconds() -> float | None:
    """The CPU seconds of this process and of all that it started, user and system; None if this is not Linux.

    The CPU seconds of a process that has ended are known if its parent waited for it.
    """
    listed = processes()
    if os.getpid() not in listed:
        return None
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in listed.items():
        children.setdefault(parent, []).append(pid)
    ticks, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        ticks += listed[pid][1]
        pending += children.get(pid, ())
    return ticks / os.sysconf("SC_CLK_TCK")


def processes() -> dict[int, tuple[int, int]]:
    """By process of this machine: its parent, and the processor ticks that it and its ended children have used."""
    found = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            # only after the name, which is in parentheses, and may have spaces
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[_PPID]), sum(map(int, fields[_CPU]))
    return found
