"""A program under watch: what it prints, and what it and all that it starts take of processors and memory.

Spark's Python workers make a process group of their own, so a program is what runs in its session.
"""

import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.participants import NotMeasured

_SAMPLE_SECONDS = 0.2
_STOP_SECONDS = 40.0
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int | None) -> float:
    """User and system seconds of a process so far, by proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True, slots=True)
class _Sample:
    """At one time: seconds of processors so far, bytes of memory in all and of the largest process."""

    at: float
    cpu: float
    rss: int
    largest: int


def _ended_seconds() -> float:
    """Seconds of processors of all programs that were started here and have ended, with all that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Program:
    """A running program, sampled five times a second; as a context it is gone at the end, with all that it started.

    A process counts with its last sample, so a fifth of a second can be missing of one that ended. When the program
    itself has ended, the kernel's count of its seconds has no gap.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.began = time.time()
        self.events: list[dict[str, Any]] = []
        self._log = log
        self._samples: list[_Sample] = []
        self._cpu: dict[int, float] = {}
        self._lock = threading.Lock()
        self._before = _ended_seconds()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                text=True,
                errors="replace",
            )
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._watch)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def event(self, name: str, since: float = 0) -> float | None:
        """When it printed this event first, at or after a time; None before."""
        return next((one["at"] for one in self.events if one["event"] == name and one["at"] >= since), None)

    def await_event(self, name: str, seconds: float) -> float:
        """When it printed this event; NotMeasured when it ends without it, or the seconds are over."""
        deadline = time.time() + seconds
        while (at := self.event(name)) is None:
            self.check(deadline)
            time.sleep(0.05)
        return at

    def await_end(self, seconds: float) -> float:
        """When it ended; NotMeasured when it failed, or the seconds are over."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise NotMeasured(f"it was not done in {seconds:.0f} s") from error
        ended = time.time()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        with self._lock:
            self._samples.append(_Sample(ended, _ended_seconds() - self._before, 0, 0))
        if code != 0:
            raise NotMeasured(f"it failed: {self._last_words()}")
        return ended

    def check(self, deadline: float) -> None:
        """NotMeasured when it has ended, though it was not done, or the deadline is over."""
        if not self.is_running:
            raise NotMeasured(f"it ended before it was done: {self._last_words()}")
        if time.time() > deadline:
            raise NotMeasured("it was not done in time")

    def cpu(self, at: float) -> float:
        """Seconds of processors, user and system, up to a time."""
        self._sample()
        return max((one.cpu for one in self._samples if one.at <= at), default=0.0)

    def peaks(self, since: float, until: float) -> tuple[int, int]:
        """The most bytes of memory between two times: of all processes together, and of the largest."""
        self._sample()
        between = [one for one in self._samples if since <= one.at <= until]
        return max((one.rss for one in between), default=0), max((one.largest for one in between), default=0)

    def freeze(self) -> None:
        """Stop it where it stands."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and all that it started: asked first, then killed."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._members() and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._members():
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # it ended by itself
                continue

    def _members(self) -> dict[int, list[str]]:
        """The live processes of the session, each with its fields of proc(5) from the state on."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended while we looked
                continue
            state, session = fields[0], fields[3]
            if session == str(self._process.pid) and state not in "ZX":
                found[int(process.name)] = fields
        return found

    def _sample(self) -> None:
        with self._lock:
            members = self._members()
            for pid, fields in members.items():
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
            sizes = [int(fields[21]) * _PAGE for fields in members.values()]
            self._samples.append(_Sample(time.time(), sum(self._cpu.values()), sum(sizes), max(sizes, default=0)))

    def _watch(self) -> None:
        while self.is_running:
            self._sample()
            time.sleep(_SAMPLE_SECONDS)

    def _listen(self) -> None:
        """Keep every line in the log; one that is JSON is an event."""
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with self._process.stdout as lines, self._log.open("a") as log:
            for line in lines:
                log.write(line)
                log.flush()
                if line.startswith("{"):
                    self.events.append(json.loads(line))

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line or "xception" in line]
        return (errors or lines or ["it gave no reason"])[-1].strip()[:300]
