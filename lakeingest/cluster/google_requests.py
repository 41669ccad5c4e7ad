"""Requests to Dataproc: they are checked against Google's own types, and sent by Google's client."""

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
SECONDS = 60.0  # the longest wait for an answer
_PATIENCE_SECONDS = 15.0  # for all tries of one request; by default, Google's client repeats some for 15 minutes


def google_types() -> Any:
    """Google's package with the types of requests. The import takes seconds.

    Raises OperatorNeeded if the package is not installed.
    """
    try:
        from google.cloud import dataproc_v1
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: {EXTRA}") from error
    return dataproc_v1


def assert_accepted(kind: str, request: Mapping[str, Any], required: Mapping[str, str]) -> None:
    """Raise ConfigError if the request has an unknown field, a value of a wrong type, or no value for a required field.

    `kind` is the name of the request's type. Google's types do not say which fields are required: `required` has the
    path of each required field, with the key of pipeline.yml that gives its value.
    """
    try:
        getattr(google_types(), kind)(request)  # the type's constructor checks the request
    except (ValueError, TypeError) as error:
        raise ConfigError(f"submit: {kind} takes no such request: {error}") from error
    missing = [key for path, key in required.items() if not _value_at(request, path)]
    if missing:
        raise ConfigError(f"{' and '.join(missing)}: {kind} needs a value")


def _value_at(request: Any, path: str) -> Any:
    """The value of the field at a path such as `job.placement.cluster_name`; None if only the last name is missing."""
    value = request
    for name in path.split("."):
        value = value.get(name)
    return value


def client(kind: str, region: str) -> Any:
    """A client of Google's class `kind` for the region's endpoint."""
    with named_errors("Dataproc cannot be reached"):
        return getattr(google_types(), kind)(client_options={"api_endpoint": f"{region}-dataproc.googleapis.com:443"})


def read_options() -> dict[str, Any]:
    """The options of a request that only reads: its timeout, and how long to repeat it if the service fails."""
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type

    fails = if_exception_type(exceptions.ServiceUnavailable, exceptions.InternalServerError)
    return {"timeout": SECONDS, "retry": Retry(fails, timeout=_PATIENCE_SECONDS)}


@contextmanager
def named_errors(doing: str, key: str | None = None) -> Iterator[None]:
    """Turn errors of requests in the block into lakeingest's errors, as `amazon.translate_errors` does.

    The messages begin with `doing`. `key` is the key of pipeline.yml whose value can be the reason.

    Raises:
        Retryable: the service does not answer, refuses because of too many requests, or fails.
        ConfigError: the service refuses a name or value, and `key` is given.
        OperatorNeeded: the service refuses a name or value, and `key` is None; or credentials or rights are missing.

    """
    google_types()  # raises OperatorNeeded if the modules that are imported next are not installed
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
    """The base class for Dataproc's services. A job is described by a value of Google's types."""

    extra: ClassVar[tuple[str, ...]] = ("google-auth", "requests")
    noun: ClassVar[str]  # the service's word for a job, in messages
    api: ClassVar[str]  # the name of Google's class for the client of the service

    def require_client(self) -> None:
        """Raise OperatorNeeded if Google's client is not installed."""
        google_types()

    def folder(self, uri: str) -> Stored:
        """A folder of Cloud Storage."""
        return on_google(uri)

    def start(self, request: Mapping[str, Any]) -> str:
        """Start the job, and return its id. If the job was started before, only its id is returned.

        The request has the job's id. So a repeated request is a conflict, which is no error if the job exists.
        """
        from google.api_core.exceptions import Conflict

        with named_errors(f"Dataproc does not start the {self.noun}", f"submit.{self.key}"), suppress(Conflict):
            getattr(self._client(), self.operation)(dict(request), timeout=SECONDS, retry=None)
        run = self._job_id(request)
        self._description(run)  # raises if the job does not exist: then the conflict had another reason
        return run

    def log(self, run: str) -> str:
        """The driver's output, as far as the service has stored it; empty if no output is stored yet."""
        prefix_uri = self._output_prefix(self._description(run))
        if not prefix_uri:
            return ""
        folder, _, prefix = prefix_uri.rpartition("/")
        output_files = self.folder(folder).listed(f"{prefix}*")
        return "".join(file.read().decode(errors="replace") for file in output_files)

    @abstractmethod
    def _job_id(self, request: Mapping[str, Any]) -> str:
        """The id of the job in a request."""

    @abstractmethod
    def _description(self, run: str) -> Any:
        """The service's description of a job."""

    @abstractmethod
    def _output_prefix(self, job: Any) -> str:
        """The prefix of the URIs of the files with a job's output; empty if there is no output yet."""

    def _client(self) -> Any:
        return client(self.api, self.region)
