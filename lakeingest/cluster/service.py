"""The interface of the services that run jobs. `submit` uses only this interface; each service has a subclass."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from lakeingest.cluster.archive import PROCESSOR
from lakeingest.config.submit import ServiceConfig
from lakeingest.files.stored import Stored

JOB = "LAKEINGEST_JOB"  # the environment variable with the job's token, which the job stores with its outcome
EXECUTOR = "spark.executorEnv"
YARN_DRIVER = "spark.yarn.appMasterEnv"


@dataclass(frozen=True, slots=True)
class Job:
    """A job, independent of the service that runs it.

    `token` identifies the job: a service starts only one job for all requests with the same token. `archives` has the
    URI of each archive by the folder into which it is unpacked. `launch` are the settings that name the jars: Spark
    needs these settings before it starts. `settings` are the user's settings of Spark.
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
        """The archives as Spark's setting has them: each URI with the folder into which the archive is unpacked."""
        return [f"{uri}#{folder}" for folder, uri in self.archives.items()]

    def environment(self, driver: str, interpreter: str | None) -> dict[str, str]:
        """The settings of Spark that set environment variables of the driver and of the executors.

        `driver` is the prefix of these settings for the driver. `interpreter` is the path of Python; None: the path
        that the service has configured.
        """
        variables = {
            "PYTHONPATH": ":".join(f"./{folder}" for folder in self.archives),
            "NUMBA_CPU_NAME": PROCESSOR,
            **({} if interpreter is None else {"PYSPARK_PYTHON": interpreter}),
        }
        settings = {f"{prefix}.{name}": value for prefix in (driver, EXECUTOR) for name, value in variables.items()}
        return {**settings, f"{driver}.{JOB}": self.token}


@dataclass(frozen=True, slots=True)
class State:
    """The state of a job: the service's word for the state, and the service's reason; '' if the service gives none."""

    word: str
    ended: bool
    succeeded: bool = False
    reason: str = ""


C = TypeVar("C", bound=ServiceConfig)


@dataclass(frozen=True, slots=True)
class JobService(ABC, Generic[C]):
    """A service that runs jobs. A failed request raises Retryable, OperatorNeeded or ConfigError."""

    config: C

    key: ClassVar[str]  # as in `submit KEY`
    operation: ClassVar[str]  # the call that starts a job, with the request as its arguments
    extra: ClassVar[tuple[str, ...]] = ()  # the packages that a job of the service needs besides lakeingest[aws]
    # for each lake format, the settings with which Spark finds the service's jars; empty if Spark finds them anyway
    provided: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    @property
    def bucket(self) -> str:
        """The URI of the folder into which the files of jobs are uploaded."""
        return self.config.bucket.rstrip("/")

    @property
    def region(self) -> str:
        """The region in which the service runs the jobs."""
        return self.config.region

    @property
    def secrets(self) -> Mapping[str, str]:
        """The environment variables that the service sets from its own store of secrets, each with its secret."""
        return {}

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of the service with its region, for messages."""

    @abstractmethod
    def require_client(self) -> None:
        """Raise OperatorNeeded, with the package to install, if the service's client is not installed here."""

    @abstractmethod
    def folder(self, uri: str) -> Stored:
        """A folder of an object store, with the credentials that this machine has for the service."""

    @abstractmethod
    def request(self, job: Job) -> dict[str, Any]:
        """The arguments of the call `operation` for the job. Nothing is sent.

        Raises ConfigError if the service would refuse the request.
        """

    @abstractmethod
    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, if this request has not started it before. Returns its id: the `run` of the methods below."""

    @abstractmethod
    def state(self, run: str) -> State:
        """The state of the job."""

    @abstractmethod
    def log(self, run: str) -> str:
        """The driver's output, as far as the service has stored it."""

    @abstractmethod
    def cancel(self, run: str) -> None:
        """Cancel the job. If the job has ended, nothing is done."""


Service: TypeAlias = JobService[Any]  # a service with any configuration
