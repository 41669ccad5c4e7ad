"""Requests to services of AWS: a client with timeouts, and our errors for failed requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from lakeingest.errors import ConfigError, OperatorNeeded, Retryable

EXTRA = "pip install 'lakeingest[aws]'"
_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 10, 60, 6
# Codes of errors of all services: the caller lacks rights (_RIGHTS), or a name in pipeline.yml is wrong (_NAMES).
_RIGHTS = {
    "AccessDenied",
    "AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
}
_NAMES = {"ResourceNotFoundException", "ValidationException", "InvalidRequestException", "NoSuchBucket", "404"}
_SERVER_ERRORS, _TOO_MANY = 500, 429


def client(service: str, region: str | None, tries: int = _TRIES) -> Any:
    """The client of a service. It repeats requests that are throttled or not answered, up to `tries` times.

    It finds credentials and endpoints as AWS's own tools do. Raises OperatorNeeded if boto3 is not installed.
    """
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise OperatorNeeded(f"{error}: {EXTRA}") from error

    retries = {"mode": "standard", "total_max_attempts": tries}
    settings = Config(connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retries=retries)
    with named(service):
        return boto3.Session().client(service, region_name=region, config=settings)


def require_client() -> None:
    """Raise OperatorNeeded if AWS's client is not installed."""
    if find_spec("boto3") is None:
        raise OperatorNeeded(f"boto3 is not here: {EXTRA}")


def credentials() -> dict[str, str]:
    """The keys that AWS's own tools would use here, under obstore's names; empty if there are none."""
    import boto3

    with named("AWS credentials"):
        credentials = boto3.Session().get_credentials()
        keys = None if credentials is None else credentials.get_frozen_credentials()
    names = {"access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "token"}
    return {name: value for name, boto_name in names.items() if (value := getattr(keys, boto_name, None))}


@contextmanager
def named(doing: str, key: str | None = None) -> Iterator[None]:
    """Turn errors of requests within the block into ours; the message begins with `doing`, the request's name.

    Raises:
        Retryable: the service does not answer, is throttling or fails.
        OperatorNeeded: there are no credentials, or they lack rights.
        ConfigError: the service knows no such name; the message has the `key` of pipeline.yml.

    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError  # type: ignore[import-untyped]
    from botocore.exceptions import ConnectionError as NotConnected

    try:
        yield
    except (HTTPClientError, NotConnected) as error:
        raise Retryable(f"{doing}: no answer: {error}; run the same command again") from error
    except ClientError as error:
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if status >= _SERVER_ERRORS or status == _TOO_MANY or "Throttl" in code or code == "RequestLimitExceeded":
            raise Retryable(f"{doing}: {error}; run the same command again") from error
        if key is not None and code in _NAMES:
            raise ConfigError(f"{key}: {doing}: {error}") from error
        if code in _RIGHTS:
            raise OperatorNeeded(f"{doing}: {error}; correct the credentials, or their rights in IAM") from error
        raise OperatorNeeded(f"{doing}: {error}") from error
    except BotoCoreError as error:  # no credentials, no region, no such profile
        raise OperatorNeeded(f"{doing}: {error}; see AWS's variables and ~/.aws") from error
