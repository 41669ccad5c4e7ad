"""Where the tasks of a run are executed, and how many at a time."""

import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakeingest.config import Config, Source
from lakeingest.errors import OperatorNeeded, Scope
from lakeingest.spark import scatter
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.nursery import Nursery
from lakeingest.spark.own_workers import OwnWorkers
from lakeingest.spark.scatter import Workers
from lakeingest.spark.session import open_session
from lakeingest.spark.settings import local_slots, needs_session, runs_here, work_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

CHUNK_CONNECTIONS = 2  # the connections of a task that reads a chunk
FEW_KEY_TASKS = 4  # so many tasks, each for the keys of about a million rows, do not start Spark
DRIVER_CONNECTIONS = 2  # the run's own connection, and another that reads the written position from time to time


def tasks_at_once(source: Source, slots: int | None = None) -> int:
    """How many tasks run at the same time on `slots` slots (None: on this machine's slots).

    `max_connections` limits the number, because each task uses two connections, and so does the driver.
    """
    return max(1, min(slots or local_slots(), (source.max_connections - DRIVER_CONNECTIONS) // CHUNK_CONNECTIONS))


class Executors:
    """Chooses who runs the tasks of a run: this process, its own worker processes, or Spark's executors.

    Small tasks run in this process. Other tasks run in Spark's `session` if there is one. Without a session they run in
    worker processes of this run, if Spark would run them on this machine, too; else a session is started. A `borrowed`
    session belongs to the caller: a run does not replace it by a new session. The worker processes are forked from
    `nursery`; None: from a new process.
    """

    def __init__(self, config: Config, session: "SparkSession | None" = None, nursery: Nursery | None = None) -> None:
        self._config, self._nursery = config, nursery
        self.session = session
        self.borrowed = session is not None
        self._own: OwnWorkers | None = None
        self._beside: list[tuple[BackgroundJob[Any], int]] = []
        self._opening = threading.Lock()  # tables that are published at the same time open one session

    def open(self) -> "SparkSession":
        """The session, which is started if none is running.

        Raises OperatorNeeded if it cannot be started. The error stops only the table that needs the session, if the
        pipeline needs none as a rule.
        """
        with self._opening:
            if self.session is None:
                try:
                    self.session = open_session(self._config)
                except OperatorNeeded as error:
                    error.scope = Scope.PIPELINE if needs_session(self._config) else Scope.TABLE
                    raise
            return self.session

    def forget(self) -> None:
        """The session or the own workers have ended: the next tasks start a new session or new workers."""
        self.session = None
        self.close()

    def close(self) -> None:
        """End the own workers."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm_up(self) -> None:
        """Start the workers for tasks that come soon, so that no task has to wait for imports."""
        workers = self.for_tasks(small=False)
        if workers is not None and not isinstance(workers, OwnWorkers):  # own workers are started already
            scatter.warm_up(workers)

    def for_tasks(self, *, small: bool) -> Workers:
        """The workers for `scatter`; None for this process, which runs small tasks: workers would start too slowly."""
        if small:
            return None
        if self.session is None and runs_here(self._config):
            if self._own is None:
                self._own = OwnWorkers(self._slots, work_folder(self._config), self._nursery)
                self._nursery = None  # it starts workers only once
            return self._own
        return self.open()

    def for_key_tasks(self, tasks: int) -> Workers:
        """The workers for `scatter`, for so many `tasks` that read only keys; None for this process.

        This process runs a single task, and up to FEW_KEY_TASKS if no workers run yet: while workers start, the changes
        of every table wait, for longer than these tasks take.
        """
        is_started = self.session is not None or self._own is not None
        tasks_here = 1 if is_started else FEW_KEY_TASKS
        return self.for_tasks(small=tasks <= tasks_here)

    @property
    def at_once(self) -> int:
        """How many tasks run at the same time."""
        return tasks_at_once(self._config.source, self._slots)

    @property
    def at_once_beside(self) -> int:
        """How many chunks a copy or a re-snapshot reads at a time in the background, while rounds read the binlog."""
        return max(1, self.at_once // 2)

    @property
    def at_once_in_turn(self) -> int:
        """How many chunks a re-snapshot reads at a time while the run waits for the wave.

        One connection is left, because the binlog is read at the same time.
        """
        connections = self._config.source.max_connections - DRIVER_CONNECTIONS - 1  # a reader of the binlog
        return max(1, min(self._slots, connections // CHUNK_CONNECTIONS))

    def beside(self, job: BackgroundJob[Result], chunks: int) -> BackgroundJob[Result]:
        """Note a job that reads so many `chunks` at a time, and return it.

        Until the job is done, the binlog has fewer readers.
        """
        still_running = [(other_job, count) for other_job, count in self._beside if not other_job.is_done]
        self._beside = [*still_running, (job, chunks)]
        return job

    @property
    def readers(self) -> int:
        """How many segments of the binlog are read at a time; each reader uses one connection."""
        connections = self._config.source.max_connections - DRIVER_CONNECTIONS
        connections -= CHUNK_CONNECTIONS * sum(chunks for job, chunks in self._beside if not job.is_done)
        return max(1, min(self._slots, connections))

    @property
    def _slots(self) -> int:
        """How many tasks the session can run at a time; without a session, how many this machine can run."""
        if self.session is not None:
            return self.session.sparkContext.defaultParallelism
        return self._config.spark.local_slots or local_slots()
