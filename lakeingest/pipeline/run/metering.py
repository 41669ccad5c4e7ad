"""Counting what a run takes: CPU seconds of its processes on this machine, and its traffic with object stores."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lakeingest.core.bill import Bill
from lakeingest.files import traffic
from lakeingest.files.traffic import Traffic
from lakeingest.pipeline.run.profile import Profile

_PROCESSES = Path("/proc")  # only Linux has it
_PPID, _CPU = 1, slice(11, 15)  # fields of proc(5) after the name: user, system, and both of ended children
OTHER_CLIENTS = (
    "requests of PyIceberg and Spark for files of tables",
    "repeated requests, further pages and parts",
    "requests of tasks that read rows again or lift them",
)
OTHER_MACHINES = "CPU seconds of executors outside of the stages of `profile`"
NO_PROCESSES = "CPU seconds: this system does not list processes as Linux does"


@dataclass(frozen=True, slots=True)
class Meter:
    """The counters when a run began. `cpu` is None where they cannot be read."""

    cpu: float | None
    traffic: Traffic

    @classmethod
    def begin(cls) -> Self:
        """The present counters."""
        return cls(cpu_seconds(), traffic.so_far())

    def bill(self, profile: Profile, *, here: bool, in_store: bool) -> Bill:
        """What was taken since `begin`, with what tasks took. To be called while the run's own workers are alive.

        `here`: the tasks run on this machine, in processes that this one has started. `in_store`: tables or the state
        are in an object store.
        """
        cpu, now = None, cpu_seconds()
        in_tasks, moved = profile.elsewhere
        if self.cpu is not None and now is not None:
            cpu = now - self.cpu + (0.0 if here else in_tasks)
        total = traffic.so_far() - self.traffic + moved
        missing = [
            *(() if cpu is not None else (NO_PROCESSES,)),
            *(() if here else (OTHER_MACHINES,)),
            *(OTHER_CLIENTS if in_store else ()),
        ]
        return Bill(cpu, total.requests, total.read, total.written, tuple(missing))


def cpu_seconds() -> float | None:
    """The CPU seconds of this process and of all that it started, user and system; None if this is not Linux.

    Of a process that has ended, they are known if its parent waited for it.
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
    """The parent of each process of this machine, and its ticks of processors with those of its ended children."""
    found = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[_PPID]), sum(map(int, fields[_CPU]))
    return found
