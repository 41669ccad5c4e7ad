"""Requests to Dataproc: checked against Google's own types, sent by Google's client. Errors become lakeingest's."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from lakeingest.cluster.objects import on_google
from lakeingest.cluster.service import C, JobService
from lakeingest.errors import ConfigError, OperatorNeeded, Retryable
from lakeingest.files.stored import Stored

EXTRA = "pip install 'lakeingest[gcp]'"
SECONDS = 60.0  # for an answer
_PATIENCE_SECONDS = 15.0  # for all tries of one request; by default Google's client tries some for 15 minutes


def types() -> Any:
    """Google's package, which takes seconds to import. Raises OperatorNeeded if it is not installed."""
    try:
        from google.cloud import dataproc_v1
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: {EXTRA}") from error
    return dataproc_v1


def assert_accepted(kind: str, request: Mapping[str, Any], required: Mapping[str, str]) -> None:
    """Raise ConfigError if a request of this type has an unknown field or a wrong type, or lacks a required value.

    Google's types do not say which values are required. `required` has the path of each, and its key of pipeline.yml.
    """
    try:
        getattr(types(), kind)(request)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"submit: {kind} takes no such request: {error}") from error
    lacking = [key for path, key in required.items() if not _at(request, path)]
    if lacking:
        raise ConfigError(f"{' and '.join(lacking)}: {kind} needs a value")


def _at(request: Any, path: str) -> Any:
    for name in path.split("."):
        request = request.get(name)
    return request


def client(kind: str, region: str) -> Any:
    """A client of the region's endpoint."""
    with named("Dataproc cannot be reached"):
        return getattr(types(), kind)(client_options={"api_endpoint": f"{region}-dataproc.googleapis.com:443"})


def limits() -> dict[str, Any]:
    """The options of a read request: its timeout, and the time for which it is repeated after the service failed."""
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type

    fails = if_exception_type(exceptions.ServiceUnavailable, exceptions.InternalServerError)
    return {"timeout": SECONDS, "retry": Retry(fails, timeout=_PATIENCE_SECONDS)}


@contextmanager
def named(doing: str, key: str | None = None) -> Iterator[None]:
    """Turn the errors of requests inside the block into lakeingest's, as `amazon.named` does.

    `doing` begins the message; `key` is the key of pipeline.yml that the request depends on.
    """
    types()
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        yield
    except (exceptions.ServerError, exceptions.TooManyRequests, exceptions.RetryError, TransportError) as error:
        raise Retryable(f"{doing}: {error}; run the same command again") from error
    except (exceptions.NotFound, exceptions.InvalidArgument) as error:
        kind = OperatorNeeded if key is None else ConfigError
        raise kind(f"{key or 'submit'}: {doing}: {error}") from error
    except (exceptions.GoogleAPICallError, GoogleAuthError) as error:
        raise OperatorNeeded(f"{doing}: {error}; correct the credentials, or their rights in IAM") from error
    except OSError as error:
        raise Retryable(f"{doing}: no answer: {error}; run the same command again") from error


@dataclass(frozen=True, slots=True)
class GoogleJobs(JobService[C]):
    """The common part of Dataproc's services. A job is a value of Google's types."""

    extra: ClassVar[tuple[str, ...]] = ("google-auth", "requests")
    noun: ClassVar[str]  # the service's word for a job, in messages
    api: ClassVar[str]  # the client that knows the jobs

    def require_client(self) -> None:
        """Raise OperatorNeeded if Google's client is not installed."""
        types()

    def folder(self, uri: str) -> Stored:
        """A folder of Cloud Storage."""
        return on_google(uri)

    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, or find the one of this request. The service carries out one request of each `request_id`.

        The job's id is chosen here, so that a conflict says that the job exists.
        """
        from google.api_core.exceptions import Conflict

        with named(f"Dataproc does not start the {self.noun}", f"submit.{self.key}"), suppress(Conflict):
            getattr(self._client(), self.operation)(dict(request), timeout=SECONDS, retry=None)
        run = self._run(request)
        self._found(run)  # raises if the conflict was with anything but this job
        return run

    def log(self, run: str) -> str:
        """The driver's output, as far as the service has stored it: the content of all files with its prefix."""
        output = self._output(self._found(run))
        if not output:
            return ""
        folder, _, prefix = output.rpartition("/")
        pieces = self.folder(folder).listed(f"{prefix}*")
        return "".join(piece.read().decode(errors="replace") for piece in pieces)

    @abstractmethod
    def _run(self, request: Mapping[str, Any]) -> str:
        """The id that a request gives its job."""

    @abstractmethod
    def _found(self, run: str) -> Any:
        """The service's description of a job."""

    @abstractmethod
    def _output(self, job: Any) -> str:
        """The prefix of the URIs of a job's output; empty before there is any output."""

    def _client(self) -> Any:
        return client(self.api, self.region)
