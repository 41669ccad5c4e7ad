"""Requests to Dataproc: checked against Google's own types, sent by Google's client, with our names of errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakeingest.errors import ConfigError, OperatorNeeded, Retryable
from lakeingest.files.stored import Stored

EXTRA = "pip install 'lakeingest[gcp]'"
SECONDS = 60.0  # for an answer
_PATIENCE_SECONDS = 15.0  # of all tries of one request; by default Google's client tries some for 15 minutes


def types() -> Any:
    """Google's package; OperatorNeeded without it. It takes seconds to import."""
    try:
        from google.cloud import dataproc_v1
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: {EXTRA}") from error
    return dataproc_v1


def assert_accepted(kind: str, request: Mapping[str, Any], required: Mapping[str, str]) -> None:
    """ConfigError where a request of this type has an unknown field, a wrong type, or lacks a required value.

    Google's types do not say which values are required: `required` has the path of each, and its key of pipeline.yml.
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
    """How long a request may take, and for how long one is repeated that changes nothing."""
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type

    fails = if_exception_type(exceptions.ServiceUnavailable, exceptions.InternalServerError)
    return {"timeout": SECONDS, "retry": Retry(fails, timeout=_PATIENCE_SECONDS)}


@contextmanager
def named(doing: str, key: str | None = None) -> Iterator[None]:
    """Name the errors of requests, as `amazon.named` does."""
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


def joined(folder: Stored, prefix: str) -> str:
    """The text of the files whose names begin so, in order: Dataproc stores a driver's output in pieces."""
    pieces = [piece.get()[0].decode(errors="replace") for piece in folder.listed(f"{prefix}*")]
    return "".join(pieces)
