"""Where the tasks of a run are executed, and how many at a time."""

from typing import TYPE_CHECKING, Any, TypeVar

from lakeingest.config import Config, Source
from lakeingest.spark.background_job import BackgroundJob
from lakeingest.spark.session import open_session
from lakeingest.spark.settings import local_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

CHUNK_CONNECTIONS = 2  # the connections of a task that reads a chunk
FEW_KEY_TASKS = 4  # so many tasks, each for the keys of about a million rows, do not start Spark
DRIVER_CONNECTIONS = 2  # the run's own connection, and another that reads the written position from time to time


def tasks_at_once(source: Source, slots: int | None = None) -> int:
    """How many tasks run at the same time on `slots` slots of Spark (None: on this machine's slots).

    `max_connections` limits the number, because each task uses two connections, and so does the driver.
    """
    return max(1, min(slots or local_slots(), (source.max_connections - DRIVER_CONNECTIONS) // CHUNK_CONNECTIONS))


class Executors:
    """The Spark session of a run, started when a task first needs it. Small tasks run in this process.

    A `borrowed` session belongs to the caller: a run does not replace it by a new one.
    """

    def __init__(self, config: Config, session: "SparkSession | None" = None, *, borrowed: bool = False) -> None:
        self._config = config
        self.session = session
        self.borrowed = borrowed
        self._beside: list[tuple[BackgroundJob[Any], int]] = []

    def open(self) -> "SparkSession":
        """The session, which is started if none is running. Only the run's own thread is allowed to call this."""
        if self.session is None:
            self.session = open_session(self._config)
        return self.session

    def forget(self) -> None:
        """Spark has ended: the next `open` starts a new session."""
        self.session = None

    def for_tasks(self, *, small: bool) -> "SparkSession | None":
        """The session for `scatter`. None for small tasks: this process does them sooner than Spark begins."""
        return None if small else self.open()

    def for_key_tasks(self, tasks: int) -> "SparkSession | None":
        """The session for `scatter`, for tasks that read only keys. None: they run in this process.

        A few such tasks do not start Spark, because the start would delay the changes of every table more than they do.
        """
        return self.for_tasks(small=tasks <= (FEW_KEY_TASKS if self.session is None else 1))

    @property
    def at_once(self) -> int:
        """How many tasks run at the same time."""
        return tasks_at_once(self._config.source, self._slots)

    @property
    def at_once_beside(self) -> int:
        """How many chunks a copy or a re-snapshot reads at a time beside the binlog."""
        return max(1, self.at_once // 2)

    @property
    def at_once_in_turn(self) -> int:
        """How many chunks a re-snapshot reads at a time while the run waits for the wave.

        One connection is left, for a reader of the binlog.
        """
        connections = self._config.source.max_connections - DRIVER_CONNECTIONS - 1
        return max(1, min(self._slots, connections // CHUNK_CONNECTIONS))

    def beside(self, job: BackgroundJob[Result], chunks: int) -> BackgroundJob[Result]:
        """Note a job that reads so many `chunks` at a time, and return it.

        Until the job is done, the binlog has fewer readers.
        """
        running = [(other, count) for other, count in self._beside if not other.is_done]
        self._beside = [*running, (job, chunks)]
        return job

    @property
    def readers(self) -> int:
        """How many segments of the binlog are read at a time; each reader uses one connection."""
        connections = self._config.source.max_connections - DRIVER_CONNECTIONS
        connections -= CHUNK_CONNECTIONS * sum(chunks for job, chunks in self._beside if not job.is_done)
        return max(1, min(self._slots, connections))

    @property
    def _slots(self) -> int:
        return local_slots() if self.session is None else self.session.sparkContext.defaultParallelism
