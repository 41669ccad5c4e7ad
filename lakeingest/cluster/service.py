"""The interface by which `submit` uses a service that runs jobs. Each service is a subclass of one base."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from lakeingest.cluster.archive import PROCESSOR
from lakeingest.config.submit import ServiceConfig
from lakeingest.files.stored import Stored

JOB = "LAKEINGEST_JOB"  # the variable with the job's token, which the job records with its outcome
EXECUTOR = "spark.executorEnv"
YARN_DRIVER = "spark.yarn.appMasterEnv"


@dataclass(frozen=True, slots=True)
class Job:
    """A job, independent of the service that runs it.

    `token` identifies the job: a service that gets a second request with it starts no second job. `archives` are URIs
    by the folder that they are unpacked into. `launch` are the settings that Spark needs before it starts, `settings`
    are the user's.
    """

    name: str
    token: str
    entry_point: str
    arguments: tuple[str, ...]
    archives: Mapping[str, str]
    launch: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def unpacked(self) -> list[str]:
        """The archives in Spark's form: each URI with the folder that it is unpacked into."""
        return [f"{uri}#{folder}" for folder, uri in self.archives.items()]

    def environment(self, driver: str, interpreter: str | None) -> dict[str, str]:
        """The Spark settings for the environment variables of the driver and of the executors.

        `driver` is the prefix of the driver's settings; `interpreter` is the path of Python, None for Spark's own.
        """
        variables = {
            "PYTHONPATH": ":".join(f"./{folder}" for folder in self.archives),
            "NUMBA_CPU_NAME": PROCESSOR,
            **({} if interpreter is None else {"PYSPARK_PYTHON": interpreter}),
        }
        both = {f"{side}.{name}": value for side in (driver, EXECUTOR) for name, value in variables.items()}
        return {**both, f"{driver}.{JOB}": self.token}


@dataclass(frozen=True, slots=True)
class State:
    """The state of a job: the service's word for it, and the service's reason if it gives one."""

    word: str
    ended: bool
    succeeded: bool = False
    reason: str = ""


C = TypeVar("C", bound=ServiceConfig)


@dataclass(frozen=True, slots=True)
class JobService(ABC, Generic[C]):
    """A service that runs jobs. Failed requests are lakeingest's errors: Retryable, OperatorNeeded or ConfigError."""

    config: C

    key: ClassVar[str]  # as in `submit KEY`
    operation: ClassVar[str]  # the call that starts a job, with the request as its arguments
    extra: ClassVar[tuple[str, ...]] = ()  # packages that a job needs there beside lakeingest[aws]
    # for each lake format, the settings with which Spark finds the jars of the service; empty if it needs none
    provided: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    @property
    def bucket(self) -> str:
        """The URI of the folder for the files of jobs."""
        return self.config.bucket.rstrip("/")

    @property
    def region(self) -> str:
        """The region of the service's jobs."""
        return self.config.region

    @property
    def secrets(self) -> Mapping[str, str]:
        """The variables that the service fills in itself, each with its secret."""
        return {}

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of the service and its place, for people."""

    @abstractmethod
    def require_client(self) -> None:
        """Raise OperatorNeeded, with the package to install, if the service's client is not installed here."""

    @abstractmethod
    def folder(self, uri: str) -> Stored:
        """A folder of an object store, with the credentials that this machine has for the service."""

    @abstractmethod
    def request(self, job: Job) -> dict[str, Any]:
        """The arguments of the call `operation`. No request is sent. Raises ConfigError for a part that is refused."""

    @abstractmethod
    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, or find the one that was started with this request; return the job's id."""

    @abstractmethod
    def state(self, run: str) -> State:
        """The state of the job."""

    @abstractmethod
    def log(self, run: str) -> str:
        """The driver's output, as far as the service has stored it."""

    @abstractmethod
    def cancel(self, run: str) -> None:
        """End the job. A job that has ended is left alone."""


Service: TypeAlias = JobService[Any]  # a service with any configuration
