"""Requests to services of AWS: a client that does not wait for ever, and our names for what goes wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from lakeingest.errors import ConfigError, OperatorNeeded, Retryable

EXTRA = "pip install 'lakeingest[aws]'"
_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 10, 60, 6
# Codes of errors, whatever the service: the caller's rights, and what a name of pipeline.yml leads to.
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
    """The client of a service; it sends a request again that was throttled or not answered. OperatorNeeded without one.

    Credentials and endpoints are found as AWS's own tools find them.
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
    """OperatorNeeded where AWS's client is not installed."""
    if find_spec("boto3") is None:
        raise OperatorNeeded(f"boto3 is not here: {EXTRA}")


def credentials() -> dict[str, str]:
    """The keys that AWS's own tools would use here, in the words of obstore; empty where there are none."""
    import boto3

    with named("AWS credentials"):
        found = boto3.Session().get_credentials()
        keys = None if found is None else found.get_frozen_credentials()
    names = {"access_key_id": "access_key", "secret_access_key": "secret_key", "session_token": "token"}
    return {name: value for name, of_boto in names.items() if (value := getattr(keys, of_boto, None))}


@contextmanager
def named(doing: str, key: str | None = None) -> Iterator[None]:
    """Name the errors of requests: the message begins with the name of the request.

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
