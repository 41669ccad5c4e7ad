"""What `submit` asks of a service that runs jobs. Each service is a value below one base."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from lakeingest.cluster.archive import PROCESSOR
from lakeingest.config.submit import ServiceConfig
from lakeingest.files.stored import Stored

JOB = "LAKEINGEST_JOB"  # the variable by which a job knows its token; it records it with its outcome
EXECUTOR = "spark.executorEnv"
YARN_DRIVER = "spark.yarn.appMasterEnv"


@dataclass(frozen=True, slots=True)
class Job:
    """A job, in the words of no service.

    `token` is its own: a service that is asked again with it starts no second job. `archives` are URIs by the folder
    that they are unpacked into. `launch` is what Spark has to know before it starts, `settings` are the user's.
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
        """The archives as Spark takes them."""
        return [f"{uri}#{folder}" for folder, uri in self.archives.items()]

    def environment(self, driver: str, interpreter: str | None) -> dict[str, str]:
        """The settings that make the variables of the driver, whose prefix is given, and of the executors."""
        variables = {
            "PYTHONPATH": ":".join(f"./{folder}" for folder in self.archives),
            "NUMBA_CPU_NAME": PROCESSOR,
            **({} if interpreter is None else {"PYSPARK_PYTHON": interpreter}),
        }
        both = {f"{side}.{name}": value for side in (driver, EXECUTOR) for name, value in variables.items()}
        return {**both, f"{driver}.{JOB}": self.token}


@dataclass(frozen=True, slots=True)
class State:
    """Where a job stands, in the service's word, and the service's reason if it gives one."""

    word: str
    ended: bool
    succeeded: bool = False
    reason: str = ""


C = TypeVar("C", bound=ServiceConfig)


@dataclass(frozen=True, slots=True)
class JobService(ABC, Generic[C]):
    """A service that runs jobs. Errors of its requests are ours: Retryable, OperatorNeeded, ConfigError."""

    config: C

    key: ClassVar[str]  # as in `submit KEY`
    operation: ClassVar[str]  # the call that starts a job, with the request as its arguments
    extra: ClassVar[tuple[str, ...]] = ()  # what a job needs there beside lakeingest[aws]
    # for each lake format, the settings that let Spark use the jars that are there; none where it finds them
    provided: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    @property
    def bucket(self) -> str:
        """The URI of the folder for the files of jobs."""
        return self.config.bucket.rstrip("/")

    @property
    def region(self) -> str:
        """The region of its jobs."""
        return self.config.region

    @property
    def secrets(self) -> Mapping[str, str]:
        """The variables that the service fills in itself, each with its secret."""
        return {}

    @property
    @abstractmethod
    def title(self) -> str:
        """The service and its place, for people."""

    @abstractmethod
    def require_client(self) -> None:
        """OperatorNeeded, with what to install, where the service's client is not here."""

    @abstractmethod
    def folder(self, uri: str) -> Stored:
        """A folder of an object store, with the credentials that this machine has for the service."""

    @abstractmethod
    def request(self, job: Job) -> dict[str, Any]:
        """The arguments of the call; ConfigError names what the service would refuse. Asks nobody."""

    @abstractmethod
    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, or find the one that was started with this request; its id."""

    @abstractmethod
    def state(self, run: str) -> State:
        """Where the job stands."""

    @abstractmethod
    def log(self, run: str) -> str:
        """The driver's output, as far as the service has stored it."""

    @abstractmethod
    def cancel(self, run: str) -> None:
        """End the job; nothing is done when it has ended."""


Service: TypeAlias = JobService[Any]  # whatever it is called
