"""The profile of a run: wall time and CPU time of each stage, on the driver and on executors.

A stage's CPU seconds include all threads of its Python process. A stage that runs for several tables at the same time
counts only its own thread, and its wall seconds are the sum of all tables. Spark's JVM has a line of its own, which
counts from the start of the JVM.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from lakeingest.errors import SparkLost
from lakeingest.files.traffic import NONE, so_far
from lakeingest.spark.loss import named_loss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM = "Spark's JVM"
PUBLISHES = "publishes"  # the stage that runs once for each publish of a table
_LOCK = threading.Lock()  # not in a profile, because profiles are pickled


@dataclass(frozen=True, slots=True)
class StageCost:
    """The cost of a stage: how many times it ran, and the sums of its wall seconds and CPU seconds."""

    stage: str
    times: int = 0
    wall: float = 0.0
    cpu: float = 0.0


class Profile:
    """The costs of stages so far. The profile of a task is pickled, and added to the driver's.

    `process`: the process in which the profile was made. `traffic`: the traffic of the stages of this process.
    `elsewhere`: the CPU seconds and the traffic of tasks in other processes, as far as their stages counted them.
    """

    traffic = NONE  # of the class, so that a task without traffic sends nothing for it
    elsewhere = 0.0, NONE

    def __init__(self) -> None:
        self._stages: dict[str, StageCost] = {}
        self.process = os.uname().nodename, os.getpid()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block, even if the block fails."""
        is_main = threading.current_thread() is threading.main_thread()
        cpu_seconds = time.process_time if is_main else time.thread_time
        wall, cpu, before = time.monotonic(), cpu_seconds(), so_far()
        try:
            yield
        finally:
            if before != (now := so_far()):
                self.traffic += now - before
            self.note(StageCost(name, 1, time.monotonic() - wall, cpu_seconds() - cpu))

    def add(self, other: Self) -> None:
        """Add the costs of a task."""
        for cost in other.stages:
            self.note(cost)
        if other.process != self.process:
            seconds, moved = self.elsewhere
            self.elsewhere = seconds + sum(cost.cpu for cost in other.stages), moved + other.traffic

    @property
    def stages(self) -> tuple[StageCost, ...]:
        """The stages in the order in which each first ended."""
        return tuple(self._stages.values())

    def costs(self, spark: "SparkSession | None") -> tuple[StageCost, ...]:
        """The costs of the stages, and of the JVM if Spark is running.

        A signal to all processes of a run may have ended the JVM. At the end of a run that is no error: the JVM's cost
        is left out.
        """
        costs = self.stages
        if spark is not None:
            with suppress(SparkLost), named_loss():
                jvm = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
                assert jvm is not None  # noqa: S101 - the session runs
                wall = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getUptime() / 1e3
                cpu = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toNanos() / 1e9
                costs += (StageCost(JVM, 1, wall, cpu),)
        return costs

    def note(self, cost: StageCost) -> None:
        """Add the cost of a stage."""
        with _LOCK:
            total = self._stages.get(cost.stage, StageCost(cost.stage))
            self._stages[cost.stage] = replace(
                total, times=total.times + cost.times, wall=total.wall + cost.wall, cpu=total.cpu + cost.cpu
            )
